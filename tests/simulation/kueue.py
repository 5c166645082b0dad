# SPDX-License-Identifier: Apache-2.0
"""Kueue as a gang meets it: one queue with a quota, which admits in part, preempts, and whose API may be away.

It judges as well: no more pods run than there is quota for, and none is made while nobody can know the quota.
"""

import asyncio
from dataclasses import dataclass, field

from elasticjob.objects import Object
from simulation.calls import Call
from simulation.store import Change
from simulation.validity import Refusal, counts_in_quota
from simulation.world import NAMESPACE, World

QUEUE, LABEL = "gpus", "kueue.x-k8s.io/queue-name"
WHO = "kueue"
PLENTY = 1000
# what an operator knows may be so old: it looks every five seconds, and may have to wait for the answer
KNOWN_SECONDS = 12.0
# so long there may be more pods than quota: beside a drained worker stands another, and what somebody has taken away,
# or nobody could look up, is noticed late
DRAINING_SECONDS, TAKEN_SECONDS = 90.0, 200.0
OVER_SECONDS = 5.0


@dataclass(eq=False)
class Kueue:
    world: World
    quota: int = PLENTY
    away_since: float | None = None
    _excused: float = 0.0
    _over: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        self.quota = self.world.dice.randint(1, 6)
        self.world.server.on_call.append(self._hear)
        self.world.server.store.observers.append(self._see)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.world.dice.uniform(0.2, 1.5))
            self._admit()
            self._count()

    def excuse(self, seconds: float) -> None:
        self._excused = max(self._excused, self.world.loop.time() + seconds)

    @property
    def workloads(self) -> list[Object]:
        found = [one.body for one in self.world.server.store.all("workloads", NAMESPACE)]
        return sorted(found, key=lambda one: int(one["metadata"]["resourceVersion"]))

    def preempt(self) -> None:
        there = [one for one in self.workloads if is_true(one, "QuotaReserved") and not is_true(one, "Evicted")]
        if there:
            reason = self.world.dice.choice(("Preempted", "Preempted", "AdmissionCheck"))
            self._set(self.world.dice.choice(there), "Evicted", "True", reason)

    # --- as Kueue

    def _hear(self, call: Call) -> None:
        if call.plural == "workloads" and self.away_since is not None:
            raise Refusal(500, "InternalError", "failed calling webhook of kueue", after=2.0)

    def _admit(self) -> None:
        used = sum(map(held, self.workloads))
        for one in self.workloads:
            if "deletionTimestamp" in one["metadata"] or any(
                is_true(one, type) for type in ("Evicted", "QuotaReserved")
            ):
                continue
            (asked,) = one["spec"]["podSets"]
            free = self.quota - used
            if free >= asked.get("minCount", asked["count"]):
                given = min(asked["count"], free)
                used += given
                self._set(one, "QuotaReserved", "True", "QuotaReserved", given)
                self._set(one, "Admitted", "True", "Admitted")
            elif not conditions(one):
                self._set(one, "QuotaReserved", "False", "Pending")

    def _set(self, workload: Object, type: str, status: str, reason: str, given: int | None = None) -> None:
        """A condition, and with it how many are `given` quota."""
        meta = workload["metadata"]

        def change(body: Object) -> None:
            others = [one for one in conditions(body) if one["type"] != type]
            new = {"type": type, "status": status, "reason": reason, "message": f"{type} is {status}: {reason}"}
            body["status"] = {**(body.get("status") or {}), "conditions": [*others, new]}
            if given is not None:
                body["status"]["admission"] = {"podSetAssignments": [{"name": "workers", "count": given}]}

        self.world.server.change("workloads", meta["namespace"], meta["name"], change, WHO, meta["uid"])
        self.world.say(WHO, f"{meta['name']}: {type} is {status}", reason if given is None else f"{given} workers")

    # --- as a judge

    def _count(self) -> None:
        """No more pods than there is quota for, but for a while."""
        world, now = self.world, self.world.loop.time()
        if any(node.cordoned or node.cut or not node.alive for node in world.nodes.all):  # its pods stay for a while
            self.excuse(DRAINING_SECONDS)
        if self.away_since is not None:
            self.excuse(TAKEN_SECONDS)
        for job in self._gangs():
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            quota = sum(held(one) for one in self.workloads if is_of(one, uid))
            alive = sum(runs(one.body) and is_of(one.body, uid) for one in world.server.store.all("pods", NAMESPACE))
            if now < self._excused or alive <= quota or has_ended(job):
                self._over.pop(uid, None)
            elif now - self._over.setdefault(uid, now) > OVER_SECONDS:
                world.on_mistake(f"job {name} has {alive} pods, and quota for {quota}")

    def _gangs(self) -> list[Object]:
        there = (one.body for one in self.world.server.store.all("elasticjobs", NAMESPACE))
        return [one for one in there if is_gang(one) and "deletionTimestamp" not in one["metadata"]]

    def _see(self, change: Change) -> None:
        """No pod of a gang is made while the Workloads cannot be seen."""
        if (change.plural, change.type) != ("pods", "ADDED") or self.away_since is None:
            return
        blind = change.sent_at - self.away_since > KNOWN_SECONDS
        if blind and any(is_of(change.body, job["metadata"]["uid"]) for job in self._gangs()) and runs(change.body):
            self.world.on_mistake(f"pod {change.body['metadata']['name']} was made while its quota was not known")


def is_gang(job: Object) -> bool:
    return job["spec"].get("quotaAdmission") == "Gang"


def has_ended(job: Object) -> bool:
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions(job))


def is_of(body: Object, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences") or ())


def runs(pod: Object) -> bool:
    """Whether it is a worker's, and takes quota as far as anybody knows."""
    ended = any("terminated" in one["state"] for one in pod.get("status", {}).get("containerStatuses", ()))
    is_worker = bool(pod["spec"].get("initContainers"))
    return is_worker and counts_in_quota(pod) and not ended and "deletionTimestamp" not in pod["metadata"]


def conditions(body: Object) -> list[Object]:
    return (body.get("status") or {}).get("conditions") or []


def is_true(body: Object, type: str) -> bool:
    return any(one["type"] == type and one["status"] == "True" for one in conditions(body))


def held(workload: Object) -> int:
    """How many workers it has quota for, but for what was given back."""
    if not is_true(workload, "QuotaReserved"):
        return 0
    status, (asked,) = workload["status"], workload["spec"]["podSets"]
    (admitted,) = status["admission"]["podSetAssignments"]
    back = sum(one["count"] for one in status.get("reclaimablePods") or ())
    return max(0, min(admitted["count"], asked["count"] - back))
