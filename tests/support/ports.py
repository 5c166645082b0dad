"""Ports of this machine."""

import socket


def free_port() -> int:
    """One of loopback's that nobody listens at; another process may take it first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
