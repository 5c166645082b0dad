# SPDX-License-Identifier: Apache-2.0
"""Nodes and the scheduler, and what becomes of pods when a node is lost or drained."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

from simulation.api_server import ApiServer
from simulation.containers import Plan, Programs
from simulation.loop import NOBODY, VirtualLoop
from simulation.network import Network
from simulation.pods import PodRun
from simulation.store import Change, Object

ZONE = "topology.kubernetes.io/zone"
TAINT_SECONDS = (40.0, 75.0)  # until the pods of a lost node are deleted
FORCE_SECONDS = (5.0, 120.0)  # and until somebody removes those that no kubelet does


class Node:
    """`alive`: it has power; `cut`: nobody hears of it, and what runs there hears of nobody;
    `rejects`: its kubelet admits no pod."""

    def __init__(self, name: str, capacity: int, skew: float) -> None:
        self.name, self.capacity, self.skew = name, capacity, skew
        self.alive, self.cut, self.cordoned, self.rejects = True, False, False, False
        self.pods: dict[str, PodRun] = {}  # by uid


class Nodes:
    """All nodes. `networks` makes the way from a pod to the API server; `plan_of` tells what a job's training does."""

    def __init__(
        self,
        loop: VirtualLoop,
        server: ApiServer,
        dice: Random,
        programs: Programs,
        networks: Callable[[str], Network],
        plan_of: Callable[[str], Plan],
        say: Callable[[str, str, str], None],
        on_crash: Callable[[str, BaseException], None],
    ) -> None:
        self.loop, self.server, self.dice, self.programs = loop, server, dice, programs
        self.networks, self.plan_of, self.say, self.on_crash = networks, plan_of, say, on_crash
        self.all: list[Node] = []
        self.addresses: dict[str, Any] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.slowness = 1.0
        self.scheduling = True
        self._ips = 0
        server.store.observers.append(self._see)

    def do(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.loop.create_task(work, context=NOBODY)

    def later(self, least: float, most: float) -> float:
        return self.slowness * self.dice.uniform(least, most)

    def address(self) -> str:
        self._ips += 1
        return f"10.{self._ips // 65536}.{self._ips // 256 % 256}.{self._ips % 256}"

    def run_of(self, uid: str) -> "PodRun | None":
        return next((node.pods[uid] for node in self.all if uid in node.pods), None)

    async def trouble_of(self, network: Network, address: str) -> str | None:
        """What the sidecar at `address` says at its page, which a client on `network` asks; None without an answer."""
        await asyncio.sleep(self.later(0.001, 0.1))
        there = (run.sandbox for node in self.all for run in node.pods.values() if run.sandbox.ip == address)
        program = next((pod.files.get("sidecar") for pod in there if not pod.network.is_parted_from("")), None)
        answers = program is not None and program.sidecar is not None and program.process.runs and not network.cut
        return program.sidecar._trouble() if answers else None

    def _see(self, change: Change) -> None:
        if change.plural != "pods":
            return
        uid = change.body["metadata"]["uid"]
        if change.type == "ADDED":
            self.do(self._schedule(change.body))
        elif (run := self.run_of(uid)) is not None:
            self.loop.call_outside(self.later(0.01, 0.3), run.look)

    async def _schedule(self, pod: Object) -> None:
        """Finds a node, for as long as it takes."""
        meta = pod["metadata"]
        place = (meta["namespace"], meta["name"])
        told = False
        await asyncio.sleep(self.later(0.02, 0.3))
        while True:
            found = self.server.get("pods", *place)
            if found is None or found["metadata"]["uid"] != meta["uid"] or "deletionTimestamp" in found["metadata"]:
                return
            nodes = [node for node in self.all if node.name not in _forbidden(found)]
            free = [node for node in nodes if self._takes(node)] if self.scheduling else []
            if free:
                break
            if self.scheduling and not told:
                told = True
                self.server.change("pods", *place, _unschedulable, "scheduler", meta["uid"])
            await asyncio.sleep(self.later(1, 3))
        avoided = _avoided(found)
        node = self.dice.choice([one for one in free if one.name not in avoided] or free)
        if node.rejects:
            self.server.change("pods", *place, lambda body: _rejected(body, node.name), "kubelet", meta["uid"])
            return
        run = PodRun(self, node, found)
        node.pods[meta["uid"]] = run
        self.server.change("pods", *place, lambda body: _bound(body, node.name), "scheduler", meta["uid"])
        self.do(run.run())

    def _takes(self, node: Node) -> bool:
        return node.alive and not node.cut and not node.cordoned and len(node.pods) < node.capacity

    # --- what happens to nodes

    def add_node(self, name: str, capacity: int, skew: float) -> None:
        self.all.append(Node(name, capacity, skew))
        meta = {"name": name, "namespace": "", "labels": {ZONE: f"zone-{len(self.all) % 2}"}}
        self.server.create("nodes", {"kind": "Node", "metadata": meta, "spec": {}, "status": {}}, "kubelet")

    def cordon(self, node: Node, cordoned: bool = True) -> None:
        node.cordoned = cordoned
        self.server.change("nodes", "", node.name, lambda body: body["spec"].update(unschedulable=cordoned), "people")

    def may_evict(self, run: "PodRun") -> bool:
        """Whether the budgets that count it let it go: as many as are ready beyond `minAvailable`."""
        namespace, name = run.place
        pod = self.server.get("pods", namespace, name)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return True
        pods = [one.body for one in self.server.store.all("pods", namespace)]
        budgets = [one.body["spec"] for one in self.server.store.all("poddisruptionbudgets", namespace)]
        asked = [one for one in budgets if is_counted(pod, one)]
        return not is_ready(pod) or all(one["minAvailable"] < healthy(pods, one) for one in asked)

    def kill_node(self, node: Node) -> None:
        """Its processes are gone, and nobody says so."""
        node.alive = False
        for run in list(node.pods.values()):
            run.power_off()
        self.do(self._taint(node, list(node.pods.values())))

    def revive_node(self, node: Node) -> None:
        """It starts again; what runs there starts again too."""
        node.alive = True
        for run in list(node.pods.values()):
            self.do(run.power_on())

    def cut_node(self, node: Node) -> None:
        node.cut = True
        for run in node.pods.values():
            run.sandbox.network.partition()
        self.do(self._taint(node, list(node.pods.values())))

    def heal_node(self, node: Node) -> None:
        node.cut = False
        for run in list(node.pods.values()):
            run.sandbox.network.heal()
            run.tell()
            run.look()

    async def _taint(self, node: Node, runs: "list[PodRun]") -> None:
        """The node's pods are deleted once it has been away for a while; the last trace of them goes later."""
        await asyncio.sleep(self.dice.uniform(*TAINT_SECONDS))
        if node.alive and not node.cut:
            return
        for run in runs:
            self.evict(run, "DeletionByTaintManager")
        await asyncio.sleep(self.dice.uniform(*FORCE_SECONDS))
        if node.alive and not node.cut:
            return
        for run in runs:
            found = self.server.store.find("pods", run.place)
            if found is not None and found.body["metadata"]["uid"] == run.uid:
                self.server.delete("pods", found, "pod garbage collector", grace=0)
            if not node.alive:
                node.pods.pop(run.uid, None)

    def evict(self, run: "PodRun", reason: str = "EvictionByEvictionAPI") -> None:
        """As a drain does: the pod says that it is the cluster's will, and is deleted."""

        def disrupt(body: Object) -> None:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            body["status"]["conditions"] = [*body["status"].get("conditions", ()), condition]

        self.server.change("pods", *run.place, disrupt, "eviction", run.uid)
        found = self.server.store.find("pods", run.place)
        if found is not None and found.body["metadata"]["uid"] == run.uid:
            self.server.delete("pods", found, "eviction")


def is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def is_counted(pod: Object, budget: Object) -> bool:
    """Whether the budget with that spec selects the pod."""
    labels: Object = pod["metadata"].get("labels") or {}
    return bool(budget["selector"]["matchLabels"].items() <= labels.items())


def healthy(pods: Iterable[Object], budget: Object) -> int:
    """How many of `pods` the disruption controller takes for healthy."""
    there = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
    return sum(is_counted(pod, budget) and is_ready(pod) for pod in there)


def _unschedulable(pod: Object) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 nodes have room"}
    pod["status"]["conditions"] = [condition]


def _bound(pod: Object, node: str) -> None:
    pod["spec"]["nodeName"] = node
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]


def _rejected(pod: Object, node: str) -> None:
    """As a kubelet leaves it that cannot admit it: no container of it was ever there."""
    _bound(pod, node)
    pod["status"] |= {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}


def _avoided(pod: Object) -> set[str]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
    return {node for one in preferred for node in _others_than(one["preference"])}


def _forbidden(pod: Object) -> set[str]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return {node for term in required.get("nodeSelectorTerms", ()) for node in _others_than(term)}


def _others_than(term: Object) -> set[str]:
    """The nodes whose names a term of the operator's excludes."""
    fields = (field for field in term.get("matchFields", ()) if field["operator"] == "NotIn")
    return {value for field in fields for value in field["values"]}
