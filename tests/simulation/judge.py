# SPDX-License-Identifier: Apache-2.0
"""Watches everything that is written, and says which rule was broken, in a sentence.

The rules of one step and of a job's history are the product's own (`elasticjob.rendezvous`). The others are told here:
they are about what the operator does, seen from the API server, and read none of its memory.
"""

from collections import defaultdict
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any
from unittest.mock import patch

from pydantic import ValidationError

from elasticjob.agreed import state_of
from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.pods import pod_key_of, pod_name
from elasticjob.rendezvous import Clocks, Decision, State, decide
from elasticjob_operator import reconciler
from elasticjob_operator.objects.access import render_access
from elasticjob_operator.objects.pods import access_name
from oracle import history_violations, violations
from simulation.calls import Call
from simulation.clocks import EPOCH
from simulation.nodes import healthy, is_ready
from simulation.operators import Operator
from simulation.store import Change, Object
from simulation.world import NAMESPACE, World

WOKEN_SECONDS = 13.0  # for which one that was frozen may go on with what it had begun: until its next renewal fails
CLOCKS_APART_SECONDS = 5.0
LATE_SECONDS = 60.0  # by which a status may be written after it was made: a request lingers, the operator is frozen
ACCESS_SEEN_SECONDS = 30.0  # for so long the operator may rely on what it has seen of a job's access, and more
ACCESS = ("serviceaccounts", "roles", "rolebindings", "networkpolicies", "poddisruptionbudgets")
NEVER_READY: Object = {"status": {}}
BY_HAND = "made-by-hand"  # a label of what people have made, and the operator must leave alone


