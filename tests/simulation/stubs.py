# SPDX-License-Identifier: Apache-2.0
"""A sidecar and a trainer in a few lines, which follow the rules: what the operator's half is tried with by itself."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import aiohttp

from elasticjob.api import API_VERSION, INDEX_LABEL, JOB_LABEL
from elasticjob.members import Member, Members
from simulation.containers import KILLED, Program, Sandbox
from simulation.network import Session
from simulation.store import Object

BEAT_SECONDS, LOOK_SECONDS = 5.0, 1.0
CERTIFICATE = "certificate"


class StubPrograms:
    def __init__(self, certificate: str) -> None:
        self._certificate = certificate

    def sidecar(self, pod: Sandbox) -> Program:
        return StubSidecar(pod, self._certificate)

    def trainer(self, pod: Sandbox) -> Program:
        return StubTrainer(pod)


class StubSidecar:
    """Writes what its trainer wants, and knows what the job's status says of it."""

    def __init__(self, pod: Sandbox, certificate: str) -> None:
        env = pod.env("elasticjob-sidecar")
        starts = pod.files["starts"] = pod.files.get("starts", -1) + 1
        self.pod, self.job, self.index = pod, env["ELASTICJOB_JOB"], int(env["ELASTICJOB_INDEX"])
        self.id = f"{env['ELASTICJOB_BATCH']}.{starts}"
        self._session = Session(pod.network)
        self._base = f"/apis/{API_VERSION}/namespaces/{pod.namespace}"
        self._certificate = certificate
        self._stop = asyncio.Event()
        self.wish: Object | None = pod.files.get("finish")
        self._written: Object | None = None
        self.heard = asyncio.Event()
        self.round, self.phase, self.member, self.leaving, self.seen = 0, "", False, False, False
        self.complete = False
        self.heartbeat = self.pinged = self.acked = 0

    @property
    def formed(self) -> int:
        return self.round if self.phase != "Forming" else self.round - 1

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        await self._until(self._establish)
        self.pod.ports[27600] = self
        beaten = loop.time()
        while not self._stop.is_set():
            await self._try(self._look)
            if self.wish != self._written:
                await self._try(self._request)
            if loop.time() - beaten >= BEAT_SECONDS or self.pinged > self.acked:
                beaten = loop.time()
                await self._try(self._beat)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.heard.wait()
                    self.heard.clear()
            except TimeoutError:
                pass
        self.pod.ports.pop(27600, None)
        if self.wish is None or self.wish["type"] != "Finish":
            self.wish = {"type": "Leave", "cause": "PodStopping"}
        if self.wish != self._written:
            await self._try(self._request)
        return 0

    def terminate(self) -> None:
        self._stop.set()
        self.heard.set()

    def ask(self, **request: Any) -> None:
        self.wish = request
        self.heard.set()

    async def _until(self, call: Any) -> None:
        while not await self._try(call):
            await asyncio.sleep(1)

    async def _try(self, call: Any) -> bool:
        try:
            return bool(await call())
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind}
        url = self._base + quote(path)
        answer = await self._session.request(method, url, json=body, headers=headers, timeout=5.0)
        return answer.status, json.loads(await answer.read() or b"{}")

    async def _establish(self) -> bool:
        pod = self.pod
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        labels = {JOB_LABEL: self.job, INDEX_LABEL: str(self.index)}
        meta = {"name": pod.name, "namespace": pod.namespace, "labels": labels, "ownerReferences": [owner]}
        spec = {"job": self.job, "index": self.index, "id": self.id, "certificate": self._certificate}
        spec |= {"address": f"{pod.ip}:27601", "node": pod.node, "request": None}
        status, _ = await self._ask("PATCH", f"/elasticworkers/{pod.name}", {"metadata": meta, "spec": spec})
        if status == 404:
            del spec["request"]
            body = {"apiVersion": API_VERSION, "kind": "ElasticWorker", "metadata": meta, "spec": spec}
            status, _ = await self._ask("POST", "/elasticworkers", body)
        self._written = None
        return status < 300

    async def _request(self) -> bool:
        wish = self.wish
        blank = dict.fromkeys(("type", "after", "round", "cause"))
        request = {**blank, **wish} if wish else None
        body = {"spec": {"id": self.id, "certificate": self._certificate, "request": request}}
        status, _ = await self._ask("PATCH", f"/elasticworkers/{self.pod.name}", body)
        if status < 300:
            self._written = wish
        elif status == 404:
            await self._establish()
        return status < 300

    async def _beat(self) -> bool:
        ack = self.pinged
        body = {"status": {"heartbeat": self.heartbeat + 1, "ack": ack or None}}
        status, found = await self._ask("PATCH", f"/elasticworkers/{self.pod.name}/status", body)
        if status < 300:
            self.heartbeat += 1
            self.acked = ack
        if status == 404 or (status < 300 and not self._is_ours(found)):
            await self._establish()
        return status < 300

    def _is_ours(self, found: Object) -> bool:
        """Somebody may have written to it, as the sidecar of an earlier pod of this name does that is being stopped."""
        meta = found["metadata"]
        marked = meta.get("labels", {}).get(JOB_LABEL) == self.job and bool(meta.get("ownerReferences"))
        return marked and found["spec"]["id"] == self.id

    async def _look(self) -> bool:
        status, job = await self._ask("GET", f"/elasticjobs/{self.job}")
        if status != 200:
            return False
        agreed = job.get("status", {}).get("rendezvous", {})
        me = Member(self.index, self.id)
        self.round, self.phase = agreed.get("round", 1), agreed.get("phase", "Forming")
        self.member = me in Members.read(agreed.get("participants", ""))
        self.leaving = me in Members.read(agreed.get("leaving", ""))
        self.complete = agreed.get("outcome") == "Complete"
        if me in Members.read((ping := agreed.get("ping", {})).get("members", "")):
            self.pinged = ping["number"]
        self.seen = True
        return True


