"""Ports of this machine."""

import secrets
import socket
from contextlib import suppress

_given: set[int] = set()


def free_ports(number: int) -> list[int]:
    """Below the range that the kernel takes for outgoing connections, or one of those might be faster."""
    ports: list[int] = []
    while len(ports) < number:
        port = 20000 + secrets.randbelow(12000)  # not `random`, which Hypothesis seeds alike in all test processes
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("0.0.0.0", port))
            if port not in _given:
                _given.add(port)
                ports.append(port)
    return ports


def free_port() -> int:
    return free_ports(1)[0]