class Judge:
    """`found`: the rules that were broken, in order."""

    def __init__(self, world: World) -> None:
        self.world, self.found = world, []  # type: World, list[str]
        self.writes: dict[str, int] = {}  # of statuses, by the job's uid
        self._statuses: dict[str, list[tuple[float, Object]]] = {}  # by the job's uid, with when each was stored
        self._made_at: dict[tuple[str, str], float] = {}  # when a grant was made
        self._gone_at: dict[tuple[str, str], float] = {}  # when a grant was deleted
        self._edited = frozenset[str]()  # the budgets that people have edited since an operator wrote them
        self._lease_gone_at = -WOKEN_SECONDS
        self._leases: defaultdict[str, list[tuple[float, str]]] = defaultdict(lambda: [(0.0, "")])  # by their names
        world.server.store.observers.append(self._see)
        world.server.on_call.append(self._hear)

    def watching(self) -> AbstractContextManager[Any]:
        """Each `decide` of an operator is judged too."""
        return patch.object(reconciler, "decide", self._decide)

    @property
    def jobs(self) -> int:
        """How many there have been."""
        return len(self._statuses)

    def complain(self, why: str) -> None:
        if why not in self.found:
            self.found.append(why)
            self.world.say("judge", "RULE BROKEN", why)

    # --- the state machine's own rules

    def _decide(self, spec: Any, state: State, workers: Any, now: float) -> Decision:
        given = tuple(workers)
        decision = decide(spec, state, given, now)
        for why in violations(spec, state, given, decision):
            self.complain(f"a step broke a rule of the rendezvous: {why}")
        return decision

    def _check_status(self, change: Change) -> None:
        assert change.old is not None
        assert change.new is not None
        before, after = change.old.get("status") or {}, change.new.get("status") or {}
        if before == after:
            return
        meta = change.new["metadata"]
        try:
            was, is_now = ElasticJobStatus.parse(before), ElasticJobStatus.parse(after)
        except ValidationError as error:
            self.complain(f"job {meta['name']} has a status that makes no sense: {error}")
            return
        if is_now.term < was.term:
            self.complain(f"job {meta['name']}: term {is_now.term} wrote over the status of term {was.term}")
        if is_now.term == was.term and None not in (was.lease, is_now.lease) and is_now.lease != was.lease:
            self.complain(f"job {meta['name']}: two Leases have counted term {is_now.term}, which then fences nobody")
        if is_now.rendezvous.reason != was.rendezvous.reason and is_now.rendezvous.reason.endswith("its pod is gone"):
            self._check_gone(meta, was, is_now)
        clocks = Clocks(opened=0.0, formed=0.0)
        ranks_move = "rankOrder" in change.new["spec"]
        for why in history_violations(state_of(was, clocks), state_of(is_now, clocks), ranks_move=ranks_move):
            self.complain(f"job {meta['name']}: two statuses that follow each other break a rule: {why}")
        self.writes[meta["uid"]] = self.writes.get(meta["uid"], 0) + 1

    def _check_gone(self, job: Object, was: ElasticJobStatus, is_now: ElasticJobStatus) -> None:
        """A pod of which the status says that it is gone is."""
        for index, number in is_now.replacements.items():
            before = was.replacements.get(index, 0)
            if number <= before or f"worker {index} lost" not in is_now.rendezvous.reason:
                continue
            pod = self.world.server.get("pods", job["namespace"], pod_name(job["name"], index, before))
            if pod is not None and any(one["uid"] == job["uid"] for one in owners_of(pod)):
                self.complain(f"job {job['name']} says that pod {pod['metadata']['name']} is gone, and it is there")

    # --- what is stored

    def _see(self, change: Change) -> None:
        now = self.world.loop.time()
        match change.plural:
            case "elasticjobs":
                meta = change.body["metadata"]
                if change.type == "MODIFIED":
                    self._check_status(change)
                elif change.type == "DELETED" and self._by_operator(change.by):
                    self._check_expiry(change)
                known = self._statuses.setdefault(meta["uid"], [])
                known.append((now, change.body))
            case "leases":
                self._check_lease(change, now)
            case "pods":
                if self._by_operator(change.by):
                    self._check_pod(change)
                if change.new is not None and is_ready(change.new) and not is_ready(change.old or NEVER_READY):
                    self._check_budgets()
            case "poddisruptionbudgets" if change.type == "MODIFIED":
                by_people = {change.body["metadata"]["name"]} if not self._by_operator(change.by) else set[str]()
                self._edited = self._edited - {change.body["metadata"]["name"]} | by_people
                self._check_budgets()
            case plural if plural in ACCESS and change.type == "ADDED":
                self._made_at[plural, change.body["metadata"]["name"]] = now
            case plural if plural in ACCESS and change.type == "DELETED":
                self._gone_at[plural, change.body["metadata"]["name"]] = now
                if self._by_operator(change.by) and BY_HAND in (change.body["metadata"].get("labels") or {}):
                    self.complain(f"the operator has deleted {plural} {change.body['metadata']['name']} made by hand")

    def _by_operator(self, client: str) -> Operator | None:
        return next((one for one in self.world.operators if one.network.client == client), None)

    def _check_pod(self, change: Change) -> None:
        """What an operator does to a pod follows from the status that was stored when it asked for it."""
        meta = change.body["metadata"]
        owner = next((one for one in meta.get("ownerReferences", ()) if one["kind"] == "ElasticJob"), None)
        if owner is None:
            self.complain(f"the operator has changed pod {meta['name']}, which belongs to no job")
            return
        job = self._status_at(owner["uid"], change.sent_at)
        if job is None or self._woken(change.by, change.sent_at):
            return
        key = pod_key_of(job["metadata"]["name"], meta["name"])
        if key is None:
            self.complain(f"the operator has changed pod {meta['name']}, which is no worker")
            return
        state = state_of(ElasticJobStatus.parse(job.get("status")), Clocks(opened=0.0, formed=0.0))
        index, number = key
        agreed = state.replacements.get(index, 0)
        told = f"pod {meta['name']} at status [round {state.round} {state.phase}, {agreed} agreed for index {index}]"
        if change.type == "ADDED":
            if number != agreed:
                self.complain(f"{told} was made, and its number was not the one that is written")
            elif state.ended:
                self.complain(f"{told} was made after the job had ended")
            elif index in state.done:
                self.complain(f"{told} was made, and its worker has finished")
            self._check_access(job, change.sent_at)
            return
        going = change.new is None or (
            "deletionTimestamp" in change.new["metadata"] and "deletionTimestamp" not in (change.old or {})["metadata"]
        )
        if going:
            left = any(member.index == index for member in state.leaving)
            if number == agreed and not (left or state.ended or self._is_gone(owner["uid"])):
                self.complain(f"{told} was deleted by the operator, and it is the one that counts")
            return
        was, is_now = (body["spec"].get("activeDeadlineSeconds") for body in (change.old or {}, change.new or {}))
        if was != is_now and not (state.ended or index in state.done):
            self.complain(f"{told} was ended by the operator, and no status says why")

    def _check_budgets(self) -> None:
        """Nobody may be evicted meanwhile where nobody is to be: no pod is ready beyond what a closed budget keeps."""
        store = self.world.server.store
        for budget in (one.body for one in store.all("poddisruptionbudgets", NAMESPACE)):
            name, least = budget["metadata"]["name"], budget["spec"]["minAvailable"]
            ready = healthy((one.body for one in store.all("pods", NAMESPACE)), budget["spec"])
            if 0 < least < ready and name not in self._edited:
                self.complain(f"{ready} pods are ready and {name} keeps {least}: the others may be evicted")

    def _check_access(self, job: Object, when: float) -> None:
        """A pod is made when its job has its access, as far as could be seen some seconds before."""
        spec = ElasticJobSpec.parse(job["spec"])
        name = access_name(job["metadata"]["name"])
        for path, body in render_access(job, spec):
            plural = path.rsplit("/", 1)[1]
            found = self.world.server.get(plural, job["metadata"]["namespace"], name)
            owned = found is None or any(one["uid"] == job["metadata"]["uid"] for one in owners_of(found))
            old = when - self._made_at.get((plural, name), 0.0) > ACCESS_SEEN_SECONDS
            if not owned and old and not self._is_gone(job["metadata"]["uid"]):
                self.complain(f"a pod of job {job['metadata']['name']} was made with another's {body['kind']}")
            if found is None and when - self._gone_at.get((plural, name), 0.0) > ACCESS_SEEN_SECONDS:
                self.complain(f"a pod of job {job['metadata']['name']} was made before its {body['kind']}")

    def _check_lease(self, change: Change, now: float) -> None:
        """Each leader has a term of its own."""
        new = change.new["spec"] if change.new is not None else {}
        old = change.old["spec"] if change.old is not None else {}
        holder, before = new.get("holderIdentity", ""), old.get("holderIdentity", "")
        taken = holder and before != holder and change.type == "MODIFIED"
        if taken and new["leaseTransitions"] <= old["leaseTransitions"]:
            self.complain(f"{holder} leads in term {new['leaseTransitions']}, which was another's")
        if change.new is None:
            self._lease_gone_at = now  # by people: who has led finds that out at its next renewal
        self._leases[change.body["metadata"]["name"]].append((now, holder))

    def _check_expiry(self, change: Change) -> None:
        meta, spec = change.body["metadata"], change.body["spec"]
        ended = [
            one
            for one in (change.body.get("status") or {}).get("conditions", ())
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        ]
        if not ended or spec.get("ttlSecondsAfterFinished") is None:
            self.complain(f"the operator has deleted job {meta['name']}, whose time had not begun to run out")
            return
        now = self.world.loop.time()
        since = next((when for when, body in self._statuses[meta["uid"]] if _has_ended(body)), now)
        told = datetime.fromisoformat(ended[0]["lastTransitionTime"]).timestamp() - EPOCH
        if now - told < spec["ttlSecondsAfterFinished"] - CLOCKS_APART_SECONDS:
            self.complain(f"the operator has deleted job {meta['name']} before its time")
        if not told - CLOCKS_APART_SECONDS <= since <= told + LATE_SECONDS:
            self.complain(f"job {meta['name']} has ended at {since:.0f} s, and its status tells {told:.0f} s")

    # --- what is asked

    def _hear(self, call: Call) -> None:
        """Only who holds its Lease acts."""
        if call.method == "GET" or call.plural in ("leases", "events", "podtemplates", ""):
            return
        operator = self._by_operator(call.client)
        if operator is None or self._woken(call.client, call.sent_at):
            return
        self._check_guard(call, operator)
        known = self._leases[operator.options.lease_name]
        holder = next(holder for when, holder in reversed(known) if when <= call.sent_at)
        if holder not in ("", operator.identity) and call.sent_at - self._lease_gone_at > WOKEN_SECONDS:
            what = f"{call.method} {call.plural} {call.name}"
            self.complain(f"{operator.identity} acts while {holder} holds the Lease: {what}")

    def _check_guard(self, call: Call, operator: Operator) -> None:
        """An operator names by its uid what it takes away or ends: another may have the name when that arrives."""
        body = call.body or {}
        named = body.get("preconditions", {}) if call.method == "DELETE" else body.get("metadata", {})
        guarded = call.method == "DELETE" or (call.method, call.plural) == ("PATCH", "pods")
        if guarded and not named.get("uid"):
            self.complain(f"{operator.identity} asks for {call.method} {call.plural} {call.name} and names no uid")

    def _woken(self, client: str, sent_at: float) -> bool:
        operator = self._by_operator(client)
        return operator is not None and 0 <= sent_at - operator.process.woken_at <= WOKEN_SECONDS

    def _status_at(self, uid: str, when: float) -> Object | None:
        """The job as it was stored then."""
        return next((body for stored, body in reversed(self._statuses.get(uid, ())) if stored <= when), None)

    def _is_gone(self, uid: str) -> bool:
        return uid not in self.world.server.store.uids


def owners_of(body: Object) -> list[Object]:
    return body["metadata"].get("ownerReferences") or []


def _has_ended(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)