class StubTrainer:
    """Joins, trains while its round stands, and ends in success when it has for long enough."""

    def __init__(self, pod: Sandbox) -> None:
        self._pod, self._stop = pod, False

    def terminate(self) -> None:
        self._stop = True

    async def run(self) -> int:
        pod, dice = self._pod, self._pod.dice
        fate = dice.random()
        if fate < pod.plan.crashes:
            await asyncio.sleep(dice.uniform(0, 3))
            return 1
        after, cause = 0, "Started"
        if "finish" in pod.files:
            return await self._go_on()
        while not self._stop:
            sidecar = await self._sidecar()
            if sidecar is None:
                break
            if sidecar.complete:  # one that was started again on a node that was away
                return 0
            after = max(after, sidecar.formed)
            sidecar.ask(type="Join", after=after, cause=cause)
            if not await self._formed(sidecar, after):
                if self._stop or sidecar.leaving:
                    break
                after = max(after, sidecar.formed)
                continue
            held = sidecar.round
            verdict = await self._train(sidecar, held)
            if verdict == "done":
                pod.files["finish"] = {"type": "Finish", "round": held}
                sidecar.ask(**pod.files["finish"])
                return await self._go_on()
            if verdict == "fails":
                cause, after = "WorkerFailed", held
                continue
            if verdict == "dies":
                sidecar.ask(type="Leave", cause="AgentLost")
                return KILLED
            after, cause = held, "MembershipChanged"
        return 1

    async def _go_on(self) -> int:
        """After its success; in a container that was started again that is known."""
        plan, dice = self._pod.plan, self._pod.dice
        await asyncio.sleep(dice.choice((0.05, 0.3, 2.0)) + dice.uniform(0, plan.uploads))
        return 3 if dice.random() < plan.upload_fails else 0

    async def _sidecar(self) -> StubSidecar | None:
        while not self._stop:
            found = self._pod.ports.get(27600)
            if found is not None and found.seen:
                return found
            await asyncio.sleep(0.5)
        return None

    async def _formed(self, sidecar: StubSidecar, after: int) -> bool:
        while not self._stop and self._pod.ports.get(27600) is sidecar and not (sidecar.leaving or sidecar.complete):
            if sidecar.phase == "Formed" and sidecar.round > after:
                if sidecar.member:
                    return True
                after = sidecar.round
                sidecar.ask(type="Join", after=after, cause="Renewed")
            await asyncio.sleep(0.5)
        return False

    async def _train(self, sidecar: StubSidecar, held: int) -> str:
        pod, dice, loop = self._pod, self._pod.dice, asyncio.get_running_loop()
        began, plan = loop.time(), pod.plan
        ends = began + (plan.seconds if plan.seconds is not None else 1e9) + dice.uniform(0, plan.spread)
        fails = began + dice.uniform(1, 20) if plan.doomed or dice.random() < plan.fails else 1e12
        dies = began + dice.uniform(1, 20) if dice.random() < plan.killed else 1e12
        while not self._stop:
            if self._pod.ports.get(27600) is not sidecar:
                return "lost"
            if sidecar.round != held or sidecar.phase == "Forming" or not sidecar.member:
                return "over"
            for moment, verdict in ((dies, "dies"), (fails, "fails"), (ends, "done")):
                if loop.time() >= moment:
                    return verdict
            await asyncio.sleep(0.5)
        return "stopped"
