"""Brings pods to life and to their end, as a kubelet does: node, token, sidecar, status, restarts, deletion.

The trainer's container is started and ended by the caller, who is told by `Pod.starts`, `runs` and `deleting`.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

from contract.cluster.api import CORE, WORKERS, Api
from contract.cluster.pod import NODE, Pod
from contract.cluster.sidecars import start_sidecar
from support import pod_life
from support.api_client import ApiError, Object

FIRST_ADDRESS = ipaddress.IPv4Address("127.64.0.1")
GRACE_SECONDS = 30.0
BACK_OFF_SECONDS = 10.0  # of the kubelet, from the second crash on
SIDECAR_SECONDS = 10.0
TOKEN_SECONDS = 3600

log = logging.getLogger(__name__)


class Kubelet:
    """`changed` is called after each change of a pod; `api_port` is where sidecars find the API server."""

    def __init__(self, api: Api, api_port: int, authority: Path, work: Path, changed: Callable[[], None]) -> None:
        self._api, self._api_port, self._authority, self._work = api, api_port, authority, work
        self._changed = changed
        self._lives: set[asyncio.Task[None]] = set()
        self._addresses = 0
        self._abandoned: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.broken: BaseException | None = None

    def seen(self, event: str, body: Object) -> None:
        """A pod changed in the API."""
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        pod = self.pods.get(name)
        if event == "DELETED":  # at once, of one that has ended and that no finalizer keeps
            if pod is not None and pod.uid == uid:
                pod.deleting = True
                pod.deletion.set()
            return
        if pod is None or pod.uid != uid:
            pod = self.pods[name] = Pod(body, str(FIRST_ADDRESS + self._addresses))
            self._addresses += 1
            life = asyncio.create_task(self._live(pod))
            self._lives.add(life)
            life.add_done_callback(self._lived)
        if "deletionTimestamp" in body["metadata"]:
            pod.deleting = True
            pod.deletion.set()
        self._changed()

    async def exited(self, name: str, code: int) -> None:
        """The trainer's container of a pod ended."""
        pod = self.pods.get(name)
        if pod is None or not pod.runs:
            return
        pod.runs = False
        pod.ended.set()
        ended = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        if code == 0:
            await self._write(pod, "Succeeded", ended)
            await self._stop_sidecar(pod)
        elif not pod.deleting:
            await self._write(pod, "Running", ended)
            life = asyncio.create_task(self._restart(pod))
            self._lives.add(life)
            life.add_done_callback(self._lived)
        self._changed()

    def abandon(self, job: str) -> None:
        """From now on nobody tells of the ends of this job's trainers."""
        self._abandoned.add(job)
        for pod in self.pods.values():
            if pod.job == job:
                pod.runs = False
                pod.ended.set()

    def kill_sidecar(self, name: str) -> None:
        """It is killed; the pod's life starts another in its place."""
        process = self.pods[name].sidecar
        assert process is not None
        process.kill()

    def signal_sidecar(self, name: str, number: signal.Signals) -> None:
        process = self.pods[name].sidecar
        assert process is not None
        assert process.pid is not None
        os.kill(process.pid, number)

    async def stop(self) -> None:
        for life in self._lives:
            life.cancel()
        for pod in self.pods.values():
            if pod.sidecar is not None:
                pod.sidecar.kill()

    def _lived(self, life: asyncio.Task[None]) -> None:
        self._lives.discard(life)
        if not life.cancelled() and (error := life.exception()) is not None:
            log.error("a pod's life broke", exc_info=error)
            self.broken = error
            self._changed()

    async def _live(self, pod: Pod) -> None:
        """From the pod's creation to its removal."""
        secrets = self._work / pod.name
        secrets.mkdir(exist_ok=True)
        try:
            if pod.job not in self._abandoned:
                await self._schedule(pod, secrets)
                await self._start_trainer(pod)
                await self._keep_sidecar(pod, secrets)
            if pod.runs and pod.job not in self._abandoned:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(pod.ended.wait(), GRACE_SECONDS)
            await self._stop_sidecar(pod)
            pod.runs = False
            await self._remove(pod)
        except ApiError as error:
            if error.status != 404:  # deleted meanwhile
                raise
            await self._stop_sidecar(pod)
        if self.pods.get(pod.name) is pod:
            del self.pods[pod.name]
        self._changed()

    async def _schedule(self, pod: Pod, secrets: Path) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target}
        await self._api.call("POST", f"{CORE}/pods/{pod.name}/binding", binding)
        (secrets / "token").write_text(await pod_life.new_token(self._api, pod.body, TOKEN_SECONDS))
        (secrets / "ca.crt").write_text(self._authority.read_text())

    async def _start_trainer(self, pod: Pod) -> None:
        pod.starts += 1
        pod.runs = True
        pod.ended.clear()
        await self._write(pod, "Running", pod_life.RUNNING)
        self._changed()

    async def _restart(self, pod: Pod) -> None:
        """As the kubelet: at once after the first crash, then with a back-off."""
        if pod.starts > 1:
            await self._write(pod, "Running", {"waiting": {"reason": "CrashLoopBackOff"}})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pod.deletion.wait(), BACK_OFF_SECONDS)
        if not pod.deleting:
            await self._start_trainer(pod)

    async def _keep_sidecar(self, pod: Pod, secrets: Path) -> None:
        """Start it, again and again while the pod is not being deleted and its trainer has not ended in success."""
        while not pod.deleting:
            service = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._api_port)}
            environment = pod.sidecar_environment | service
            pod.sidecar = start_sidecar(environment, secrets, pod.address, self._work / f"{pod.name}.log")
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(pod.sidecar.sentinel, ended.set)
            try:
                await _first(pod.deletion.wait(), ended.wait())
                if ended.is_set() and not pod.runs:
                    await pod.deletion.wait()
            finally:
                loop.remove_reader(pod.sidecar.sentinel)

    async def _stop_sidecar(self, pod: Pod) -> None:
        if pod.sidecar is None:
            return
        with contextlib.suppress(ProcessLookupError):
            pod.sidecar.terminate()
        await asyncio.to_thread(pod.sidecar.join, SIDECAR_SECONDS)
        if pod.sidecar.is_alive():
            log.error("the sidecar of %s did not stop within %g s", pod.name, SIDECAR_SECONDS)
            pod.sidecar.kill()

    async def _remove(self, pod: Pod) -> None:
        """The object, and as no garbage collector does it, its record."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        await self._api.call("DELETE", f"{CORE}/pods/{pod.name}", options)
        with contextlib.suppress(ApiError):
            await self._api.call("DELETE", f"{WORKERS}/{pod.name}")

    async def _write(self, pod: Pod, phase: str, state: Object) -> None:
        status = pod.status(phase, state)
        try:
            await self._api.patch(f"{CORE}/pods/{pod.name}/status", {"metadata": {"uid": pod.uid}, "status": status})
        except ApiError as error:
            if error.status not in (404, 409):  # gone meanwhile
                raise


async def _first(*waits: "asyncio.Future[object] | object") -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[arg-type]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
