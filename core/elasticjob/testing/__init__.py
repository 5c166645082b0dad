"""For tests against a real Kubernetes API, without a cluster and without Docker."""

from elasticjob.testing.control_plane import ControlPlane, Refused
from elasticjob.testing.programs import ControlPlaneError

__all__ = ["ControlPlane", "ControlPlaneError", "Refused"]
