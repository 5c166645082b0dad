# SPDX-License-Identifier: Apache-2.0
"""The sidecar's calls as an API server sees them: where they go, whose they are, and what comes of each answer."""

import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from elasticjob.kube.errors import Conflict, Denied, Gone, NotFound, Unavailable, Untrusted
from elasticjob.kube.names import user_agent
from elasticjob_sidecar.api_server import in_cluster
from elasticjob_sidecar.api_server.client import KubeApi, connected
from elasticjob_sidecar.api_server.in_cluster import InCluster
from elasticjob_sidecar.config import ConfigError
from support.canned_server import ADDRESS, CannedServer, write_authority

EVENT = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}\n'
OWNED = {"fieldManager": "elasticjob-sidecar"}
WORKERS = "/apis/elasticjob.io/v1alpha1/namespaces/here/elasticworkers"
JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/here/elasticjobs"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[CannedServer]:
    async with CannedServer().serve(tmp_path) as serving:
        yield serving


@pytest.fixture
def place(server: CannedServer, token: Path) -> InCluster:
    return InCluster(ADDRESS, server.port, token, token.with_name("ca.crt"))


@pytest.fixture
async def kube(place: InCluster) -> AsyncIterator[KubeApi]:
    made = KubeApi("here", connected(place))
    yield made
    await made.close()


def replace_token(token: Path, by: str | None = "second") -> None:
    """As the kubelet does."""
    token.unlink()
    if by is not None:
        token.write_text(by)


async def watched(kube: KubeApi) -> list[str]:
    """The events' types, until the watch ends or fails."""
    return [event["type"] async for event in kube.watch_job("job", "7", 33, lambda: None)]


async def test_the_calls_as_the_api_server_sees_them(kube: KubeApi, server: CannedServer) -> None:
    body = {"spec": {"node": "nœud"}}
    await kube.get_worker("job-0")
    await kube.create_worker(body)
    await kube.replace_worker("job-0", body)
    await kube.patch_worker("job-0", body)
    await kube.patch_worker_status("job-0", body)
    await kube.list_workers("job", [3, 5])
    await kube.list_job("job")
    said = [(one.method, one.path, one.query, one.headers.get("Content-Type")) for one in server.asked]
    assert said == [
        ("GET", f"{WORKERS}/job-0", {}, None),
        ("POST", WORKERS, OWNED, "application/json"),
        ("PUT", f"{WORKERS}/job-0", OWNED, "application/json"),
        ("PATCH", f"{WORKERS}/job-0", OWNED, "application/merge-patch+json"),
        ("PATCH", f"{WORKERS}/job-0/status", OWNED, "application/merge-patch+json"),
        ("GET", WORKERS, {"labelSelector": "elasticjob.io/job=job,elasticjob.io/index in (3,5)"}, None),
        ("GET", JOBS, {"fieldSelector": "metadata.name=job"}, None),
    ]
    assert [json.loads(one.body) for one in server.asked[1:4]] == [body] * 3
    assert {one.headers["Authorization"] for one in server.asked} == {"Bearer first"}
    assert {one.headers["User-Agent"] for one in server.asked} == {user_agent("sidecar")}


async def test_a_watch_as_the_api_server_sees_it(kube: KubeApi, server: CannedServer) -> None:
    server.answers.append(web.Response(body=EVENT + EVENT))
    opened: list[bool] = []
    events = [event async for event in kube.watch_job("job", "7", 33, lambda: opened.append(True))]
    assert [event["type"] for event in events] == ["BOOKMARK", "BOOKMARK"]
    assert opened == [True]
    assert server.asked[0].query == {
        "fieldSelector": "metadata.name=job",
        "resourceVersion": "7",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "33",
    }


async def test_one_connection_serves_all_requests(kube: KubeApi, server: CannedServer) -> None:
    for _ in range(3):
        await kube.get_worker("job-0")
    assert len({one.connection for one in server.asked}) == 1


@pytest.mark.parametrize(
    ("status", "failure"),
    [(400, Denied), (401, Denied), (403, Denied), (404, NotFound), (409, Conflict), (410, Gone), (422, Denied)]
    + [(status, Unavailable) for status in (302, 429, 500, 503)],
)
async def test_an_answer_that_is_a_failure(kube: KubeApi, server: CannedServer, status: int, failure: type) -> None:
    server.answers.append(web.json_response({"message": "for a reason"}, status=status, headers={"Location": "/"}))
    with pytest.raises(failure, match=f"the API server answered {status}: for a reason") as raised:
        await kube.patch_worker("job-0", {})
    assert raised.value.status == status
    assert len(server.asked) == 1


