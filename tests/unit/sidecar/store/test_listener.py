# SPDX-License-Identifier: Apache-2.0
"""The tunnel's port under a flood of callers that do not show who they are, from several addresses as from pods."""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from elasticjob.connection_slots import ConnectionSlot, ConnectionSlots
from elasticjob_sidecar.log_limits import LOGGED_A_MINUTE, LimitedLog
from elasticjob_sidecar.membership import link_monitor
from elasticjob_sidecar.store import listener, transport, tunnel
from elasticjob_sidecar.store.connection import Connection
from elasticjob_sidecar.store.credentials import server_name
from elasticjob_sidecar.store.listener import HANDSHAKES_EACH, Caller, TunnelListener
from support.callers import caller
from support.faulty_kube import JOB_UID
from support.tls_hello import HELLO
from support.two_sidecars import TwoSidecars, in_use, store, two_workers, until, until_in_use
from support.waiting import within

NAME = server_name(JOB_UID, 1)
FEW_SLOTS = 40


@pytest.fixture
async def formed(patient: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoSidecars]:
    """Round 1 is formed of both workers, and worker 0 serves its store; its listener has few slots, and patience."""
    monkeypatch.setattr(listener, "SLOTS", FEW_SLOTS)
    monkeypatch.setattr(link_monitor, "STORE_FIRST_SECONDS", 3600.0)  # no link comes while a test counts
    async with two_workers() as pair:
        await pair.form()
        async with store() as server:
            await pair.workers[0].serve_store(1, server)
            yield pair


