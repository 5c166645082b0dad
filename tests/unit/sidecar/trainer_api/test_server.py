"""The trainer API's port on loopback: what one process of the pod can take from the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from elasticjob_torch import wire
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


@pytest.mark.parametrize(
    "headers", [b"X: " + b"x" * (HEAD_BYTES + 1) + b"\r\n", b"X: x\r\n" * (HEADERS + 1)], ids=["long", "many"]
)
async def test_headers_are_few_and_small(pair: TwoSidecars, headers: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.workers[0].ports.trainer_api)
    writer.write(b"GET /v1/rendezvous HTTP/1.1\r\nHost: sidecar\r\n" + headers + b"\r\n")
    async with within("an answer"):
        assert b" 400 " in await reader.readline()
    writer.close()
