# SPDX-License-Identifier: Apache-2.0
"""The HTTP that this pod's trainer and its scripts speak with the sidecar, on loopback only."""
