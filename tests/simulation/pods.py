# SPDX-License-Identifier: Apache-2.0
"""A pod on its node in virtual time: drives `support.kubelet`, with faults, and tells its status late.

What the status says, and when a container starts again, is decided there."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from elasticjob_operator.objects.pods import SIDECAR
from simulation.containers import Container, Sandbox, Sleeper
from simulation.loop import NOBODY
from simulation.store import Object
from support import kubelet

if TYPE_CHECKING:
    from simulation.nodes import Node, Nodes

WHO = "kubelet"
BAD_IMAGE, FAILING_IMAGE = "nowhere/none", "init/fails"


class PodRun:
    """One pod on one node, until its kubelet has done with it."""

    def __init__(self, nodes: "Nodes", node: "Node", pod: Object) -> None:
        meta = pod["metadata"]
        self.nodes, self.node, self.uid = nodes, node, meta["uid"]
        self.place = (meta["namespace"], meta["name"])
        job = next((one["uid"] for one in meta.get("ownerReferences", ())), "")
        self.sandbox = Sandbox(
            nodes.loop,
            nodes.dice,
            nodes.networks(f"pod {meta['name']}"),
            meta["namespace"],
            meta["name"],
            meta["uid"],
            nodes.address(),
            node.name,
            pod["spec"],
            nodes.plan_of(job),
            addresses=nodes.addresses,
            facts=nodes.facts.setdefault(job, {}),
            say=lambda what, detail: nodes.say(meta["name"], what, detail),
        )
        self.containers: dict[str, Container] = {}
        self.pod = kubelet.Pod.of(pod["spec"], self.sandbox.ip, self.now)
        self.stopping = False
        self.power = asyncio.Event()
        self.power.set()
        self._spec = pod["spec"]
        self._telling = self._done = self._probed = self._deadline = False
        self._stopped: asyncio.Task[Any] | None = None

    @property
    def now(self) -> float:
        return self.nodes.server.clock.wall()

    def note(self, event: Callable[..., kubelet.Pod], *of: Any) -> None:
        """Something has happened, of `support.kubelet`'s events."""
        self.pod = event(self.pod, *of)
        self.tell()

    async def run(self) -> None:
        nodes = self.nodes
        await asyncio.sleep(nodes.later(0.05, 0.8))
        init = [one for one in self._spec.get("initContainers", ()) if one["name"] != SIDECAR]
        for one in (*self._spec.get("initContainers", ()), *self._spec["containers"]):
            self.containers[one["name"]] = self._container(one)
        self.tell()
        images = [one["image"] for one in self._spec["containers"]]
        while BAD_IMAGE in images and not self.stopping:
            for one in self._spec["containers"]:
                self.note(kubelet.waits, one["name"], "ImagePullBackOff", "no")
            await asyncio.sleep(5)
        for one in init:
            if self.stopping:
                return
            await self.containers[one["name"]].keep()
        if self.stopping:
            return
        if SIDECAR in self.containers:
            nodes.do(self.containers[SIDECAR].keep())
        await asyncio.sleep(nodes.later(0.1, 0.6))
        if self.stopping:
            return
        nodes.loop.call_outside(nodes.later(0.5, 5), self._become_ready)
        await asyncio.gather(*(self.containers[one["name"]].keep() for one in self._spec["containers"]))
        if self.stopping:
            return
        await self._stop_sidecar(30)
        if not self.stopping:
            self._forget()

    def _container(self, spec: Object) -> Container:
        nodes, name = self.nodes, spec["name"]

        def make() -> Any:
            if name == SIDECAR:
                return nodes.programs.sidecar(self.sandbox)
            if name == "trainer":
                return nodes.programs.trainer(self.sandbox)
            if name == "init":
                return Sleeper(nodes.later(0.1, 2), int(spec["image"] == FAILING_IMAGE))
            return Sleeper(1e6)

        return Container(self, name, make)

    def _become_ready(self) -> None:
        self._probed = True
        self.tell()

    # --- what others have written to the pod

    def look(self) -> None:
        """Sees what has become of the pod, unless the node cannot."""
        if self.node.cut or not self.node.alive:
            return
        pod = self.nodes.server.get("pods", *self.place)
        if pod is None or pod["metadata"]["uid"] != self.uid:
            if not self.stopping:
                self._end(0, lambda: self._forget())
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._end(pod["metadata"].get("deletionGracePeriodSeconds", 30), self._remove)
            return
        deadline = pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None and not self._deadline:
            self._deadline = True
            self.nodes.loop.call_outside(self.nodes.later(0, deadline), self._exceed)

    def _exceed(self) -> None:
        if not kubelet.has_ended(self.pod) and self.node.alive:
            self._end(30, self._forget)
            self.pod = kubelet.fails(self.pod, "DeadlineExceeded")

    def _end(self, grace: float, then: Callable[[], None]) -> None:
        if kubelet.has_ended(self.pod):
            then()
            return
        if self._stopped is None:
            self.stopping = True
            self._stopped = self.nodes.do(self._stop(grace))
            self._stopped.add_done_callback(lambda _: then(), context=NOBODY)
        elif self._stopped.done():
            then()

    async def _stop(self, grace: float) -> None:
        """SIGTERM to all but the sidecar, then to the sidecar, and SIGKILL to what is left at the end of `grace`."""
        loop = self.nodes.loop
        end = loop.time() + grace
        mains = [one for name, one in self.containers.items() if name != SIDECAR]
        for one in mains:
            one.terminate()
        while any(one.running for one in mains) and loop.time() < end:
            await asyncio.sleep(0.2)
        for one in mains:
            one.kill(for_good=True)
        await self._stop_sidecar(max(2.0, end - loop.time()))

    async def _stop_sidecar(self, seconds: float) -> None:
        loop, sidecar = self.nodes.loop, self.containers.get(SIDECAR)
        if sidecar is None:
            return
        await asyncio.sleep(self.nodes.later(0.1, 0.8))
        sidecar.terminate()
        end = loop.time() + seconds
        while sidecar.running and loop.time() < end:
            await asyncio.sleep(0.2)
        sidecar.kill(for_good=True)

    def _remove(self) -> None:
        """The kubelet's last word: the pod is no more."""
        self._write()
        found = self.nodes.server.store.find("pods", self.place)
        if found is not None and found.body["metadata"]["uid"] == self.uid:
            self.nodes.server.delete("pods", found, WHO, grace=0)
        self._forget()

    def _forget(self) -> None:
        self.sandbox.network.close()
        self._done = True
        self.tell()

    # --- power

    def power_off(self) -> None:
        self.power.clear()
        for one in self.containers.values():
            one.kill()
            one.process.kill()
        self.sandbox.network.close()

    async def power_on(self) -> None:
        await asyncio.sleep(self.nodes.later(0.5, 3))
        if not self.node.alive:
            return
        self.power.set()
        self.look()
        self.tell()

    # --- its status

    def tell(self) -> None:
        """Soon: several changes are told at once."""
        if not self._telling:
            self._telling = True
            self.nodes.loop.call_outside(self.nodes.later(0.01, 0.6), self._tell)

    def _tell(self) -> None:
        self._telling = False
        if self.node.alive and not self.node.cut:
            self._write()
            if self._done:  # and everybody has been told
                self.node.pods.pop(self.uid, None)

    def _write(self) -> None:
        self.nodes.server.change("pods", *self.place, self._describe, WHO, self.uid)

    def _describe(self, pod: Object) -> None:
        before = pod["status"]
        if SIDECAR in self.containers:
            self.pod = kubelet.is_ready(self.pod, SIDECAR, self._probed)
        pod["status"] = kubelet.status(self.pod, tuple(before.get("conditions", ())))
        if before.get("phase") in ("Succeeded", "Failed"):  # what it has once said for good
            pod["status"]["phase"] = before["phase"]
