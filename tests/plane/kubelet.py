# SPDX-License-Identifier: Apache-2.0
"""Stand-in kubelets of a cluster without machines: nodes that are objects, and pods whose containers are processes.

A node may stand still, or lose its power, with all that runs on it. Logs are served as a kubelet serves them, so that
`kubectl logs` works; `kubectl exec` does not.
"""

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from plane.pod_run import PodRun
from plane.sandbox import Line
from support.api_client import MERGE, ApiClient, ApiError, Object
from support.kubelet import stamp
from support.pod_life import new_credentials
from support.ports import loopback_addresses

LEASE_SECONDS, RENEW_SECONDS = 40, 2.0
STATUS_SECONDS = 10.0  # between two tellings of a node's status, of which nothing changes
PROBE_TIMEOUT_SECONDS = 5.0
WATCH_SECONDS = 300
AGAIN_SECONDS = 0.2  # until the API server is asked again
JSON = "application/json"
BOUND = "spec.nodeName!%3D"  # to a node
FOLLOW_SECONDS = 0.1
ROOM = {"cpu": "8", "memory": "16Gi", "pods": "110"}

log = logging.getLogger(__name__)


class Node:
    """`awake` is not set while it stands still or has no power."""

    def __init__(self, kubelet: "Kubelet", name: str) -> None:
        self.kubelet, self.name = kubelet, name
        self.awake = asyncio.Event()
        self.awake.set()
        self._is_back = asyncio.Event()
        self.pods: dict[str, PodRun] = {}  # by uid

    def pause(self) -> None:
        """All of it stands still."""
        self.awake.clear()
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._is_back.set()
        self.awake.set()

    def power_off(self) -> None:
        """Its processes are gone, and nobody says so before it has power again: `resume`."""
        self.awake.clear()
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for pod in self.pods.values():
            pod.signal(number)

    async def register(self, labels: Mapping[str, str], taints: Sequence[Object]) -> None:
        meta = {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **labels}}
        await self.kubelet.call("POST", "/api/v1/nodes", {"metadata": meta, "spec": {"taints": list(taints)}})
        await self.tell()

    async def tell(self) -> None:
        """Its status."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": stamp(time.time())}
        status = {
            "capacity": ROOM,
            "allocatable": ROOM,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": self.name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet.port}},
        }
        await self.kubelet.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, MERGE)

    async def renew(self) -> None:
        """Its Lease and its status, for ever; at once when it is back."""
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS}
        await self.kubelet.call("POST", leases, {"metadata": {"name": self.name}, "spec": spec})
        told, often_until = time.monotonic(), 0.0
        while True:
            await self.awake.wait()
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            await self.kubelet.call("PATCH", f"{leases}/{self.name}", {"spec": {"renewTime": now}}, MERGE)
            if self._is_back.is_set():  # its status is in whole seconds: more than one may have to come
                self._is_back.clear()
                often_until = time.monotonic() + STATUS_SECONDS
            if time.monotonic() < often_until or time.monotonic() > told + STATUS_SECONDS:
                await self.tell()
                told = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._is_back.wait()


class Kubelet:
    """Of all nodes. `serve` until it is cancelled; `broken` says what ended it."""

    def __init__(self, server: str, authority: Path, token: str, work: Path) -> None:
        self.authority, self.work = authority, work
        self.host = work / "host"  # what a path of a node is here
        self.api_port = urlsplit(server).port or 443
        self.api = ApiClient(server, ssl.create_default_context(cafile=authority), token)
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT_SECONDS))
        self.nodes: dict[str, Node] = {}
        self.port = 0
        self.broken: BaseException | None = None
        self._addresses = loopback_addresses()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self.host.mkdir(parents=True)
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls()).start()
        self.port = self._runner.addresses[0][1]
        self._do(self._follow_pods())

    async def add(self, name: str, labels: Mapping[str, str], taints: Sequence[Object] = ()) -> Node:
        node = self.nodes[name] = Node(self, name)
        await node.register(labels, taints)
        self._do(node.renew())
        return node

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()
        await self.http.close()
        await self.api.close()

    def runs(self) -> list[PodRun]:
        return [run for node in list(self.nodes.values()) for run in list(node.pods.values())]

    def run_of(self, namespace: str, name: str) -> PodRun | None:
        found = [run for run in self.runs() if run.name == name and run.body["metadata"]["namespace"] == namespace]
        return found[-1] if found else None

    # --- pods

    async def call(self, method: str, path: str, body: Object | None = None, kind: str = JSON) -> Object:
        """Again and again while the API server is away. Raises ApiError for its no."""
        while True:
            try:
                return await self.api.call(method, path, body, kind)
            except (aiohttp.ClientError, TimeoutError):
                pass
            except ApiError as error:
                if error.status != 429 and error.status < 500:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    async def _follow_pods(self) -> None:
        """List and watch, and begin anew where the watch has ended or its history is forgotten."""
        while True:
            listing = await self.call("GET", f"/api/v1/pods?fieldSelector={BOUND}")
            there = {item["metadata"]["uid"] for item in listing["items"]}
            for item in listing["items"]:
                self._see("ADDED", item)
            for run in self.runs():
                if run.uid not in there:
                    run.gone()
            version = listing["metadata"]["resourceVersion"]
            query = {"fieldSelector": "spec.nodeName!=", "resourceVersion": version}
            with suppress(ApiError, aiohttp.ClientError, TimeoutError):
                async for event in self.api.watch("/api/v1/pods", seconds=WATCH_SECONDS, **query):
                    self._see(event["type"], event["object"])
            await asyncio.sleep(AGAIN_SECONDS)

    def _see(self, event: str, body: Object) -> None:
        node, uid = self.nodes.get(body["spec"]["nodeName"]), body["metadata"]["uid"]
        if node is None:
            return
        run = node.pods.get(uid)
        if event == "DELETED":
            if run is not None:
                run.gone()
            return
        if run is None:
            run = node.pods[uid] = PodRun(node, body, next(self._addresses))
            self._do(self._run(run))
        run.look(body)

    async def _run(self, run: PodRun) -> None:
        try:
            await run.run()
        except Exception as error:
            self._break(error)
            await run.end_broken()  # begun anew it would break again, in a later test
        finally:
            run.node.pods.pop(run.uid, None)

    def _do(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        log.error("a kubelet broke", exc_info=error)
        self.broken = error

    # --- logs

    def _app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", self._logs)])
        return app

    def _tls(self) -> ssl.SSLContext:
        made, file = new_credentials(), self.work / "kubelet.pem"
        file.touch(mode=0o600)
        file.write_text(made.certificate + made.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        asked, query = request.match_info, request.query
        run = self.run_of(asked["namespace"], asked["pod"])
        lives = run.logs.get(asked["container"], []) if run else []
        wanted = lives[:-1] if query.get("previous") == "true" else lives
        if run is None or not wanted:
            raise web.HTTPNotFound(text=f"there is no log of {asked['pod']}/{asked['container']}")
        await run.node.awake.wait()
        tail, stamps = int(query.get("tailLines", -1)), query.get("timestamps") == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        found = wanted[-1]
        told = len(found.lines)
        await response.write(_text(found.lines[-tail:] if tail >= 0 else found.lines, stamps))
        while query.get("follow") == "true":
            over = run.uid not in run.node.pods or run.running.get(asked["container"]) is None
            new = found.lines[told:]
            await response.write(_text(new, stamps))
            told += len(new)
            if over or run.logs[asked["container"]][-1] is not found:
                break
            await asyncio.sleep(FOLLOW_SECONDS)
        return response


def _text(lines: Sequence[Line], stamps: bool) -> bytes:
    told = (f"{at.isoformat().replace('+00:00', 'Z')} {line}" if stamps else line for at, line in lines)
    return "".join(f"{line}\n" for line in told).encode()
