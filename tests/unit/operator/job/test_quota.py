# SPDX-License-Identifier: Apache-2.0
"""Which Workloads a gang should have, and what they allow: by cases, and in random lives over a queue with a quota."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api import ElasticJobSpec
from elasticjob.blocker_reasons import Reason
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Clocks, Member, PodState, State, Worker
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_operator.job.quota import (
    NO_DEFAULT,
    TWICE,
    UNLIMITED,
    Need,
    Plan,
    There,
    allowance,
    allowed,
    assigned,
    explained,
    need_of,
    plan,
    there_of,
)
from elasticjob_operator.job.share import UNSEEN, Share, share_of
from elasticjob_operator.objects.admitted import of_check
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.objects.workloads import Ask, ask_of, render_workload
from support.operator_objects import Object, job

QUEUE = Ask("gpus", "low")
NEW = State(clocks=Clocks(opened=0, formed=0))
NOBODY = There()
NO_ROOM = "couldn't assign flavors to pod set workers: insufficient unused quota for pods in flavor anywhere"
DENIED = "Admission check(s): machines, were rejected"
TAKEN = "Preempted to accommodate a workload (UID: x) due to prioritization in the ClusterQueue"


def spec_of(**fields: Any) -> ElasticJobSpec:
    return ElasticJobSpec.parse(job(**{"quotaAdmission": "Gang", **fields})["spec"])


FOUR = spec_of(replicas=4, minReplicas=2)
NEEDS_FOUR = Need(4, 2)


def share(number: int, workers: int, least: int | None = None, **fields: Any) -> Share:
    ask = QUEUE._replace(workers=workers, least=workers if least is None else least)
    return Share(number, f"uid-{number}", ask, **fields)


def test_a_new_pod_takes_quota_where_most_is_left() -> None:
    shares = (share(0, 3, held=2), share(1, 3, held=3), share(2, 1), share(3, 2, held=2, lost=True))
    assert assigned(shares, [], 5) == [1, 0, 1, 0, 1]
    assert assigned(shares, [0, 1, 1, 1], 1) == [0], "as for who has lost a pod"
    assert assigned(shares, [0, 0, 1, 1, 1], 1) == [0], "beyond all quota, as beside one whose node is draining"
    assert assigned(shares, [3, 7], 1) == [1], "what others use does not count"
    assert assigned(shares[2:], [], 1) == []


def test_what_was_assigned_is_read_for_the_workers_alone() -> None:
    update = {"name": "workers", "nodeSelector": {"rack": "7"}}
    status = {
        "admission": {
            "podSetAssignments": [
                {"name": "others", "flavors": {"cpu": "none"}},
                {"name": "workers", "count": 2, "flavors": {"pods": "spot", "cpu": "any", "memory": "any"}},
            ]
        },
        "admissionChecks": [
            {"name": "machines", "podSetUpdates": [update, {"name": "others", "nodeSelector": {"rack": "8"}}]},
            {"name": "waits"},
        ],
    }
    workload = render_workload(job(), FOUR, SidecarImage("s", "Never"), 0, QUEUE._replace(workers=2, least=2), 10)
    workload["metadata"]["uid"] = "x"
    found = share_of(workload | {"status": status}, job(), FOUR.template_hash)
    assert found is not None
    assert found.flavors == ("any", "spot")
    assert found.checks == (of_check("machines", update),)


def test_a_new_job_asks_for_all_and_makes_no_pod() -> None:
    assert plan((), NEEDS_FOUR, NOBODY, QUEUE) == Plan(create=(0, QUEUE._replace(workers=4, least=2)))
    found = allowance(FOUR, NEW, NOBODY, ())
    assert found.suspends
    assert found.of(FOUR).suspend
    assert found.message == "4 workers wait for quota (at least 2 must have it)"


def test_what_waits_says_why() -> None:
    waiting = share(0, 4, 2, message=NO_ROOM)
    assert plan((waiting,), NEEDS_FOUR, NOBODY, QUEUE) == Plan()
    found = allowance(FOUR, NEW, NOBODY, (waiting,))
    assert found.message == f"4 workers wait for quota (at least 2 must have it): in the queue gpus: {NO_ROOM}"


def test_what_is_admitted_trains_and_the_rest_is_asked_for() -> None:
    first = share(0, 4, 2, held=3)
    assert plan((first,), NEEDS_FOUR, There(alive=3), QUEUE).create == (1, QUEUE._replace(workers=1, least=1))
    waiting = share(1, 1, message=NO_ROOM)
    found = allowance(FOUR, NEW, There(alive=3), (first, waiting))
    assert (found.suspends, found.of(FOUR).replicas, found.of(FOUR).min_replicas) == (False, 3, 2)
    assert found.message == f"1 of 4 workers wait for quota: in the queue gpus: {NO_ROOM}"
    assert allowance(FOUR, NEW, There(alive=3), (first, share(1, 1, held=1))).message == ""


def test_a_part_that_is_evicted_goes_when_its_pods_have() -> None:
    shares = (share(0, 4, 2, held=2), share(1, 2, 1, held=2, lost=True, message=TAKEN))
    found = allowance(FOUR, NEW, There(alive=4), shares)
    assert (found.suspends, found.replicas, found.message) == (False, 2, f"2 of 4 workers wait for quota: {TAKEN}")
    assert plan(shares, NEEDS_FOUR, There(alive=4), QUEUE) == Plan()
    assert plan(shares, NEEDS_FOUR, There(alive=2, leaving=2), QUEUE) == Plan()
    one_less = Plan(shrink=((shares[1], 1),))
    assert plan(shares, NEEDS_FOUR, There(alive=2, leaving=1), QUEUE) == one_less
    assert plan(shares, NEEDS_FOUR, There(alive=1, leaving=1), QUEUE) == one_less, "another is made for who has gone"
    assert plan(shares, NEEDS_FOUR, There(alive=2), QUEUE) == Plan(delete=shares[1:])
    assert plan(shares[:1], NEEDS_FOUR, There(alive=2), QUEUE).create == (1, QUEUE._replace(workers=2, least=1))


def test_with_fewer_than_the_group_needs_all_go_and_ask_anew_together() -> None:
    spec, need = spec_of(replicas=4, minReplicas=3), Need(4, 3)
    shares = (share(0, 4, 3, held=3, lost=True, message=TAKEN), share(1, 1, held=1))
    found = allowance(spec, NEW, There(alive=4), shares)
    assert found.suspends
    assert found.message == f"its quota is gone: {TAKEN}; it queues again when none of its pods is left"
    assert plan(shares, need, There(leaving=4), QUEUE) == Plan()
    assert plan(shares, need, There(leaving=2), QUEUE) == Plan(shrink=((shares[0], 1),))
    assert plan(shares, need, There(leaving=1), QUEUE) == Plan(delete=shares[:1])
    assert plan(shares, need, NOBODY, QUEUE) == Plan(delete=shares)
    assert plan((), need, NOBODY, QUEUE).create == (0, QUEUE._replace(workers=4, least=3))


def test_a_minimum_that_was_raised_is_asked_for_as_a_whole() -> None:
    shares = (share(0, 4, 2, held=3),)
    found = allowance(spec_of(replicas=4, minReplicas=4), NEW, There(alive=3), shares)
    assert plan(shares, Need(4, 4), There(leaving=2), QUEUE) == Plan(shrink=((shares[0], 2),))
    assert plan(shares, Need(4, 4), NOBODY, QUEUE) == Plan(delete=shares)
    assert found.message.startswith("its quota is gone: 4 workers are needed; ")


def test_a_minimum_above_what_is_held_leaves_a_round_that_stands_and_is_asked_for_beside_it() -> None:
    shares = (share(0, 8, 2, held=3),)
    for least in ({"minReplicas": 6}, {"sizes": {"step": 4}}):
        spec = spec_of(replicas=8, **least)
        need = need_of(spec, STANDS, There(alive=3))
        found = allowance(spec, STANDS, There(alive=3), shares)
        assert (found.suspends, found.replicas) == (False, 3)
        assert plan(shares, need, There(alive=2), QUEUE).shrink == (), "the lost member's is kept for its replacement"
        asked = plan(shares, need, There(alive=3), QUEUE).create
        assert asked == (1, QUEUE._replace(workers=5, least=need.least - 3))
        forms = replace(STANDS, phase=RendezvousPhase.FORMING)
        assert allowance(spec, forms, There(alive=3), shares).suspends
        less = (shares[0]._replace(held=2),)
        assert allowance(spec, STANDS, There(alive=3), less).suspends, "a member has none"


def test_a_scale_down_gives_back_the_newest_first_and_never_what_pods_use() -> None:
    shares = (share(0, 4, 2, held=4), share(1, 2, 1, held=2))
    assert plan(shares, Need(3, 2), There(alive=3, leaving=3), QUEUE) == Plan()
    assert plan(shares, Need(3, 2), There(alive=3, leaving=1), QUEUE) == Plan(delete=shares[1:])
    assert plan(shares, Need(3, 2), There(alive=3), QUEUE) == Plan(delete=shares[1:], shrink=((shares[0], 3),))


@pytest.mark.parametrize("lost", [False, True])
def test_a_pod_that_does_not_go_keeps_its_own_quota_and_no_more(lost: bool) -> None:
    held = share(0, 64, 8, held=64, lost=lost)
    assert plan((held,), Need(), There(leaving=1), QUEUE) == Plan(shrink=((held, 1),))


def test_a_suspended_or_ended_job_keeps_none() -> None:
    shares = (share(0, 4, 2, held=3), share(1, 1))
    ended = State(clocks=NEW.clocks, phase=RendezvousPhase.CLOSED, outcome=Outcome.COMPLETE)
    for need in (need_of(spec_of(replicas=4, suspend=True), NEW, NOBODY), need_of(FOUR, ended, NOBODY)):
        assert need == Need()
        assert plan(shares, need, There(leaving=1), QUEUE) == Plan(delete=shares[1:], shrink=((shares[0], 1),))
        assert plan(shares, need, NOBODY, QUEUE) == Plan(delete=shares)
        assert plan((), need, NOBODY, QUEUE) == Plan()
    for left in ((), shares):
        assert allowance(spec_of(replicas=4, suspend=True), NEW, NOBODY, left) == UNLIMITED


def test_a_closed_rendezvous_keeps_what_it_has_and_asks_for_no_more() -> None:
    closed = State(clocks=NEW.clocks, phase=RendezvousPhase.CLOSED, outcome=Outcome.CLOSED)
    there = There(alive=2)
    need = need_of(FOUR, closed, there)
    assert plan((share(0, 4, 2, held=2), share(1, 2)), need, there, QUEUE).delete == (share(1, 2),)
    assert not plan((share(0, 4, 2, held=2),), need, there, QUEUE).create
    assert not allowance(FOUR, closed, there, (share(0, 4, 2, held=2, lost=True),)).suspends


def test_who_has_finished_needs_no_quota() -> None:
    state = State(clocks=NEW.clocks, finished=(Member(0, "a"), Member(1, "b")))
    assert need_of(FOUR, state, NOBODY) == Need(2, 1)
    found = allowance(FOUR, state, There(alive=2), (share(0, 4, 2, held=2),))
    assert (found.replicas, found.message) == (4, "")


def test_spares_have_what_is_left() -> None:
    spec = spec_of(replicas=4, minReplicas=2, spareReplicas=2)
    assert need_of(spec, NEW, NOBODY) == Need(6, 2)
    for held, replicas, spares in ((3, 3, 0), (5, 4, 1), (6, 4, 2)):
        limited = allowance(spec, NEW, NOBODY, (share(0, 6, 2, held=held),)).of(spec)
        assert (limited.replicas, limited.spare_replicas) == (replicas, spares)


def test_no_less_is_asked_for_than_a_round_of_the_next_size_takes() -> None:
    spec = spec_of(replicas=12, sizes={"step": 4})
    need = need_of(spec, NEW, NOBODY)
    assert plan((), need, NOBODY, QUEUE).create == (0, QUEUE._replace(workers=12, least=4))
    create = plan((share(0, 12, 4, held=6),), need, NOBODY, QUEUE).create
    assert create == (1, QUEUE._replace(workers=6, least=2))


def test_what_waits_for_another_number_keeps_its_place_in_the_queue() -> None:
    first, old = share(0, 4, 2, held=2), share(1, 3, 1)
    asked = plan((first, old), NEEDS_FOUR, There(alive=2), QUEUE)
    assert asked == Plan(change=(old, QUEUE._replace(workers=2, least=1)))


def test_what_waits_in_another_queue_or_has_quota_set_aside_is_made_anew() -> None:
    old, four = share(3, 4, 2), QUEUE._replace(workers=4, least=2)
    for other in (Ask("others", "low"), Ask("gpus", "high")):
        asked = plan((old,), NEEDS_FOUR, NOBODY, other)
        assert asked == Plan(delete=(old,), create=(4, other._replace(workers=4, least=2)))
    reserved = share(3, 3, 2, reserved=True)
    assert plan((reserved,), NEEDS_FOUR, NOBODY, QUEUE) == Plan(delete=(reserved,), create=(4, four))
    assert plan((share(3, 4, 2, reserved=True),), NEEDS_FOUR, NOBODY, QUEUE) == Plan()


def test_what_kueue_refuses_is_deleted_and_said() -> None:
    refused = share(0, 4, 2, lost=True, ended=True, message=DENIED)
    assert plan((refused,), NEEDS_FOUR, NOBODY, QUEUE) == Plan(delete=(refused,))
    told = allowance(FOUR, NEW, NOBODY, (refused,)).message
    assert told == f"4 workers wait for quota (at least 2 must have it): in the queue gpus: {DENIED}"
    rest = (share(0, 4, 2, held=3), share(1, 1, lost=True, ended=True, message=DENIED))
    told = allowance(FOUR, NEW, There(alive=3), rest).message
    assert told == f"1 of 4 workers wait for quota: in the queue gpus: {DENIED}"


def test_a_gangs_pod_that_kueue_holds_back_is_at_fault() -> None:
    queued, starting = Wait(Reason.QUOTA_PENDING, "in the queue default"), Wait(Reason.POD_STARTING, "x")
    found = explained({0: queued, 1: starting}, FOUR)
    assert found[0] == Wait(Reason.SCHEDULING_GATED, f"{TWICE} (in the queue default): {NO_DEFAULT}")
    assert found[0].is_fault
    assert found[1] == starting
    assert explained({0: queued}, spec_of(quotaAdmission="Pods")) == {0: queued}


def test_without_a_queue_nothing_is_asked_for() -> None:
    assert plan((), NEEDS_FOUR, NOBODY, None) == Plan()


MEMBERS = tuple(Member(index, str(index)) for index in range(3))
STANDS = State(clocks=NEW.clocks, phase=RendezvousPhase.FORMED, participants=MEMBERS)
THREE = tuple(Worker(index=index, id=str(index)) for index in range(3))


@pytest.mark.parametrize(
    ("state", "gone", "replicas", "spares"),
    [
        (STANDS, THREE[2:], 2, 0),
        (replace(STANDS, leaving=MEMBERS[1:]), (), 1, 0),
        (replace(STANDS, replacements={1: 1}), (), 2, 0),
        (replace(STANDS, participants=MEMBERS[:2]), (), 2, 1),
        (replace(STANDS, finished=MEMBERS[:1]), (), 3, 0),
        (replace(STANDS, phase=RendezvousPhase.FORMING, participants=MEMBERS[:2]), (), 3, 0),
        (NEW, (), 3, 0),
    ],
    ids=["loss", "told to leave", "replaced", "newcomer", "finished", "forms again", "first round"],
)
def test_while_the_workloads_are_not_known_who_is_there_stays_and_nobody_comes(
    state: State, gone: tuple[Worker, ...], replicas: int, spares: int
) -> None:
    there = there_of(one for one in THREE if one not in gone)
    found = allowance(FOUR, state, there, None)
    assert (found.unknown, found.suspends, found.replicas, found.spares) == (True, False, replicas, spares)


def test_while_the_workloads_are_not_known_pods_that_are_not_the_jobs_or_go_keep_it_from_nothing() -> None:
    outdated = [replace(one, outdated=True) for one in THREE]
    deleted = [replace(one, deleting=True) for one in THREE]
    unknown = [replace(one, replacement=7) for one in THREE]
    for workers in ([], outdated, deleted, unknown):
        found = allowance(FOUR, NEW, there_of(workers), None)
        assert (found.suspends, found.unknown) == (True, True)


def test_pods_that_have_ended_use_none() -> None:
    workers = [
        Worker(index=0, pod=PodState.RUNNING),
        Worker(index=1, pod=PodState.FAILED),
        Worker(index=2, pod=PodState.PENDING, deleting=True),
    ]
    assert there_of(workers) == There(1, 1, tuple(workers[:1]))


# as Kueue shows them


def workload(number: int = 0, *, workers: int = 4, least: int = 2, **status: Any) -> Object:
    body = {**job(quotaAdmission="Gang"), "kind": "ElasticJob"}
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "low"}
    ask = ask_of(body)
    assert ask
    made = render_workload(
        body, spec_of(), SidecarImage("s", "Never"), number, ask._replace(workers=workers, least=least), 10
    )
    made["metadata"]["uid"] = f"uid-{number}"
    return made | ({"status": status} if status else {})


def read(body: Object) -> Share | None:
    return share_of(body, job(), spec_of().template_hash)


def condition(type: str, status: str, message: str = "") -> Object:
    return {"type": type, "status": status, "message": message}


def admission(count: int) -> Object:
    return {"podSetAssignments": [{"name": "workers", "count": count}]}


ADMITTED = [condition("QuotaReserved", "True"), condition("Admitted", "True")]
EVICTED, NO_MORE = condition("Evicted", "True", TAKEN), condition("Evicted", "False", TAKEN)


def test_a_workload_is_what_was_asked_for() -> None:
    assert read(workload()) == share(0, 4, 2, message=UNSEEN)
    assert read(workload(3, least=4)) == share(3, 4)
    whole = workload()
    del whole["spec"]["podSets"][0]["minCount"]
    assert read(whole) == share(0, 4, 2), "a Kueue without partial admission drops it, and would do so again"
    spec = workload(least=4)["spec"]
    assert "minCount" not in spec["podSets"][0]
    assert (spec["priority"], spec["priorityClassRef"]["name"], spec["queueName"]) == (10, "low", "gpus")


@pytest.mark.parametrize(
    ("status", "held", "lost", "said"),
    [
        ({"conditions": [condition("QuotaReserved", "False", NO_ROOM)]}, 0, False, NO_ROOM),
        ({"conditions": ADMITTED, "admission": admission(2)}, 2, False, UNSEEN),
        ({"conditions": [*ADMITTED, EVICTED], "admission": admission(2)}, 2, True, TAKEN),
        (
            {"conditions": [*ADMITTED, NO_MORE], "admission": admission(2)},
            2,
            False,
            UNSEEN,
        ),
        (
            {
                "conditions": [condition("QuotaReserved", "True"), condition("Admitted", "False", "a check")],
                "admission": admission(2),
            },
            0,
            False,
            "a check",
        ),
        (
            {"conditions": ADMITTED, "admission": admission(3), "reclaimablePods": [{"name": "workers", "count": 2}]},
            2,
            False,
            UNSEEN,
        ),
        (
            {"conditions": ADMITTED, "admission": admission(2), "reclaimablePods": [{"name": "workers", "count": 1}]},
            2,
            False,
            UNSEEN,
        ),
    ],
)
def test_what_kueue_says_of_it(status: Object, held: int, lost: bool, said: str) -> None:
    found = read(workload(**status))
    assert found
    assert (found.ask, found.held, found.lost, found.message) == (share(0, 4, 2).ask, held, lost, said)
    assert found.reserved == (said != NO_ROOM)


@pytest.mark.parametrize("type", ["Evicted", "Finished"])
def test_what_kueue_has_ended_without_quota_is_refused(type: str) -> None:
    waiting = condition("QuotaReserved", "False", NO_ROOM)
    found = read(workload(conditions=[waiting, condition(type, "True", DENIED)]))
    assert found == share(0, 4, 2, lost=True, ended=True, message=DENIED)
    assert found
    assert (found.refused, found.waits) == (True, False)


@pytest.mark.parametrize("reason", ["Inadmissible", "Misconfigured"])
def test_a_queue_that_admits_nothing_is_told_by_kueues_reason_and_by_no_wording(reason: str) -> None:
    said = "Queue gpus doesn't exist, which is what no queue is named"
    for kueues, expected in ((reason, True), ("Pending", False)):
        waiting = condition("QuotaReserved", "False", said) | {"reason": kueues}
        found = read(workload(conditions=[waiting]))
        assert found
        assert found.inadmissible is expected
        told = allowance(FOUR, NEW, NOBODY, [found])
        assert (told.refused, said in told.message) == (expected, True)


def test_a_reason_of_a_workload_that_has_quota_by_now_is_old() -> None:
    known = [condition("QuotaReserved", "True") | {"reason": "Inadmissible"}, condition("Admitted", "False")]
    found = read(workload(conditions=known))
    assert found
    assert not found.inadmissible


def test_what_gave_way_to_others_before_it_was_admitted_is_not_refused() -> None:
    preempted = condition("Evicted", "True", "Preempted to accommodate a workload") | {"reason": "Preempted"}
    found = read(workload(conditions=[preempted]))
    assert found
    assert (found.lost, found.refused, found.waits) == (True, False, False)


def test_one_of_another_template_is_lost_and_one_of_another_name_none() -> None:
    other = share_of(workload(conditions=ADMITTED, admission=admission(4)), job(), "another")
    assert other
    assert (other.held, other.lost, other.ended) == (4, True, False)
    foreign = workload()
    foreign["metadata"]["name"] = "digits-x"
    assert read(foreign) is None


# random lives


@dataclass
class QueuedJob:
    """A job, its pods, and a queue with a quota, as far as admission goes."""

    spec: ElasticJobSpec
    quota: int
    shares: dict[int, Share] = field(default_factory=dict)
    seen: tuple[Share, ...] = ()
    seen_all: bool = True
    alive: int = 0
    leaving: int = 0
    made: int = 0

    @property
    def taken(self) -> int:
        return sum(one.held for one in self.shares.values())

    def look(self) -> None:
        self.seen, self.seen_all = tuple(self.shares.values()), True

    def admit(self) -> None:
        """Kueue's turn: what waits, in its order, with as many as there is quota for."""
        for number, one in sorted(self.shares.items()):
            free = self.quota - self.taken
            if one.waits and free >= one.ask.least:
                self.shares[number] = one._replace(held=min(free, one.ask.workers))

    def evict(self, which: int) -> None:
        held = [number for number, one in sorted(self.shares.items()) if one.counts]
        if held:
            number = held[which % len(held)]
            self.shares[number] = self.shares[number]._replace(lost=True)

    def crash(self) -> None:
        if self.alive:
            self.alive, self.leaving = self.alive - 1, self.leaving + 1

    def end(self) -> None:
        self.leaving = max(0, self.leaving - 1)

    def scale(self, replicas: int) -> None:
        least = min(self.spec.min_replicas, replicas)
        self.spec = self.spec.model_copy(update={"replicas": replicas, "min_replicas": least})

    def change_quota(self, quota: int) -> None:
        """Also below what is taken: Kueue lets that run."""
        self.quota = quota

    def suspend(self) -> None:
        self.spec = self.spec.model_copy(update={"suspend": not self.spec.suspend})

    def work(self) -> None:
        """A step of the operator: pods by what it has seen, then Workloads; after a change it looks before the next."""
        if not self.seen_all:
            self.look()
        there = There(self.alive, self.leaving)
        limited = allowance(self.spec, NEW, there, self.seen).of(self.spec)
        room = 0 if limited.suspend else limited.replicas + limited.spare_replicas
        assert room <= allowed(self.seen), "never more pods than what is admitted and not evicted"
        assert limited.suspend or limited.min_replicas <= limited.replicas
        self.leaving += max(0, self.alive - room)
        self.alive = room
        self.apply(plan(self.seen, need_of(self.spec, NEW, there), there, QUEUE))

    def apply(self, todo: Plan) -> None:
        for one in todo.delete:
            del self.shares[one.number]
        for one, kept in todo.shrink:
            assert 0 < kept < one.held
            self.shares[one.number] = self.shares[one.number]._replace(held=kept)
        if todo.change:
            one, ask = todo.change
            if self.shares[one.number].waits:  # else Kueue refuses it
                self.shares[one.number] = one._replace(ask=ask)
        gave_back = [one for one in todo.delete if one.held] + [one for one, _ in todo.shrink]
        assert not gave_back or self.alive + self.leaving <= self.taken, "no quota goes back while its pods may run"
        if todo.create:
            number, ask = todo.create
            assert number not in self.shares
            self.made += 1
            self.shares[number] = Share(number, f"uid {self.made}", ask)
        self.seen_all = self.seen_all and todo == Plan()
        assert sum(one.waits for one in self.shares.values()) <= 1

    def settle(self) -> None:
        for _ in range(12):
            self.look()
            self.work()
            self.admit()
            self.leaving = 0

    def check_settled(self) -> None:
        need = need_of(self.spec, NEW, There(self.alive, self.leaving))
        held = [one for one in self.shares.values() if one.held]
        (waiting,) = [one for one in self.shares.values() if one.waits] or [None]
        assert all(one.counts for one in held)
        assert self.alive == self.taken <= need.workers
        assert self.alive >= need.least or not self.alive
        assert (waiting is None) == (self.alive == need.workers)
        if waiting:
            assert waiting.ask.workers == need.workers - self.alive
            assert waiting.ask.least > self.quota - self.taken, "it would have been admitted"


