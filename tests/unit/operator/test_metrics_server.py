# SPDX-License-Identifier: Apache-2.0
"""The metrics over TLS: who gets them, who is told what, and what a caller can take of the process."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from elasticjob.health import Page
from elasticjob.kube.errors import TimedOut
from elasticjob_operator import certificate, metrics_server
from elasticjob_operator.certificate import CertificateError, Mounted
from elasticjob_operator.cluster.reviews import TokenVerdict
from elasticjob_operator.metrics_server import HEAD_BYTES, SLOTS, MetricsServer, bearer_of
from support.callers import caller
from support.canned_server import ADDRESS, write_authority
from support.waiting import DEADLINE, until, within

VERDICTS = {"scraper": TokenVerdict.GRANTED, "worker": TokenVerdict.FORBIDDEN}


async def judge(token: str) -> TokenVerdict:
    if token == "away":
        raise TimedOut("no answer")
    return VERDICTS.get(token, TokenVerdict.UNKNOWN)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MetricsServer]:
    monkeypatch.setattr(metrics_server, "CALL_SECONDS", DEADLINE)
    server = MetricsServer(lambda: Page(b"elasticjob_leader 1\n"), judge, certificate.contexts(""))
    await server.listen(0)
    yield server
    server.close()
    await until(lambda: not len(server.slots))


@pytest.fixture
def held() -> Iterator[list[socket.socket]]:
    held: list[socket.socket] = []
    yield held
    for one in held:
        one.close()


async def get(server: MetricsServer, token: str | None, path: str = "/metrics") -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(f"https://127.0.0.1:{server.port}") as http,
        http.get(path, headers=headers, ssl=False) as response,
    ):
        assert (response.headers.get("WWW-Authenticate") == "Bearer") is (response.status == 401)
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("token", "status", "said"),
    [
        ("scraper", 200, "elasticjob_leader 1"),
        ("worker", 403, "this user may not get /metrics: the chart's ClusterRole"),
        ("nobody", 401, "the API server knows nobody by this token"),
        (None, 401, "show a bearer token"),
        ("away", 503, "the API server could not be asked"),
    ],
)
async def test_who_gets_the_metrics(server: MetricsServer, token: str | None, status: int, said: str) -> None:
    answered, text = await get(server, token)
    assert answered == status
    assert text.startswith(said)


async def test_there_is_nothing_else(server: MetricsServer) -> None:
    assert (await get(server, "scraper", "/healthz"))[0] == 404
    assert (await get(server, None, "/healthz"))[0] == 401


async def test_a_token_that_is_too_long_is_told(server: MetricsServer) -> None:
    assert (await get(server, "x" * 5000))[0] == 401
    assert (await get(server, "x" * (HEAD_BYTES + 100)))[0] == 431


async def test_plain_http_gets_nothing(server: MetricsServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer scraper\r\n\r\n")
    assert b"elasticjob_leader" not in await reader.read()
    writer.close()


async def test_a_flood_displaces_only_itself(server: MetricsServer, held: list[socket.socket]) -> None:
    for _ in range(SLOTS + 50):
        held.append(await caller(server.port, "127.0.0.2"))
    await until(lambda: server.slots.displaced >= 50)
    assert len(server.slots) == SLOTS
    assert (await get(server, "scraper"))[0] == 200


async def test_who_does_not_go_on_is_closed(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "CALL_SECONDS", 0.1)
    with await caller(server.port, "127.0.0.2") as silent:
        async with within("the end of a connection on which nothing is said"):
            assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Authorization: Bearer a.b", "a.b"),
        (b"authorization:bearer a", "a"),
        (b"Authorization: Basic abc", ""),
        (b"Authorization: Bearer", ""),
        (b"X-Authorization: Bearer a", ""),
        (b"", ""),
    ],
)
def test_the_token_of_a_request(header: bytes, token: str) -> None:
    assert bearer_of(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n") == token


def write_pair(folder: Path) -> bytes:
    """A new authority's pair into `folder`; returns its certificate."""
    write_authority(folder / "ca.crt", folder / "pair")
    text = (folder / "pair").read_text()
    end = text.index("-----BEGIN PRIVATE KEY-----")
    (folder / "tls.crt").write_text(text[:end])
    (folder / "tls.key").write_text(text[end:])
    return (folder / "ca.crt").read_bytes()


async def test_a_mounted_certificate_is_checked_and_followed(tmp_path: Path) -> None:
    write_pair(tmp_path)
    server = MetricsServer(lambda: Page(b"fine\n"), judge, certificate.contexts(str(tmp_path)))
    await server.listen(0)

    async def trusted(authority: bytes) -> bool:
        context = ssl.create_default_context(cadata=authority.decode())
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer scraper"}) as http:
            try:
                async with http.get(f"https://{ADDRESS}:{server.port}/metrics", ssl=context) as response:
                    return response.status == 200
            except aiohttp.ClientConnectorCertificateError:
                return False

    first = (tmp_path / "ca.crt").read_bytes()
    assert await trusted(first)
    (tmp_path / "tls.crt").write_text("half of one")
    assert await trusted(first)
    second = write_pair(tmp_path)
    assert await trusted(second)
    assert not await trusted(first)
    server.close()


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"^--metrics-certificate .*: no usable tls.crt and tls.key: "):
        Mounted(tmp_path)
