# SPDX-License-Identifier: Apache-2.0
"""Anything that somebody can send to the two ports of the tunnel, at the level of sockets.

The peers' port is open to the whole cluster: what does not prove itself is closed in time, whatever it sends, and keeps
nothing. The store's port is the trainer's: whatever it sends arrives as it is. A connection that is open goes on.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob_sidecar.membership import link_monitor
from elasticjob_sidecar.store import transport, tunnel
from support.fuzzing import encoded, numbers, spoiled, texts, tried
from support.tls_hello import HELLO
from support.two_sidecars import TwoSidecars, in_use, store, until_in_use
from support.waiting import within

PATIENCE = 60.0  # of those who are let in: a machine that is busy must not look like a fault
DEADLINE = 0.3  # of callers that do not say who they are, in the place of seconds
LORIS, PACE = 100, 0.1


class Ending(Enum):
    STAY, HALF_CLOSE, ABORT = range(3)


class Target(NamedTuple):
    """Two sidecars in a round whose store echoes, and a trainer's connection to it through both."""

    pair: TwoSidecars
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def still_carries(self) -> None:
        async with within("an echo", PATIENCE):
            self.writer.write(b"ping")
            assert await self.reader.readexactly(4) == b"ping"


@pytest.fixture
def impatient(target: Target) -> Iterator[None]:
    """The transport's deadlines are over soon."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in vars(transport) if name.endswith("_SECONDS")]:
            patch.setattr(transport, name, DEADLINE)
        yield


@pytest.fixture
async def target(pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Target]:
    """After all, nothing is held that was not before, and a new connection is carried."""
    for name in ("HOLD_SECONDS", "MARGIN_SECONDS", "DIAL_SECONDS"):
        monkeypatch.setattr(tunnel, name, PATIENCE)
    monkeypatch.setattr(link_monitor, "STORE_FIRST_SECONDS", 3600.0)  # no link comes after the count
    await pair.form()
    zero, one = pair.workers
    async with store() as server:
        await zero.serve_store(1, server)
        assert (await one.call("GET", "store?round=1&timeout=10"))[0] == 200
        made = Target(pair, *await one.connect())
        await made.still_carries()
        before = in_use()
        yield made
        await until_in_use(before)
        await made.still_carries()
        made.writer.close()
        again = Target(pair, *await one.connect())
        await again.still_carries()
        again.writer.close()


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Its beginning, or with another byte in one place, or with more behind it."""
    offsets = st.integers(0, len(whole) - 1)
    changed = st.tuples(offsets, st.integers(0, 255)).map(
        lambda at: whole[: at[0]] + bytes([at[1]]) + whole[at[0] + 1 :]
    )
    return st.one_of(offsets.map(lambda end: whole[:end]), changed, st.binary(max_size=50).map(whole.__add__))


LINES = spoiled({"job": texts, "round": st.just(1) | numbers, "index": st.just(1) | numbers, "id": texts})
FIRST = st.one_of(
    st.binary(max_size=2000),
    damaged(HELLO),
    damaged(HELLO),
    st.just(HELLO),
    LINES.map(lambda line: encoded(line) + b"\n"),
    st.sampled_from([b"", b"\n", b"\x16\x03\x01", b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"a" * 100_000]),
    st.integers(1, 900).map(lambda depth: b"[" * depth + b"\n"),
)


async def sent(port: int, data: bytes, ending: Ending) -> bytes:
    """What the other side says to `data` until it closes, which it has to in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    try:
        async with within("the end of the connection", PATIENCE):
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                if ending is Ending.HALF_CLOSE:
                    writer.write_eof()
                if ending is not Ending.ABORT:
                    said = await reader.read()
    finally:
        writer.transport.abort()
    return said


@given(data=FIRST, ending=st.sampled_from(Ending))
# Python refuses a server name that is not ASCII, as it should, and then complains of it as of a fault of its own
@pytest.mark.filterwarnings("ignore:Exception ignored in. b['\"]:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("impatient")
async def test_nobody_gets_in_by_the_peers_port(target: Target, data: bytes, ending: Ending) -> None:
    tried["first bytes to the peers' port"] += 1
    said = await sent(target.pair.workers[0].ports.tunnel, data, ending)
    assert b"ping" not in said
    assert b'"ok"' not in said
    await target.still_carries()


@given(data=FIRST, ending=st.sampled_from(Ending))
async def test_what_the_trainer_sends_arrives_as_it_is(target: Target, data: bytes, ending: Ending) -> None:
    tried["first bytes to the store's port"] += 1
    reader, writer = await target.pair.workers[1].connect()
    async with within("an echo", PATIENCE):
        writer.write(data)
        if ending is not Ending.ABORT:
            assert await reader.readexactly(len(data)) == data
        if ending is Ending.HALF_CLOSE:
            writer.write_eof()
            assert await reader.read() in (b"bye", b"")  # TLS knows no half-close
    writer.transport.abort()
    await target.still_carries()


@given(data=FIRST, ending=st.sampled_from(Ending))
async def test_without_a_round_the_stores_port_closes(pair: TwoSidecars, data: bytes, ending: Ending) -> None:
    tried["first bytes to the store's port without a round"] += 1
    assert await sent(pair.workers[0].ports.store, data, ending) == b""


async def test_callers_that_say_little_and_stay_are_closed_and_keep_nobody_out(target: Target) -> None:
    async def drip() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.pair.workers[0].ports.tunnel)
        ended = asyncio.create_task(reader.read())
        with contextlib.suppress(ConnectionError):
            for byte in HELLO:
                writer.write(bytes([byte]))
                await asyncio.wait({ended}, timeout=PACE)
                if ended.done():
                    break
            await ended
        writer.transport.abort()

    async with within("the end of all slow callers", PATIENCE), asyncio.TaskGroup() as callers:
        for _ in range(LORIS):
            callers.create_task(drip())
        tried["slow callers of the peers' port"] += LORIS
        for _ in range(5):
            fresh = Target(target.pair, *await target.pair.workers[1].connect())
            await fresh.still_carries()
            fresh.writer.close()