MOVES = st.one_of(
    st.sampled_from(["look", "work", "work", "admit", "end", "crash", "suspend"]).map(lambda name: (name,)),
    st.tuples(st.just("evict"), st.integers(0, 3)),
    st.tuples(st.just("scale"), st.integers(1, 6)),
    st.tuples(st.just("change_quota"), st.integers(0, 9)),
    st.just(("settle",)),
)


@st.composite
def specs(draw: st.DrawFn) -> ElasticJobSpec:
    replicas = draw(st.integers(1, 6))
    fields: dict[str, Any] = {"replicas": replicas, "minReplicas": draw(st.integers(1, replicas))}
    if draw(st.integers(0, 3)) == 0:
        fields["sizes"] = {"step": draw(st.integers(1, 3))}
    return spec_of(**fields, spareReplicas=draw(st.integers(0, 2)))


@given(specs(), st.integers(0, 9), st.lists(MOVES, max_size=60))
def test_quota_is_never_overdrawn_and_in_the_end_all_is_asked_for(
    spec: ElasticJobSpec, quota: int, moves: Iterable[tuple[Any, ...]]
) -> None:
    queued = QueuedJob(spec, quota)
    queued.settle()
    for name, *given_values in moves:
        getattr(queued, name)(*given_values)
    queued.settle()
    queued.check_settled()
