# SPDX-License-Identifier: Apache-2.0
"""One pod on its node, from its binding to its removal: drives `support.kubelet` with real processes.

What the pod's status says, and when a container starts again, is decided there; here things are done and waited for.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp

from elasticjob.kube.errors import Conflict, NotFound
from plane.sandbox import CannotStart, Log, LogFile, Running, Sandbox
from support import kubelet as rules
from support import lateness, pod_life
from support.api_client import ApiError, Object

if TYPE_CHECKING:
    from plane.kubelet import Node

TOKEN_SECONDS = 3600
LOOK_SECONDS = 0.2  # between two looks for what is missing
REFUSALS = (403, 404, 409)  # a namespace that is being deleted; no such object; another pod of this name
PROBE_SECONDS = 1.0  # between two probes of what is ready
LEAST_SIDECAR_SECONDS = 2.0  # what the kubelet gives a container whose pod's grace is over
GRACE_SECONDS = 30.0
LOG_LINES = 80  # of the kubelet, for a termination message
IMAGES = ("elasticjob/", "none", "train:")  # how the names of those begin that can be had
STRATEGIC = "application/strategic-merge-patch+json"
T = TypeVar("T")


class PodRun:
    """`look` is told each state of the pod in the API. While its node stands still nothing is done or written."""

    def __init__(self, node: "Node", body: Object, address: str) -> None:
        self.node, self.body = node, body
        meta = body["metadata"]
        self.name, self.uid = meta["name"], meta["uid"]
        self.core = f"/api/v1/namespaces/{meta['namespace']}"
        kubelet = node.kubelet
        self.sandbox = Sandbox(body, address, kubelet.work / self.uid, kubelet.host, kubelet.api_port)
        self.pod = rules.Pod.of(body["spec"], address, time.time())
        self.sidecars = rules.sidecars(body["spec"])
        self.running: dict[str, Running] = {}
        self.logs: dict[str, list[Log | LogFile]] = {}
        self._stopping = asyncio.Event()  # it is to go
        self._late = asyncio.Event()  # its deadline has passed
        self._has_deadline = False
        self._changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[Any]] = {}  # but for those of containers that are to end
        self._every: list[asyncio.Task[Any]] = []

    def look(self, body: Object) -> None:
        """The pod is another in the API."""
        self.body = body
        if "activeDeadlineSeconds" in body["spec"] and not self._has_deadline:
            self._has_deadline = True
            asyncio.get_running_loop().call_later(body["spec"]["activeDeadlineSeconds"], self._late.set)
        if "deletionTimestamp" in body["metadata"]:
            self._stopping.set()

    def gone(self) -> None:
        """The pod is no more in the API."""
        self.body["metadata"]["deletionGracePeriodSeconds"] = 0
        self._stopping.set()

    async def run(self) -> None:
        """Raises whatever breaks the kubelet itself."""
        containers, stopping = self._do("containers", self._contain()), self._do("stopping", self._stopping.wait())
        telling = self._do("status", self._tell())
        try:
            await self._first(containers, stopping, telling, self._do("deadline", self._late.wait()))
            await self.node.awake.wait()
            if not self._stopping.is_set():
                await self._end_by_itself()
                await self._first(stopping, telling)
            await self.node.awake.wait()
            grace = float(self.body["metadata"].get("deletionGracePeriodSeconds", GRACE_SECONDS))
            await self._end(grace)
            await self._write()
            await self._remove()
        finally:
            for task in self._every:
                task.cancel()
            await asyncio.gather(*self._every, return_exceptions=True)
            self.signal(signal.SIGKILL)
            await asyncio.gather(*(one.wait() for one in self.running.values()), return_exceptions=True)
            self.sandbox.remove()

    async def end_broken(self) -> None:
        """After `run` has raised: wait until the pod is deleted, and remove it."""
        await self._stopping.wait()
        await self._remove()

    def signal(self, number: int) -> None:
        """To every process of the pod."""
        for name, one in self.running.items():
            one.signal(number)
            self.sandbox.signal(name, number)

    # --- its containers

    async def _contain(self) -> None:
        """Start all, in the order of the spec; return when all that are to end have ended."""
        await self._prepare()
        for one in self.body["spec"].get("initContainers", ()):
            keeping = self._do(one["name"], self._keep(one))
            if one["name"] not in self.sidecars:
                await self._all([keeping])
            while not self.pod.containers[one["name"]].starts:
                await asyncio.wait([keeping], timeout=LOOK_SECONDS)
                if keeping.done():
                    keeping.result()
        await self._all([self._do(one["name"], self._keep(one)) for one in self.body["spec"]["containers"]])

    async def _prepare(self) -> None:
        kubelet, volumes = self.node.kubelet, self.body["spec"].get("volumes", ())
        names = [one["configMap"]["name"] for one in volumes if "configMap" in one]
        maps = {name: (await self._mounted(partial(self._config_map, name))).get("data") or {} for name in names}
        token = await self._mounted(partial(pod_life.new_token, kubelet, self.body, TOKEN_SECONDS))
        self.sandbox.prepare(maps, token, kubelet.authority.read_text())

    async def _config_map(self, name: str) -> Object:
        return await self.node.kubelet.call("GET", f"{self.core}/configmaps/{name}")

    async def _mounted(self, get: Callable[[], Awaitable[T]]) -> T:
        """What a volume needs. A kubelet tries again until the pod is gone: it may come, or its namespace be ending."""
        while True:
            try:
                return await get()
            except ApiError as error:
                if error.status not in REFUSALS:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def _keep(self, spec: Object) -> None:
        """A container, again and again until it has ended for good."""
        name = spec["name"]
        while True:
            await self._have_image(spec)
            await self._live(spec)
            wait = rules.next_start(self.pod, name)
            if wait is None or self._stopping.is_set() or name not in self._tasks:
                return
            if wait:
                self._note(rules.backs_off(self.pod, name))
                await asyncio.sleep(wait)

    async def _have_image(self, spec: Object) -> None:
        while not spec["image"].startswith(IMAGES):
            for reason in ("ErrImagePull", "ImagePullBackOff"):
                self._note(rules.waits(self.pod, spec["name"], reason, f"no such image: {spec['image']}"))
                await asyncio.sleep(1)

    async def _live(self, spec: Object) -> None:
        """One life of a container."""
        name = spec["name"]
        await self.node.awake.wait()
        try:
            process = await self._start(spec)
        except CannotStart as error:
            self._note(rules.started(self.pod, name, time.time()))
            self._note(rules.ended(self.pod, name, time.time(), 128, error.reason, str(error)))
            return
        self.running[name] = process
        self.logs.setdefault(name, []).append(process.log)
        self._note(rules.started(self.pod, name, time.time(), f"process://{self.uid}-{name}-{process.pid}"))
        probe = self._do(f"probe of {name}", self._probe(spec, process))
        code = await process.wait()
        probe.cancel()
        self.sandbox.signal(name, signal.SIGKILL)
        del self.running[name]
        await self.node.awake.wait()
        said = "\n".join(line for _, line in process.log.lines[-LOG_LINES:]) if code else ""
        falls_back = spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        self._note(rules.ended(self.pod, name, time.time(), code, message=said if falls_back else ""))

    async def _start(self, spec: Object) -> Running:
        if spec["name"] in self.sidecars:
            return self.sandbox.start_sidecar(spec)
        return await self.sandbox.start(spec)

    async def _probe(self, spec: Object, process: Running) -> None:
        """The container is ready when it runs, or as its readiness probe says, which has to fail as often as a kubelet
        asks; its liveness probe may end it."""
        name, failures, silences = spec["name"], 0, 0
        readiness = spec.get("readinessProbe")
        liveness = spec.get("livenessProbe") or {}
        period = liveness.get("periodSeconds", 10)
        next_look = time.monotonic() + liveness.get("initialDelaySeconds", 0) + period
        while True:
            silences = 0 if not readiness or await self._answers(process, "readyz") else silences + 1
            await self.node.awake.wait()
            was_ready = self.pod.containers[name].ready
            ready = silences == 0 or (was_ready and silences < readiness.get("failureThreshold", 3))
            if ready != was_ready:
                self._note(rules.is_ready(self.pod, name, ready))
            if liveness and time.monotonic() > next_look:
                next_look = time.monotonic() + period
                alive = await self._answers(process, "healthz", liveness.get("timeoutSeconds", 1))
                failures = 0 if alive else failures + 1
                if failures == liveness.get("failureThreshold", 3):
                    process.signal(signal.SIGKILL)
            await asyncio.sleep(PROBE_SECONDS if ready else LOOK_SECONDS)

    async def _answers(self, process: Running, page: str, seconds: float = 5) -> bool:
        if process.health is None:
            return True
        with suppress(aiohttp.ClientError, TimeoutError):
            async with (
                asyncio.timeout(seconds),
                self.node.kubelet.http.get(f"http://{self.sandbox.address}:{process.health}/{page}") as answer,
            ):
                return answer.status == 200
        return False

    # --- its end

    async def _end_by_itself(self) -> None:
        """All that are to end have, or the deadline has passed."""
        if self._late.is_set():
            self._note(rules.fails(self.pod, "DeadlineExceeded"))
            await self._end(GRACE_SECONDS)
        else:
            await self._stop(self.sidecars, GRACE_SECONDS)
            self._changed.set()

    async def _end(self, grace: float) -> None:
        """SIGTERM to all but the sidecars, then to those, and SIGKILL to what is left at the end of the grace."""
        began = time.monotonic()
        self._tasks["containers"].cancel()  # nothing more is begun
        await self._stop(self.pod.containers.keys() - self.sidecars, grace)
        left = grace - (time.monotonic() - began)
        await self._stop(self.sidecars, max(left, LEAST_SIDECAR_SECONDS))

    async def _stop(self, names: Iterable[str], seconds: float) -> None:
        keeping = {name: self._tasks.pop(name) for name in names if name in self._tasks}
        for name, task in keeping.items():
            if name in self.running:
                self.running[name].signal(signal.SIGTERM)
            else:
                task.cancel()
                self._note(rules.gives_up(self.pod, name))
        if keeping:
            _, late = await asyncio.wait(keeping.values(), timeout=seconds)
            for name in [name for name, task in keeping.items() if task in late and name in self.running]:
                self.running[name].signal(signal.SIGKILL)
                self.sandbox.signal(name, signal.SIGKILL)
            await asyncio.wait(keeping.values())

    async def _remove(self) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        with suppress(ApiError):  # it is gone already
            await self.node.kubelet.call("DELETE", f"{self.core}/pods/{self.name}", options)

    # --- its status

    def _note(self, pod: rules.Pod) -> None:
        self.pod = pod
        self._changed.set()

    async def _tell(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(lateness.seconds("kubelet"))
            await self.node.awake.wait()
            self._changed.clear()
            await self._write()

    async def _write(self) -> None:
        status = {"metadata": {"uid": self.uid}, "status": rules.status(self.pod)}
        path = f"{self.core}/pods/{self.name}/status?fieldManager=kubelet"
        try:
            await self.node.kubelet.call("PATCH", path, status, STRATEGIC)
        except ApiError as error:
            if not issubclass(error.kind, (NotFound, Conflict)):  # gone meanwhile, or another of its name
                raise

    # --- its tasks

    def _do(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self._tasks[name] = asyncio.create_task(work, name=f"{self.name}: {name}")
        self._every.append(task)
        return task

    async def _all(self, tasks: list["asyncio.Task[Any]"]) -> None:
        """Until all have ended; they go on where only this is cancelled, as at the pod's end. Raises what they did."""
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def _first(self, *tasks: "asyncio.Task[Any]") -> None:
        """Until one of them has ended. Raises what that raised."""
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
