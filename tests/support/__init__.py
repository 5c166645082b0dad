# SPDX-License-Identifier: Apache-2.0
"""For tests against a real Kubernetes API, without a cluster and without Docker."""

from support.control_plane import ControlPlane, Refused, started
from support.programs import ControlPlaneError

__all__ = ["ControlPlane", "ControlPlaneError", "Refused", "started"]
