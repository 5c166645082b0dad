# SPDX-License-Identifier: Apache-2.0
"""Ports of this machine."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

FIRST, EACH, PROCESSES = 20000, 200, 60  # below the range that the kernel takes for outgoing connections

FIRST_NETWORK = 64  # 127.64.0.0/16, and so on


def free_ports(number: int) -> list[int]:
    """Nobody listens there, and no other process is given them while this one lives."""
    free = filter(_is_free, itertools.islice(_ports(), EACH))
    ports = list(itertools.islice(free, number))
    if len(ports) < number:
        raise OSError(f"{number} ports are asked for, and of this process's {EACH} only {len(ports)} are free")
    return ports


def free_port() -> int:
    return free_ports(1)[0]


def loopback_addresses() -> Iterator[str]:
    """Addresses of loopback that no other process is given while this one lives; for what has to have a port of its
    own on each of them."""
    mine = (free_port() - FIRST) // EACH
    for number in itertools.count(1):
        yield f"127.{FIRST_NETWORK + mine}.{number // 256}.{number % 256}"


@cache
def _ports() -> Iterator[int]:
    """This process's, one after the other and again from the first. They are its own by a name that the kernel gives
    once, on one network, and takes back when the process ends."""
    holder = socket.socket(socket.AF_UNIX)
    for first in range(FIRST, FIRST + EACH * PROCESSES, EACH):
        with suppress(OSError):
            holder.bind(f"\0elasticjob-ports-from-{first}")
            return _held(holder, first)
    raise OSError(f"all ports from {FIRST} to {FIRST + EACH * PROCESSES} are other processes'")


def _held(holder: socket.socket, first: int) -> Iterator[int]:
    with holder:
        yield from itertools.cycle(range(first, first + EACH))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: closed connections keep none away
        probe.bind(("0.0.0.0", port))
        return True
    return False
