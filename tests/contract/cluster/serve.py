# SPDX-License-Identifier: Apache-2.0
"""What a caller may tell the cluster and ask it: `POST /<command>` with arguments as JSON, answered with JSON.

create(spec)                 an ElasticJob; returns its name as soon as `view` shows it
patch(job, spec)             changes of its spec
delete(job)                  with all that belongs to it
delete_pod(pod)
exited(pod, code)            the trainer's container ended
kill_sidecar(pod)
freeze(pod), thaw(pod)       the sidecar stands still, and goes on
api_away(job, seconds)       no sidecar of this job reaches the API server; returns when it is back
kubeconfig()                 the path of an administrator's
view(job, after, seconds)    the job, its pods and records as soon as anything of it is newer than version `after`
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import web

from contract.cluster.api import CORE, JOBS, WORKERS, WatchingClient
from contract.cluster.kubelet import Kubelet
from contract.cluster.pod import JOB
from contract.cluster.proxy import Proxy
from support.api_client import ApiError, Object

SEEN_SECONDS = 100.0
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
TEMPLATE: Object = {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}


class Commands:
    """The objects as they were last seen, and the commands."""

    def __init__(self, api: WatchingClient, server: tuple[str, int], kubeconfig: Path) -> None:
        """`server`: host and port of the API server."""
        self._api, self._server, self._kubeconfig = api, server, kubeconfig
        self._proxies: dict[str, Proxy] = {}  # by job
        self._jobs: dict[str, Object] = {}
        self._workers: dict[str, Object] = {}
        self._version = self._of_all = 1
        self._versions: dict[str, int] = {}  # by job
        self._changed = asyncio.Event()
        self._names = (f"job{number}" for number in count(1))
        self.kubelet: Kubelet
        self.broken = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/{command}", self._serve)])
        return app

    def changed(self, job: str | None = None) -> None:
        """Something of this job, or of all, has changed."""
        self._version += 1
        if job is None:
            self._of_all = self._version
        else:
            self._versions[job] = self._version
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def job_seen(self, event: str, body: Object) -> None:
        self._note(self._jobs, body["metadata"]["name"], event, body)

    def worker_seen(self, event: str, body: Object) -> None:
        self._note(self._workers, body["metadata"]["labels"][JOB], event, body)

    def _note(self, objects: dict[str, Object], job: str, event: str, body: Object) -> None:
        if event == "DELETED":
            objects.pop(body["metadata"]["name"], None)
        else:
            objects[body["metadata"]["name"]] = body
        self.changed(job)

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for what a watch has to show. Raises TimeoutError after SEEN_SECONDS."""
        try:
            async with asyncio.timeout(SEEN_SECONDS):
                while not condition():
                    await self._changed.wait()
        except TimeoutError as error:
            raise TimeoutError(what) from error

    def stop(self) -> None:
        for proxy in self._proxies.values():
            proxy.stop()

    def api_port(self, job: str) -> int:
        """Where the job's sidecars find the API server."""
        return self._proxies[job].port

    async def _serve(self, request: web.Request) -> web.Response:
        command = getattr(self, "do_" + request.match_info["command"])
        try:
            if self.broken or self.kubelet.broken:
                raise RuntimeError(f"the cluster is broken: {self.broken or self.kubelet.broken!r}")  # noqa: TRY301
            return web.json_response({"result": await command(**await request.json())})
        except TimeoutError as error:
            return web.json_response({"late": str(error) or "an answer of the API server"})
        except (ApiError, RuntimeError, KeyError) as error:
            return web.json_response({"error": str(error) or repr(error)})

    async def do_create(self, spec: Object) -> str:
        name = next(self._names)
        self._proxies[name] = Proxy(*self._server)
        await self._proxies[name].start()
        body = {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}}
        await self._api.call("POST", JOBS, body | {"spec": {"template": TEMPLATE} | spec})
        await self._until(f"{name} in the watch", lambda: name in self._jobs)
        return name

    async def do_patch(self, job: str, spec: Object) -> None:
        await self._api.patch(f"{JOBS}/{job}", {"spec": spec})

    async def do_delete(self, job: str) -> None:
        await self._api.call("DELETE", f"{JOBS}/{job}")
        self.kubelet.abandon(job)
        for pod in [pod for pod in self.kubelet.pods.values() if pod.job == job]:
            with contextlib.suppress(ApiError):
                await self._api.call("DELETE", f"{CORE}/pods/{pod.name}")
        await self._until(f"{job} without pods", lambda: all(pod.job != job for pod in self.kubelet.pods.values()))
        for path in (f"{CORE}/serviceaccounts", f"{RBAC}/rolebindings", f"{RBAC}/roles"):
            with contextlib.suppress(ApiError):
                await self._api.call("DELETE", f"{path}/{job}-worker")
        for name in [name for name, body in self._workers.items() if body["spec"]["job"] == job]:
            with contextlib.suppress(ApiError):
                await self._api.call("DELETE", f"{WORKERS}/{name}")
        self._proxies.pop(job).stop()

    async def do_delete_pod(self, pod: str) -> None:
        await self._api.call("DELETE", f"{CORE}/pods/{pod}")

    async def do_exited(self, pod: str, code: int) -> None:
        await self.kubelet.exited(pod, code)

    async def do_kill_sidecar(self, pod: str) -> None:
        self.kubelet.kill_sidecar(pod)

    async def do_freeze(self, pod: str) -> None:
        self.kubelet.signal_sidecar(pod, signal.SIGSTOP)

    async def do_thaw(self, pod: str) -> None:
        self.kubelet.signal_sidecar(pod, signal.SIGCONT)

    async def do_api_away(self, job: str, seconds: float) -> None:
        await self._proxies[job].away(seconds)

    async def do_kubeconfig(self) -> str:
        return str(self._kubeconfig)

    async def do_view(self, job: str, after: int, seconds: float) -> Object:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while max(self._of_all, self._versions.get(job, 0)) <= after:
                    await self._changed.wait()
        pods = [pod.view() for pod in self.kubelet.pods.values() if pod.job == job]
        workers: dict[str, Any] = {
            name: body for name, body in self._workers.items() if body["metadata"]["labels"][JOB] == job
        }
        return {"version": self._version, "job": self._jobs.get(job), "pods": pods, "workers": workers}
