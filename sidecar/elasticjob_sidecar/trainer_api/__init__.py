"""The HTTP API for this pod's trainer and its scripts, on loopback only."""
