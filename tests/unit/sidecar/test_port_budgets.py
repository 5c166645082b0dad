# SPDX-License-Identifier: Apache-2.0
"""What a flood of each port that others reach costs in memory: the port is in a process of its own."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from elasticjob import health
from support.tls_hello import HELLO

MIB = 1024  # of the KiB that /proc tells

HEALTH = """
from elasticjob.health import HealthServer, Page
server = HealthServer({"/metrics": lambda: Page(bytes(100_000))})
await server.listen(0)
port = server.port
"""
SECURED = """
from elasticjob.health import Page
from elasticjob_operator import certificate
from elasticjob_operator.metrics_server import MetricsServer
server = MetricsServer(lambda: Page(b""), None, certificate.contexts(""))
await server.listen(0)
port = server.port
"""
TUNNEL = """
from support.pod_life import new_credentials
from support.faulty_kube import JOB_UID
from elasticjob.api import Member
from elasticjob.certificates import der_of
from elasticjob_sidecar.store.transport import PeerTransport
transport = PeerTransport(new_credentials(), JOB_UID)
await transport.listen("127.0.0.1", 0, None, None)
transport.trust(1, {Member(1, "1"): der_of(new_credentials().certificate)})
port = transport._listener._listener.getsockname()[1]
"""
TRAINER = """
from aiohttp import web
from elasticjob_sidecar.trainer_api.server import TrainerServer
server = TrainerServer(web.Application())
await server.listen("127.0.0.1", 0)
port = server._server.sockets[0].getsockname()[1]
"""
PROGRAM = """
import asyncio, sys
sys.path[:0] = {path!r}
async def main():
{serve}
    print(port, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Served:
    """A port, and the memory of the process that listens there."""

    def __init__(self, serve: str) -> None:
        indented = "".join(f"    {line}\n" for line in serve.splitlines())
        program = PROGRAM.format(path=sys.path, serve=indented)
        self._process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kib(self, name: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def served() -> Iterator[Callable[[str], Served]]:
    made: list[Served] = []

    def serve(program: str) -> Served:
        made.append(Served(program))
        return made[-1]

    yield serve
    for one in made:
        one.close()


# an unfinished request; a large answer that is not taken; plain bytes; the start of TLS; a handshake that stands still
HEAD = b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 4000
HEADS = b"GET /v1/rendezvous HTTP/1.1\r\n" + (b"X: " + b"x" * 2000 + b"\r\n") * 31
ASKED = b"GET /metrics HTTP/1.1\r\n\r\n"
# what the kernel may hold of callers that are served, and of those that wait
HEALTH_KERNEL = (health.SLOTS + health.WAITING) * 2 * health.KERNEL_BYTES >> 20
TLS_START = b"\x16\x03\x01\x0f\xf0" + b"x" * 4000
NAMED = HELLO  # of the round's name


@pytest.mark.parametrize(
    ("program", "callers", "says", "budget"),
    [
        pytest.param(HEALTH, 600, HEAD, 32 - HEALTH_KERNEL, id="health: requests without an end"),
        pytest.param(HEALTH, 3000, HEAD * 25, 32 - HEALTH_KERNEL, id="health: headers without an end"),
        pytest.param(HEALTH, 600, ASKED, 32 - HEALTH_KERNEL, id="health: answers that nobody takes"),
        pytest.param(SECURED, 300, TLS_START, 48, id="secured metrics: hellos without an end"),
        pytest.param(SECURED, 300, HELLO, 48, id="secured metrics: handshakes that stand still"),
        pytest.param(TRAINER, 700, HEADS, 96, id="trainer API: requests without an end"),
        pytest.param(TUNNEL, 2500, b"", 48, id="tunnel: silence"),
        pytest.param(TUNNEL, 2500, TLS_START, 48, id="tunnel: hellos without an end"),
        pytest.param(TUNNEL, 2500, NAMED, 48, id="tunnel: handshakes that stand still"),
    ],
)
def test_a_flood_costs_no_more_than_the_ports_budget(
    served: Callable[[str], Served], program: str, callers: int, says: bytes, budget: int
) -> None:
    """`budget` in MiB; docs/security.md names them."""
    port = served(program)
    before = port.kib("VmRSS")
    held = []
    try:
        for number in range(callers):
            caller = socket.create_connection(("127.0.0.1", port.port), 10, (f"127.0.3.{1 + number % 100}", 0))
            held.append(caller)
            caller.settimeout(1)  # one that is not read any more
            with suppress(ConnectionError, TimeoutError):
                caller.sendall(says)
        if says == NAMED:
            assert held[0].recv(1)  # TLS was set up
        assert port.kib("VmHWM") - before <= budget * MIB
    finally:
        for caller in held:
            caller.close()