async def test_a_failure_in_other_words_than_json(kube: KubeApi, server: CannedServer) -> None:
    server.answers.append(web.Response(status=502, text="a proxy says no"))
    with pytest.raises(Unavailable, match="the API server answered 502: a proxy says no"):
        await kube.get_worker("job-0")


async def test_an_answer_that_is_no_json(kube: KubeApi, server: CannedServer) -> None:
    server.answers.append(web.Response(text="<html>"))
    with pytest.raises(Unavailable, match="the API server does not answer: "):
        await kube.get_worker("job-0")


async def test_an_event_that_is_a_failure_comes_as_others(kube: KubeApi, server: CannedServer) -> None:
    event = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    server.answers.append(web.Response(body=json.dumps(event).encode() + b"\n"))
    assert [one async for one in kube.watch_job("job", "7", 33, lambda: None)] == [event]


async def test_an_api_server_of_another_authority(server: CannedServer, place: InCluster, tmp_path: Path) -> None:
    write_authority(tmp_path / "other.crt", tmp_path / "pair of the other")
    kube = KubeApi("here", connected(replace(place, authority=tmp_path / "other.crt")))
    with pytest.raises(Untrusted, match="its certificate is refused: unable to get local issuer certificate"):
        await kube.get_worker("job-0")
    await kube.close()
    assert server.asked == []


async def test_a_new_token_is_read_after_a_minute(
    kube: KubeApi, server: CannedServer, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    replace_token(token)
    for seconds in (0, in_cluster.TOKEN_SECONDS - 1, in_cluster.TOKEN_SECONDS + 1):
        monkeypatch.setattr(in_cluster, "now", lambda at=began + seconds: at)
        await kube.get_worker("job-0")
    assert [one.headers["Authorization"] for one in server.asked] == ["Bearer first", "Bearer first", "Bearer second"]


@pytest.mark.parametrize("watches", [False, True])
async def test_a_new_token_is_read_after_a_refusal(
    kube: KubeApi, server: CannedServer, token: Path, watches: bool
) -> None:
    replace_token(token)
    server.answers.append(web.json_response({"message": "Unauthorized"}, status=401))
    with pytest.raises(Denied):
        await (watched(kube) if watches else kube.get_worker("job-0"))
    await kube.get_worker("job-0")
    assert [one.headers["Authorization"] for one in server.asked] == ["Bearer first", "Bearer second"]


async def test_a_token_that_cannot_be_read_anew_leaves_the_last_one(
    kube: KubeApi, server: CannedServer, token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replace_token(token, None)
    server.answers.append(web.json_response({"message": "Unauthorized"}, status=401))
    with pytest.raises(Denied):
        await kube.get_worker("job-0")
    await kube.get_worker("job-0")
    assert server.asked[1].headers["Authorization"] == "Bearer first"
    assert f"{token} cannot be used: No such file or directory" in caplog.text


SERVICE = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("host", "url"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_where_the_api_server_is(host: str, url: str) -> None:
    assert InCluster.load(SERVICE | {"KUBERNETES_SERVICE_HOST": host}).url == url


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({}, "KUBERNETES_SERVICE_HOST is not set"),
        ({**SERVICE, "KUBERNETES_SERVICE_PORT": ""}, "KUBERNETES_SERVICE_PORT is not set"),
        ({**SERVICE, "KUBERNETES_SERVICE_PORT": "https"}, "KUBERNETES_SERVICE_PORT is 'https', not a number"),
    ],
)
def test_a_container_outside_of_kubernetes(env: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"no access to the Kubernetes API ({why}): the sidecar is meant")):
        InCluster.load(env)


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("token", None, "No such file or directory"),
        ("token", "\n", "it is empty"),
        ("ca.crt", None, "No such file or directory"),
        ("ca.crt", "none", "[X509: NO_CERTIFICATE_OR_CRL_FOUND]"),
    ],
)
async def test_a_container_without_a_service_account(
    place: InCluster, tmp_path: Path, file: str, content: str | None, why: str
) -> None:
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(ConfigError, match=re.escape(f"({tmp_path / file} cannot be used: {why}")):
        connected(place)
