"""The HTTP that this pod's trainer and its scripts speak with the sidecar, on loopback only."""