async def is_closed(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        async with within("the end of the connection"):
            assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""


def slots(pair: TwoSidecars) -> ConnectionSlots:
    listening = pair.workers[0].sidecar.tunnel._transport._listener
    assert listening is not None
    return listening.slots


async def carries(pair: TwoSidecars) -> None:
    """A new connection of the other member reaches the store."""
    reader, writer = await pair.workers[1].connect()
    writer.write(b"ping")
    async with within("an echo of the store"):
        assert await reader.readexactly(4) == b"ping"
    writer.close()


async def test_silent_callers_are_bounded_and_a_member_comes_through(
    formed: TwoSidecars, held: list[socket.socket]
) -> None:
    (_, files), port = in_use(), formed.workers[0].ports.tunnel
    for number in range(3 * FEW_SLOTS):
        held.append(await caller(port, f"127.0.1.{1 + number % 3}"))
    await until(lambda: slots(formed).displaced == 2 * FEW_SLOTS)
    assert len(slots(formed)) == FEW_SLOTS
    await until(lambda: in_use()[1] <= files + len(held) + FEW_SLOTS)  # both ends are in this process
    await carries(formed)
    assert len(slots(formed)) == FEW_SLOTS - 1  # the member took one, and gave it back


async def test_a_member_comes_through_a_flood_that_goes_on(formed: TwoSidecars, held: list[socket.socket]) -> None:
    port = formed.workers[0].ports.tunnel

    async def flood() -> None:
        while True:
            for low in range(1, 20):
                held.append(await caller(port, f"127.0.1.{low}", b"\x16\x03\x01"))
            while len(held) > 300:
                held.pop(0).close()

    flooding = asyncio.create_task(flood())
    await until(lambda: slots(formed).displaced > FEW_SLOTS)
    for _ in range(5):
        await carries(formed)
    assert not flooding.done()
    flooding.cancel()
    await asyncio.wait({flooding})


def hello(name: str) -> bytes:
    """No real one, but as far as it is looked at before TLS."""
    body = b"\x01" + bytes(50) + name.encode() + bytes(50)
    return b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it does not begin with TLS"),
        (b"\x16\x02", "it does not begin with TLS"),
        (b"\x16\x03\x01\xff\xff" + bytes(100), "its first record is longer than 4096 bytes"),
        (hello("round-2.of-another-job"), "it does not ask for round 1 of this job"),
    ],
)
async def test_no_tls_is_set_up_for_who_does_not_ask_for_the_round(
    formed: TwoSidecars, says: bytes, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def secure(*_: object) -> None:
        pytest.fail("TLS is set up")

    monkeypatch.setattr(listener, "secure", secure)
    with caplog.at_level("INFO", logger=transport.__name__):
        connection = await caller(formed.workers[0].ports.tunnel, "127.0.1.1", says)
        await is_closed(connection)
    connection.close()
    assert f"a caller from 127.0.1.1 was not let in: {why}" in caplog.text


async def test_a_hello_may_come_in_parts(formed: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    async def secure(connection: socket.socket, *_: object) -> None:
        began.set()
        connection.close()
        raise ConnectionError

    monkeypatch.setattr(listener, "secure", secure)
    whole = hello(NAME)
    connection = await caller(formed.workers[0].ports.tunnel, "127.0.1.1", whole[:3])
    for part in (whole[3:30], whole[30:-1], whole[-1:]):
        assert not began.is_set()
        await asyncio.sleep(0.05)
        await asyncio.get_running_loop().sock_sendall(connection, part)
    async with within("the handshake"):
        await began.wait()
    connection.close()


async def standing_still(pair: TwoSidecars, source: str) -> socket.socket:
    """A caller whose handshake has begun, or would, and does not go on."""
    return await caller(pair.workers[0].ports.tunnel, source, HELLO)


async def answered(connection: socket.socket) -> None:
    async with within("an answer to the handshake"):
        assert await asyncio.get_running_loop().sock_recv(connection, 1)


async def test_of_each_address_a_few_handshakes_go_on_at_a_time(
    formed: TwoSidecars, held: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[socket.socket] = []
    real = listener.secure

    async def secure(connection: socket.socket, tls: ssl.SSLContext) -> Connection:
        begun.append(connection)
        return await real(connection, tls)

    monkeypatch.setattr(listener, "secure", secure)
    for _ in range(FEW_SLOTS // 2):
        held.append(await standing_still(formed, "127.0.2.1"))
    await until(lambda: len(begun) == HANDSHAKES_EACH)
    await carries(formed)
    assert len(begun) == HANDSHAKES_EACH + 1


async def test_a_handshake_that_stands_still_gives_its_turn_back(
    formed: TwoSidecars, held: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 0.1)
    before = len(asyncio.all_tasks())
    for _ in range(HANDSHAKES_EACH + 1):
        held.append(await standing_still(formed, "127.0.2.1"))
    await answered(held[-1])
    for connection in held:
        connection.close()
    await until(lambda: len(asyncio.all_tasks()) <= before)
    monkeypatch.undo()
    await carries(formed)


async def test_who_is_displaced_in_the_midst_of_the_handshake_is_closed(
    formed: TwoSidecars, held: list[socket.socket]
) -> None:
    before = in_use()
    for number in range(FEW_SLOTS):
        held.append(await standing_still(formed, "127.0.2.1" if number < FEW_SLOTS - 1 else "127.0.2.2"))
    await answered(held[0])
    for number in range(FEW_SLOTS - 1):
        held.append(await caller(formed.workers[0].ports.tunnel, f"127.0.4.{1 + number}"))
    await until(lambda: slots(formed).displaced == FEW_SLOTS - 1)
    for connection in held:
        connection.close()
    await until_in_use(before)


async def test_a_listener_that_found_no_files_opens_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "NO_FILES_SECONDS", 0.05)
    came: list[str] = []

    async def receive(caller: Caller) -> None:
        came.append(caller.address)

    opened = TunnelListener(receive, lambda _: None)
    opened.listen("127.0.0.1", 0)
    accepting = opened._listener
    assert accepting is not None

    class Full:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        def fileno(self) -> int:
            return accepting.fileno()

    opened._accept(cast("Any", Full()))
    assert "the tunnel accepts nobody for 0.05 s" in caplog.text
    connection = await caller(accepting.getsockname()[1], "127.0.0.9")
    await until(lambda: came == ["127.0.0.9"])
    connection.close()
    opened.close()


async def test_connections_of_the_own_pod_are_bounded_too(formed: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "CONNECTIONS", 2)
    one = formed.workers[1]
    kept = [await one.connect() for _ in range(2)]
    for reader, writer in kept:
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
    reader, writer = await one.connect()
    with contextlib.suppress(ConnectionError):
        async with within("the end of a connection too many"):
            assert await reader.read() == b""
    writer.close()
    for _, kept_writer in kept:
        kept_writer.close()
    await until(lambda: not one.sidecar.tunnel._trainers)
    await carries(formed)


@pytest.mark.looptime
async def test_what_strangers_cause_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(logging.getLogger("listener"), "callers were not let in")
    with caplog.at_level("INFO", logger="listener"):
        for number in range(11_400):
            limited.info("caller %d", number)
            if number % 20 == 0:  # a step of the loop for each takes seconds
                await asyncio.sleep(180 / 11_400 * 20)
        await asyncio.sleep(60)
    minutes = 4
    assert len(caplog.messages) <= minutes * (LOGGED_A_MINUTE + 1)
    left_out = sum(int(said.split()[0]) for said in caplog.messages if "more callers were not let in" in said)
    assert left_out + sum(said.startswith("caller") for said in caplog.messages) == 11_400


@pytest.mark.parametrize(("patient", "first"), [(False, "b1"), (True, "b3")])
def test_places_go_to_who_has_few(patient: bool, first: str) -> None:
    left: list[str] = []
    slots = ConnectionSlots(4, patient=patient)

    def take(name: str) -> ConnectionSlot:
        return slots.take(name[0], lambda: left.append(name))

    for name in ("a1", "b1", "b2", "b3", "c1"):
        take(name)
    assert left == [first]
    assert len(slots) == 4


@pytest.mark.parametrize(("patient", "gone"), [(False, "a"), (True, "d")])
def test_among_equals_the_oldest_goes_or_who_comes_last(patient: bool, gone: str) -> None:
    left: list[str] = []
    slots = ConnectionSlots(3, patient=patient)
    taken = [slots.take(name, lambda name=name: left.append(name)) for name in "abcd"]  # type: ignore[misc]
    assert left == [gone]
    for slot in taken * 2:
        slot.release()
    assert len(slots) == 0
