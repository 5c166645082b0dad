# SPDX-License-Identifier: Apache-2.0
"""How long a call to the API server may take, and over which connection."""

import asyncio
import http.client
import random
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from elasticjob_torch.kubernetes import api as api_module
from elasticjob_torch.kubernetes.access import InClusterConfig
from elasticjob_torch.kubernetes.api import ApiClient, Unavailable
from elasticjob_torch.kubernetes.clock import SharedClock
from support.canned_server import ADDRESS, CannedServer


class Dripping:
    """An answer whose body comes in pieces, one a second, and no piece later than the socket allows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
        self.now = 0.0
        self.left = pieces
        monkeypatch.setattr(api_module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def read1(self, size: int) -> bytes:
        self.now += 1
        self.left -= 1
        return b"x" if self.left >= 0 else b""

    def read(self) -> bytes:
        return b""


def body(dripping: Dripping) -> bytes:
    return api_module._payload(cast("http.client.HTTPResponse", cast("Any", dripping)), 5)


def test_an_answer_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    dripping = Dripping(monkeypatch, 1000)
    with pytest.raises(TimeoutError, match="had not ended"):
        body(dripping)
    assert dripping.now <= 6


def test_an_answer_in_pieces_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert body(Dripping(monkeypatch, 4)) == b"xxxx"


class SlowServer(CannedServer):
    """Takes `seconds` for each answer."""

    seconds = 0.0

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        await asyncio.sleep(self.seconds)
        return await super()._answer(request)


def client_of(server: CannedServer, folder: Path, answer_seconds: float = 30.0) -> ApiClient:
    (folder / "token").write_text("token")
    return ApiClient(InClusterConfig(ADDRESS, server.port, folder), SharedClock(), answer_seconds)


async def get(client: ApiClient) -> dict[str, Any]:
    return await asyncio.to_thread(client.call, "GET", "/", patience=0)


async def test_a_clone_that_may_wait_longer_gets_the_answer_of_a_slow_server(tmp_path: Path) -> None:
    server = SlowServer()
    async with server.serve(tmp_path):
        server.seconds, impatient = 1.0, client_of(server, tmp_path, 0.2)
        with pytest.raises(Unavailable, match="did not answer"):
            await get(impatient)
        assert await get(impatient.clone(30)) == {"items": []}


async def test_a_connection_is_renewed_after_a_minute_unless_the_server_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one costs a slow server more than its answer does, and leaves this node behind the others."""
    later = 0.0
    monkeypatch.setattr(api_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + later))
    async with CannedServer().serve(tmp_path) as server:
        client = client_of(server, tmp_path)
        for quick in (30, 30, 0, 0):  # a busy machine answers within 30 s, and none within 0
            monkeypatch.setattr(api_module, "_QUICK_SECONDS", quick)
            await get(client)
            later += 61
        first, second, third, fourth = (asked.connection for asked in server.asked)
        assert len({first, second, third}) == 3
        assert fourth == third


async def test_a_pause_takes_nothing_of_the_scripts_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what a seeded script computes would depend on how often a call failed."""
    fails = iter([True, False])

    def attempt(*_: Any) -> dict[str, Any]:
        if next(fails):
            raise Unavailable("no answer")
        return {}

    async with CannedServer().serve(tmp_path) as server:
        client = client_of(server, tmp_path)
        monkeypatch.setattr(client, "_attempt", attempt)
        random.seed(1)
        before = random.getstate()
        assert client.call("GET", "/", patience=30) == {}
        assert random.getstate() == before


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has it")
async def test_the_kernel_says_when_the_servers_machine_cannot_be_reached(tmp_path: Path) -> None:
    async with CannedServer().serve(tmp_path) as server:
        client = client_of(server, tmp_path, 120)
        await get(client)
        assert client._connection is not None
        sock = client._connection.sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
        probes = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        idle, between, number = (sock.getsockopt(socket.IPPROTO_TCP, each) for each in probes)
        assert idle + between * number <= 10
