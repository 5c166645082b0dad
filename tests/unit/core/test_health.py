# SPDX-License-Identifier: Apache-2.0
"""The health port of operator and sidecar: who gets an answer, and what a caller can take of the process."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob import health
from elasticjob.health import HEAD_BYTES, SLOTS, HealthServer, Page, kept
from support.callers import caller
from support.fuzzing import tried
from support.waiting import DEADLINE, until, within

PROBE = b"GET /healthz HTTP/1.1\r\nHost: 10.0.0.7:27602\r\nUser-Agent: kube-probe/1.35\r\nAccept: */*\r\n\r\n"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HealthServer]:
    monkeypatch.setattr(health, "CALL_SECONDS", DEADLINE)
    server = HealthServer({"/healthz": lambda: Page(b"ok\n")})
    await server.listen(0)
    yield server
    server.close()
    await ended(server)


async def ended(server: HealthServer) -> None:
    await until(lambda: not len(server.slots))


async def answer(connection: socket.socket, request: bytes = PROBE) -> bytes:
    """All that comes until the server closes."""
    loop, said = asyncio.get_running_loop(), b""
    with connection, contextlib.suppress(ConnectionError):
        async with within("an answer and the connection's end"):
            await loop.sock_sendall(connection, request)
            while data := await loop.sock_recv(connection, 65536):
                said += data
    return said


async def test_a_probe_is_answered_and_its_connection_closed(server: HealthServer) -> None:
    said = await answer(await caller(server.port, "127.0.0.1"))
    head, body = said.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close" in head
    assert body == b"ok\n"


async def test_a_client_that_knows_http(server: HealthServer) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http:
        for method, path, status in (
            ("GET", "/healthz", 200),
            ("GET", "/healthz?verbose=1", 200),
            ("HEAD", "/healthz", 200),
            ("GET", "/", 404),
            ("POST", "/healthz", 405),
        ):
            async with http.request(method, path) as response:
                assert response.status == status
                assert (await response.read() == b"") is (method == "HEAD")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_both_families_are_served(server: HealthServer, host: str) -> None:
    try:
        reader, writer = await asyncio.open_connection(host, server.port)
    except OSError as error:
        assert host == "::1"
        pytest.skip(f"no IPv6 here: {error}")
    writer.write(PROBE)
    assert (await reader.read()).endswith(b"ok\n")
    writer.close()


async def test_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def without(address: tuple[str, int], **how: int) -> socket.socket:
        if how.get("family") == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return create(address, **how)

    monkeypatch.setattr(socket, "create_server", without)
    server = HealthServer({"/healthz": lambda: Page(b"ok\n")})
    await server.listen(0)
    assert (await answer(await caller(server.port, "127.0.0.1"))).endswith(b"ok\n")
    server.close()
    await ended(server)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES + b"\r\n\r\n", b"431"),
        (b"x" * (HEAD_BYTES + 1), b"431"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"404"),
    ],
)
async def test_what_is_no_request(server: HealthServer, request_: bytes, status: bytes) -> None:
    assert (await answer(await caller(server.port, "127.0.0.1"), request_)).startswith(b"HTTP/1.1 " + status)


@given(data=st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda more: PROBE[:50] + more)))
async def test_whatever_is_sent_the_next_probe_is_answered(server: HealthServer, data: bytes) -> None:
    tried["requests to the health port"] += 1
    (await caller(server.port, "127.0.0.1", data)).close()
    assert (await answer(await caller(server.port, "127.0.0.1"))).endswith(b"ok\n")


async def test_a_flood_from_one_address_displaces_only_itself(server: HealthServer, held: list[socket.socket]) -> None:
    early = await caller(server.port, "127.0.0.1")  # says nothing yet
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(SLOTS + 200):
        held.append(await caller(server.port, "127.0.0.2"))
    most = files + len(held) + SLOTS - 1  # both ends are in this process
    await until(lambda: len(server.slots) == SLOTS and len(os.listdir("/proc/self/fd")) <= most)
    assert (await answer(early)).endswith(b"ok\n")
    assert (await answer(await caller(server.port, "127.0.0.3"))).endswith(b"ok\n")


async def test_a_probe_gets_through_a_flood_from_everywhere(server: HealthServer, held: list[socket.socket]) -> None:
    addresses = [f"127.0.{high}.{low}" for high in (1, 2) for low in range(1, SLOTS)]

    async def flood() -> None:
        while True:
            for address in addresses:
                held.append(await caller(server.port, address))
            while len(held) > 600:
                held.pop(0).close()

    flooding = asyncio.create_task(flood())
    await until(lambda: server.slots.displaced >= SLOTS)
    for _ in range(20):
        assert (await answer(await caller(server.port, "127.0.0.1"))).endswith(b"ok\n")
    assert not flooding.done()
    flooding.cancel()
    await asyncio.wait({flooding})


async def test_who_does_not_ask_in_time_is_closed(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CALL_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    began = asyncio.get_running_loop().time()
    closed = asyncio.create_task(reader.read())
    with contextlib.suppress(ConnectionError):
        while not closed.done():  # a byte now and then wins no time
            writer.write(b"x")
            await asyncio.sleep(0.02)
            assert asyncio.get_running_loop().time() < began + DEADLINE
        await closed
    writer.close()


async def test_who_does_not_take_the_answer_in_time_is_closed(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch, held: list[socket.socket]
) -> None:
    monkeypatch.setattr(health, "CALL_SECONDS", 1.0)  # the request itself is to come in time
    asked = asyncio.Event()

    def large() -> Page:
        asked.set()
        return Page(b"x" * (8 << 20))

    monkeypatch.setitem(server._pages, "/large", large)
    held.append(await caller(server.port, "127.0.0.1", b"GET /large HTTP/1.1\r\n\r\n"))
    async with within("the request"):
        await asked.wait()
    await ended(server)


async def test_a_stop_waits_for_nobody(server: HealthServer, held: list[socket.socket]) -> None:
    held.append(await caller(server.port, "127.0.0.1"))
    await until(lambda: len(server.slots) == 1)
    server.close()
    await ended(server)


def test_a_page_is_made_once_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = 100.0, 0

    def page() -> Page:
        nonlocal made
        made += 1
        return Page(str(made).encode())

    monkeypatch.setattr("time.monotonic", lambda: now)
    newest = kept(page)
    assert [newest().body for _ in range(3)] == [b"1"] * 3
    now += 1.0
    assert newest().body == b"2"
