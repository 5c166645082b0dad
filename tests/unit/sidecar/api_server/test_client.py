# SPDX-License-Identifier: Apache-2.0
"""The sidecar's calls over real HTTP to an API server that falls silent: each gives up, and says what it waited for."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticjob.kube.errors import Denied, Unavailable
from elasticjob_http.transport import within as in_time
from elasticjob_sidecar.api_server import client as calls
from elasticjob_sidecar.api_server.client import KubeApi, connected
from elasticjob_sidecar.api_server.in_cluster import InCluster
from support.silent_server import SilentServer
from support.waiting import DEADLINE, within

EVENT = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}\n'


@pytest.fixture
async def silent() -> AsyncIterator[SilentServer]:
    async with SilentServer() as server:
        yield server


@dataclass(frozen=True)
class Plain(InCluster):
    """An API server without TLS, on this machine."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


@pytest.fixture
async def kube(silent: SilentServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeApi]:
    monkeypatch.setattr(calls, "REQUEST_SECONDS", 0.1)
    token = tmp_path / "token"
    token.write_text("secret")
    made = KubeApi("default", connected(Plain("127.0.0.1", silent.port, token)))
    yield made
    await made.close()


@pytest.fixture
def patient(kube: KubeApi, monkeypatch: pytest.MonkeyPatch) -> KubeApi:
    """For an answer that comes, also on a busy machine."""
    monkeypatch.setattr(calls, "REQUEST_SECONDS", DEADLINE)
    return kube


async def watched(kube: KubeApi, seconds: int = 0) -> None:
    """Watch until the watch ends or fails."""
    async with within("the end of a watch"):
        async for event in kube.watch_job("job", "7", seconds, lambda: None):
            assert event["type"] == "BOOKMARK"


async def test_a_request_that_is_not_answered(kube: KubeApi) -> None:
    async with within("the end of a request that is not answered"):
        with pytest.raises(Unavailable, match="the API server did not answer within"):
            await kube.get_worker("job-0-0")


async def test_a_watch_that_is_not_opened(kube: KubeApi) -> None:
    with pytest.raises(Unavailable, match="the API server did not answer within"):
        await watched(kube)


async def test_a_watch_that_falls_silent(kube: KubeApi, silent: SilentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "REQUEST_SECONDS", 3.0)  # one deadline for its beginning and its end
    silent.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(EVENT), EVENT)
    with pytest.raises(Unavailable, match="the API server did not end a watch of 0 s in time"):
        await watched(kube)


async def test_an_event_as_large_as_an_object_can_be(patient: KubeApi, silent: SilentServer) -> None:
    event = b'{"type": "BOOKMARK", "object": {"spec": "%s"}}\n' % (b"x" * 1_500_000)
    silent.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(event), event)
    await watched(patient)


async def test_a_refusal_of_a_watch_whose_reason_does_not_come(kube: KubeApi, silent: SilentServer) -> None:
    silent.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{"
    with pytest.raises(Unavailable, match="the API server did not answer within"):
        await watched(kube, seconds=3600)


async def test_a_refusal_of_a_watch_keeps_its_reason(patient: KubeApi, silent: SilentServer) -> None:
    silent.answer = b'HTTP/1.1 403 Forbidden\r\nContent-Length: 23\r\n\r\n{"message":"no rights"}'
    with pytest.raises(Denied, match="the API server answered 403: no rights"):
        await watched(patient)


async def test_an_answer_that_comes_with_a_cancellation_does_not_undo_it() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(in_time(5, answer))
    await asyncio.sleep(0)
    answer.set_result(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
