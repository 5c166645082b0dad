# SPDX-License-Identifier: Apache-2.0
"""Many processes run tests at the same time: a port that two of them are given fails a test, once in many runs."""

import socket
import sys
from pathlib import Path
from subprocess import PIPE, Popen

from support.ports import EACH, free_ports

TESTS = Path(__file__).resolve().parents[2]
ASK = "import sys; from support.ports import free_ports; print(*free_ports(80), flush=True); sys.stdin.read()"


def test_no_port_is_given_to_two_processes() -> None:
    askers = [Popen([sys.executable, "-c", ASK], cwd=TESTS, stdin=PIPE, stdout=PIPE, text=True) for _ in range(8)]
    try:
        given = [port for one in askers if one.stdout for port in one.stdout.readline().split()]
    finally:
        for one in askers:
            one.communicate()
    assert len(given) == 8 * 80
    assert len(set(given)) == len(given)


def test_no_port_is_given_twice_soon_nor_while_somebody_listens() -> None:
    given = free_ports(20) + free_ports(20)
    assert len(set(given)) == 40
    with socket.create_server(("127.0.0.1", given[0])):
        assert given[0] not in free_ports(EACH - 1)


def test_a_port_whose_connections_were_closed_a_moment_ago_is_free() -> None:
    for port in free_ports(EACH):
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", port)),
            server.accept()[0] as accepted,
        ):
            accepted.close()
    assert len(free_ports(EACH)) == EACH
