# SPDX-License-Identifier: Apache-2.0
"""The trainer API's port on loopback: what one process of the pod can take from the others."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from elasticjob_sidecar.log_limits import LOGGED_A_MINUTE
from elasticjob_sidecar.trainer_api.server import TrainerServer
from elasticjob_torch import wire
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.client import SidecarClient
from elasticjob_torch.wire import HEAD_BYTES, HEADERS
from support.two_sidecars import TwoSidecars, two_workers
from support.waiting import within


@pytest.fixture
async def pair() -> AsyncIterator[TwoSidecars]:
    async with two_workers() as pair:
        yield pair


async def test_the_agents_stream_outlives_a_flood(pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_CONNECTIONS", 10)
    zero = pair.workers[0]
    stream = await zero.stream()
    held, turned_away = [], 0
    for _ in range(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", zero.ports.trainer_api)
        held.append((reader, writer))
    for reader, writer in held:
        writer.write(b"GET /v1/rendezvous HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n")
        async with within("the end of a connection too many"):
            with contextlib.suppress(ConnectionError):
                turned_away += not await reader.read()
                continue
        turned_away += 1
    assert turned_away == 21  # the stream has one place
    assert not stream.content.at_eof()
    assert zero.machine.trainer == zero.trainer
    for _, writer in held:
        writer.close()
    assert (await zero.call("GET", "rendezvous"))[0] == 200


async def test_a_trainer_of_any_user_reaches_it_at_a_socket_which_the_next_sidecar_takes_over(tmp_path: Path) -> None:
    async def view(_: web.Request) -> web.Response:
        return web.json_response(ours.to_json())

    ours = wire.Ours(rank=0, job="digits", run_id="uid")
    socket = tmp_path / ".sidecar"
    client = SidecarClient(Address(path=str(socket)), "t", 5)
    for _ in range(2):
        app = web.Application()
        app.router.add_get(wire.VIEW.path, view)
        server = TrainerServer(app)
        await server.listen_at(socket)
        assert socket.stat().st_mode & 0o666 == 0o666
        assert await asyncio.to_thread(client.view) == ours
        await server.close()
        assert socket.exists(), "as one that was killed leaves it"


@pytest.mark.parametrize(
    "headers", [b"X: " + b"x" * (HEAD_BYTES + 1) + b"\r\n", b"X: x\r\n" * (HEADERS + 1)], ids=["long", "many"]
)
async def test_headers_are_few_and_small(pair: TwoSidecars, headers: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.workers[0].ports.trainer_api)
    writer.write(b"GET /v1/rendezvous HTTP/1.1\r\nHost: sidecar\r\n" + headers + b"\r\n")
    async with within("an answer"):
        assert b" 400 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    "says",
    [
        b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
        b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\nxx",
        b"Content-Length: many\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["gzip", "brotli", "length", "chunks"],
)
async def test_what_is_no_request_is_refused_without_a_traceback_and_fills_no_log(
    pair: TwoSidecars, caplog: pytest.LogCaptureFixture, says: bytes
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(LOGGED_A_MINUTE + 5):
        reader, writer = await asyncio.open_connection("127.0.0.1", pair.workers[0].ports.trainer_api)
        writer.write(b"POST /v1/progress HTTP/1.1\r\nHost: sidecar\r\n" + says)
        async with within("an answer"):
            assert b" 400 " in await reader.readline()
        writer.close()
    assert not [record for record in caplog.records if record.exc_info]
    told = [record.getMessage() for record in caplog.records if "trainer API" in record.getMessage()]
    assert len(told) <= LOGGED_A_MINUTE
    assert all(message.isprintable() for message in told)
