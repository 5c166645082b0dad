# SPDX-License-Identifier: Apache-2.0
"""What the operator asks of the API server has an end."""

from collections.abc import AsyncIterator

import pytest
from kubernetes.aio.client import Configuration

from elasticjob.kube.errors import ApiError, TimedOut
from elasticjob.kube.names import user_agent
from elasticjob_operator.cluster.client import Kube
from support.silent_server import SilentServer
from support.waiting import DEADLINE, within


@pytest.fixture
async def silent() -> AsyncIterator[SilentServer]:
    async with SilentServer() as server:
        yield server


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
async def test_a_request_that_is_not_answered_is_named(silent: SilentServer, answer: bytes) -> None:
    silent.answer = answer
    kube = Kube.of(Configuration(host=silent.url))
    async with within("the end of a request that is not answered"):
        with pytest.raises(TimedOut, match=r"^GET /api/v1/pods: the API server did not answer within 0\.1 s$"):
            await kube.request("GET", "/api/v1/pods", seconds=0.1)
    await kube.close()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", 0),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", 403),
        (b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", 409),
        (b"no HTTP at all\r\n\r\n", 0),
    ],
)
async def test_each_failure_is_told_with_its_verb_and_code(silent: SilentServer, answer: bytes, code: int) -> None:
    silent.answer = answer
    kube, told = Kube.of(Configuration(host=silent.url)), list[tuple[str, int]]()
    kube.transport.ended = lambda verb, status: told.append((verb, status))
    async with within("the end of a request that fails"):
        with pytest.raises(ApiError):
            await kube.request("GET", "/api/v1/pods", seconds=DEADLINE if answer else 0.1)
    await kube.close()
    assert told == [("list", code)]


@pytest.mark.parametrize(
    ("method", "query", "line"),
    [
        ("PATCH", {"dryRun": "All"}, "PATCH /api/v1/pods/a?dryRun=All&fieldManager=elasticjob-operator HTTP/1.1\r\n"),
        ("DELETE", None, "DELETE /api/v1/pods/a HTTP/1.1\r\n"),
    ],
)
async def test_the_api_server_is_told_who_asks_and_who_writes(
    silent: SilentServer, method: str, query: dict[str, str] | None, line: str
) -> None:
    silent.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    kube = Kube.of(Configuration(host=silent.url))
    async with within("an answer"):
        await kube.request(method, "/api/v1/pods/a", {}, query)
    await kube.close()
    assert silent.heard.startswith(line)
    assert f"User-Agent: {user_agent('operator')}\r\n" in silent.heard


async def test_requests_that_succeed_are_counted_too(silent: SilentServer) -> None:
    silent.answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
    kube, told = Kube.of(Configuration(host=silent.url)), list[tuple[str, int]]()
    kube.transport.ended = lambda verb, code: told.append((verb, code))
    async with within("an answer"):
        await kube.request("POST", "/api/v1/namespaces/ml/pods", {})
    await kube.close()
    assert told == [("create", 201)]
