"""What the operator waits for has an end: requests, the lease, the watches, its own stop. In real, short seconds."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from elasticjob_operator import app, health
from elasticjob_operator.cluster import handlers, leader
from elasticjob_operator.cluster.cache import Cache
from elasticjob_operator.cluster.client import CUSTOM, Kube, NotFound
from elasticjob_operator.cluster.leader import Leadership, StillWorking, lead
from elasticjob_operator.cluster.workqueue import WorkQueue
from elasticjob_operator.options import parse
from support.silent_server import SilentServer

Object = dict[str, Any]
DEADLINE = 10.0


@pytest.fixture
async def silent() -> AsyncIterator[SilentServer]:
    async with SilentServer() as server:
        yield server


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
async def test_a_request_that_is_not_answered_is_named(silent: SilentServer, answer: bytes) -> None:
    silent.answer = answer
    kube = Kube(ApiClient(Configuration(host=silent.url)))
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(TimeoutError, match=r"^GET /api/v1/pods: no answer from the API server within 0\.1 s$"):
            await kube.request("GET", "/api/v1/pods", seconds=0.1)
    await kube.close()


class Leases:
    """A Lease that nobody else holds; `stuck` are the kinds of calls that are not answered."""

    def __init__(self) -> None:
        self.lease_: Object = {}
        self.stuck: set[str] = set()
        self.fails: list[Exception] = []
        self.released = False

    async def lease(self, namespace: str, name: str, seconds: float) -> Object:
        await self._called("read", seconds)
        if not self.lease_:
            raise NotFound(404, "no lease")
        return self.lease_

    async def write_lease(self, lease: Object, seconds: float) -> Object:
        await self._called("write", seconds)
        self.released = not lease["spec"]["holderIdentity"]
        version = int(lease["metadata"].get("resourceVersion", 0)) + 1
        self.lease_ = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(version)}}
        return self.lease_

    async def close(self) -> None: ...

    async def _called(self, what: str, seconds: float) -> None:
        if self.fails:
            raise self.fails.pop(0)
        if what in self.stuck:
            await asyncio.sleep(seconds)
            raise TimeoutError


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    monkeypatch.setattr(leader, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(leader, "REQUEST_SECONDS", 5.0)
    monkeypatch.setattr(leader, "LOST_AFTER_SECONDS", 0.2)
    return Leases()


def leadership(leases: Leases) -> Leadership:
    return Leadership(leases, "ops", "operator", "one")  # type: ignore[arg-type]


async def test_a_renewal_that_is_not_answered_ends_with_the_lease(
    leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    ours = leadership(leases)
    await ours.acquire()
    leases.stuck.add("write")
    began = time.monotonic()
    await ours.hold()
    assert time.monotonic() - began < 1  # and not after one request more, when another leads
    assert "the lease was not renewed: TimeoutError" in caplog.text


async def test_an_answer_cut_off_is_no_reason_to_stop_standing_by(leases: Leases) -> None:
    leases.fails = [aiohttp.ServerDisconnectedError(), OSError("refused"), TimeoutError("no answer")]
    ours = leadership(leases)
    async with asyncio.timeout(DEADLINE):
        await ours.acquire()
    assert ours.term == 1


async def test_work_that_does_not_stop_is_left_behind(
    leases: Leases, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader, "STOP_SECONDS", 0.1)
    freed = asyncio.Event()

    async def stubborn() -> None:
        leases.stuck.add("write")
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(DEADLINE):
        with pytest.raises(StillWorking):
            await lead(leadership(leases), stubborn)
    assert "did not stop within 0.1 s" in caplog.text
    assert not leases.released
    freed.set()


async def test_who_has_lost_the_lease_stands_by_again(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "DURATION_SECONDS", 0.1)
    monkeypatch.setattr(app, "AGAIN_SECONDS", 0.01)
    terms: list[tuple[Leadership, asyncio.Task[None]]] = []

    async def work(_: object, __: object, led: Leadership) -> None:
        this = asyncio.current_task()
        assert this is not None
        terms.append((led, this))
        await asyncio.Event().wait()

    async def connect() -> Leases:
        return leases

    monkeypatch.setattr(app, "_work", work)
    monkeypatch.setattr(Kube, "connect", connect)
    options = parse(["--sidecar-image=x", "--lease-namespace=ops", "--health-port=18399"], {"POD_NAME": "one"})
    running = asyncio.create_task(app.run(options))
    await until(lambda: len(terms) == 1)
    leases.stuck.add("write")
    (first, working), *_ = terms
    await until(working.cancelled)
    assert not running.done()
    leases.stuck.clear()
    await until(lambda: len(terms) == 2)
    assert [led.term for led, _ in terms] == [1, 2]
    assert terms[1][0] is not first
    running.cancel()
    assert await running == 0
    assert leases.released


async def test_health_and_metrics() -> None:
    server = await health.serve(0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http:
        for path in ("/healthz", "/readyz"):
            async with http.get(path) as response:
                assert (response.status, await response.text()) == (200, "ok\n")
        async with http.get("/metrics") as response:
            assert "elasticjob_leader" in await response.text()
    server.close()


class Api:
    """The API server as far as kopf asks: what there is, empty lists, and watches that say nothing."""

    def __init__(self) -> None:
        self.watches: Counter[str] = Counter()
        self.seconds: set[str] = set()
        self.kinds = ["elasticjobs", "elasticworkers"]
        self.url = ""

    def app(self) -> web.Application:
        made = web.Application()
        made.router.add_get("/{path:.*}", self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        known = {
            "/api": {"versions": ["v1"]},
            "/api/v1": resources("pods", "namespaces"),
            "/apis": {"groups": [group("elasticjob.io", "v1alpha1")]},
            CUSTOM: resources(*self.kinds),
        }
        if request.path == CUSTOM and not self.kinds:
            return web.json_response({"message": "not found"}, status=404)
        if "watch" not in request.query:
            return web.json_response(known.get(request.path, {"items": [], "metadata": {"resourceVersion": "5"}}))
        self.watches[request.path] += 1
        self.seconds.add(request.query["timeoutSeconds"])
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(3600)
        return response


def resources(*names: str) -> Object:
    verbs = ["get", "list", "watch"]
    return {
        "resources": [
            {"name": name, "singularName": name[:-1], "kind": name[:-1], "namespaced": True, "verbs": verbs}
            for name in names
        ]
    }


def group(name: str, version: str) -> Object:
    served = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Api]:
    made = Api()
    runner = web.AppRunner(made.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = tmp_path / "kubeconfig"
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "here", "cluster": {"server": made.url}}],
                "users": [{"name": "me", "user": {"token": "secret"}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                "current-context": "here",
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    yield made
    await runner.cleanup()


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def test_a_watch_that_falls_silent_is_opened_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "SILENT_SECONDS", 0.2)
    registry = kopf.OperatorRegistry()

    async def work(_: object) -> None: ...

    handlers.register(registry, Cache(), WorkQueue(work))
    stop = threading.Event()
    options = {"settings": handlers.settings(), "standalone": True, "clusterwide": True, "stop_flag": stop}
    # in a loop of its own: at its end kopf waits for all tasks of the loop
    watching = asyncio.create_task(asyncio.to_thread(kopf.run, registry=registry, **options))
    try:
        await until(lambda: len(api.watches) == 3 and min(api.watches.values()) >= 2)
    finally:
        stop.set()
        await watching
    assert api.seconds == {"10"}


async def test_kopf_ends_and_begins_again_in_one_process(api: Api) -> None:
    async def work(_: object) -> None: ...

    before = asyncio.all_tasks()
    for _ in range(2):
        registry, settings = kopf.OperatorRegistry(), handlers.settings()
        assert settings.process.ultimate_exiting_timeout is None  # or kopf would kill this process, too late for pytest
        handlers.register(registry, Cache(), WorkQueue(work))
        watching = asyncio.create_task(
            kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True)
        )
        await until(lambda: len(api.watches) == 3)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        ours = {task.get_name() for task in asyncio.all_tasks() - before if "RequestHandler" not in str(task)}
        assert ours == set()
        api.watches.clear()


async def test_crds_that_come_late_are_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "CRDS_SECONDS", 0.05)
    kube = Kube(ApiClient(Configuration(host=api.url)))
    api.kinds = []
    waiting = asyncio.create_task(app.until_served(kube))
    await until(lambda: caplog.messages)
    assert caplog.messages[0] == "the API server does not serve elasticjobs and elasticworkers: waiting for the CRDs"
    api.kinds = ["elasticjobs"]
    await until(lambda: "the API server does not serve elasticworkers: waiting for the CRDs" in caplog.messages)
    api.kinds = ["elasticjobs", "elasticworkers"]
    async with asyncio.timeout(DEADLINE):
        await waiting
    await kube.close()
