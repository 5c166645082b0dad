# SPDX-License-Identifier: Apache-2.0
"""Drives `support.kubelet` with real sidecars: node, token, processes, and the pods' status in the API.

The trainer's container is started and ended by the caller, who is told by the pod's `starts`, `runs` and `deleting`.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from contract.cluster.api import CORE, WORKERS, WatchingClient
from contract.cluster.pod import NODE, Pod
from contract.cluster.sidecars import start_sidecar
from elasticjob.pods import SIDECAR
from support import kubelet as rules
from support import pod_life
from support.api_client import ApiError, Object
from support.ports import loopback_addresses

GRACE_SECONDS = 30.0
SIDECAR_SECONDS = 10.0
TOKEN_SECONDS = 3600

log = logging.getLogger(__name__)


class Kubelet:
    """`changed` is called with the job of a pod that has changed, and with None where all are concerned; `api_port`
    says where the sidecars of a job find the API server."""

    def __init__(
        self,
        api: WatchingClient,
        api_port: Callable[[str], int],
        authority: Path,
        work: Path,
        changed: Callable[[str | None], None],
    ) -> None:
        self._api, self._api_port, self._authority, self._work = api, api_port, authority, work
        self._changed = changed
        self._lives: set[asyncio.Task[None]] = set()
        self._addresses = loopback_addresses()
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
            pod = self.pods[name] = Pod(body, next(self._addresses))
            life = asyncio.create_task(self._live(pod))
            self._lives.add(life)
            life.add_done_callback(self._lived)
        if "deletionTimestamp" in body["metadata"]:
            pod.deleting = True
            pod.deletion.set()
        self._changed(pod.job)

    async def exited(self, name: str, code: int) -> None:
        """The trainer's container of a pod ended."""
        pod = self.pods.get(name)
        if pod is None or not pod.trainer.runs:
            return
        pod.note(rules.ended, pod.trainer.name, time.time(), code)
        pod.ended.set()
        if code == 0:
            await self._write(pod)
            await self._stop_sidecar(pod)
        elif not pod.deleting:
            await self._write(pod)
            life = asyncio.create_task(self._restart(pod))
            self._lives.add(life)
            life.add_done_callback(self._lived)
        self._changed(pod.job)

    def abandon(self, job: str) -> None:
        """From now on nobody tells of the ends of this job's trainers."""
        self._abandoned.add(job)
        for pod in self.pods.values():
            if pod.job == job:
                self._abandon(pod)

    def _abandon(self, pod: Pod) -> None:
        if pod.trainer.runs:
            pod.note(rules.ended, pod.trainer.name, time.time(), rules.KILLED)
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
            self._changed(None)

    async def _live(self, pod: Pod) -> None:
        """From the pod's creation to its removal."""
        secrets = self._work / pod.name
        secrets.mkdir(exist_ok=True)
        try:
            if pod.job not in self._abandoned:
                await self._schedule(pod, secrets)
                await self._keep_sidecar(pod, secrets)
            if pod.trainer.runs and pod.job not in self._abandoned:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(pod.ended.wait(), GRACE_SECONDS)
            await self._stop_sidecar(pod)
            self._abandon(pod)
            await self._remove(pod)
        except ApiError as error:
            if error.status != 404:  # deleted meanwhile
                raise
            await self._stop_sidecar(pod)
        if self.pods.get(pod.name) is pod:
            del self.pods[pod.name]
        self._changed(pod.job)

    async def _schedule(self, pod: Pod, secrets: Path) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target}
        await self._api.call("POST", f"{CORE}/pods/{pod.name}/binding", binding)
        (secrets / "token").write_text(await pod_life.new_token(self._api, pod.body, TOKEN_SECONDS))
        (secrets / "ca.crt").write_text(self._authority.read_text())

    async def _start_trainer(self, pod: Pod) -> None:
        pod.note(rules.started, pod.trainer.name, time.time())
        pod.ended.clear()
        await self._write(pod)
        self._changed(pod.job)

    async def _hold_back(self, pod: Pod, name: str) -> None:
        """A container that has ended, until it is to start again."""
        if wait := rules.next_start(pod.state, name):
            pod.note(rules.backs_off, name)
            await self._write(pod)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pod.deletion.wait(), wait)

    async def _restart(self, pod: Pod) -> None:
        await self._hold_back(pod, pod.trainer.name)
        if not pod.deleting:
            await self._start_trainer(pod)

    async def _keep_sidecar(self, pod: Pod, secrets: Path) -> None:
        """Start it, again and again while the pod is not being deleted and its trainer has not ended in success."""
        while not pod.deleting:
            service = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._api_port(pod.job))}
            environment = pod.sidecar_environment | service
            pod.sidecar = start_sidecar(environment, secrets, pod.address, self._work / f"{pod.name}.log")
            pod.note(rules.started, SIDECAR, time.time())
            pod.note(rules.is_ready, SIDECAR)  # no probe asks it
            if not pod.trainer.starts:
                await self._start_trainer(pod)
            await self._first_of_ends(pod)
            if (code := pod.sidecar.exitcode) is not None:
                pod.note(rules.ended, SIDECAR, time.time(), code if code >= 0 else 128 - code)
                await self._write(pod)
                if pod.trainer.exit_code == 0:
                    await pod.deletion.wait()
                await self._hold_back(pod, SIDECAR)

    async def _first_of_ends(self, pod: Pod) -> None:
        """Until the sidecar's process has ended, or the pod is to."""
        assert pod.sidecar is not None
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(pod.sidecar.sentinel, over.set)
        deletion = asyncio.ensure_future(pod.deletion.wait())
        deletion.add_done_callback(lambda _: over.set())
        try:
            await over.wait()
        finally:
            deletion.cancel()
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

    async def _write(self, pod: Pod) -> None:
        status = rules.status(pod.state)
        try:
            await self._api.patch(f"{CORE}/pods/{pod.name}/status", {"metadata": {"uid": pod.uid}, "status": status})
        except ApiError as error:
            if error.status not in (404, 409):  # gone meanwhile
                raise
