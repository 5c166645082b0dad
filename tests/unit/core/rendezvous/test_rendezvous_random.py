# SPDX-License-Identifier: Apache-2.0
"""Random lives of jobs with up to eight workers: no order of events breaks an invariant, nothing depends on the order
in which workers are listed, each round and loss has a word, and calm leads to Formed or Closed. `tests/model` goes
through small jobs completely."""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from elasticjob.rendezvous import Clocks, Matched, PodState, Request, State, Worker, decide
from elasticjob.terms import PolicyAction, RendezvousPhase, RequestCause, RequestType
from support.job_on_paper import WORDS, JobOnPaper

MAX_WORKERS = 8
CAUSES = st.sampled_from(
    [RequestCause.STARTED, RequestCause.WORKER_FAILED, RequestCause.MEMBERSHIP_CHANGED, RequestCause.RENEWED]
)
LEAVES = st.sampled_from(
    [
        RequestCause.AGENT_LOST,
        RequestCause.STORE_NOT_READY,
        RequestCause.TRAINER_LEFT,
        RequestCause.POD_STOPPING,
        RequestCause.WORKER_FAILED,
        RequestCause.MEMBERSHIP_CHANGED,
    ]
)
FAULTS = st.sampled_from([state for state in PodState if state is not PodState.RUNNING])
MENDED: dict[str, object] = {"request": None, "heartbeat": 0, "invalid": "", "rejected": False}
SENSELESS: dict[str, object] = {"id": None, "request": None, "heartbeat": None, "invalid": "spec.id is no id"}
ACTIONS = [PolicyAction.IGNORE, PolicyAction.COUNT, PolicyAction.FAIL_JOB, PolicyAction.IGNORE, PolicyAction.COUNT]
MATCHED = st.sampled_from([None, *(Matched(place, action, "it matches") for place, action in enumerate(ACTIONS))])
SPARES = st.sampled_from([0, 0, 1, 2])
LABELS = st.sampled_from(["", "a", "b"])
NUMBER = st.integers(0, 3 * MAX_WORKERS)


def agreed(state: State) -> State:
    """`state` without what may depend on the order of the workers: that of lists, and texts."""
    leaving, finished = tuple(sorted(state.leaving)), tuple(sorted(state.finished))
    clocks = replace(state.clocks, beats={}, leaving={})
    return replace(state, leaving=leaving, finished=finished, clocks=clocks, reason="")


class JobLife(RuleBasedStateMachine):
    """Every rule ends in a `decide` whose invariants `JobOnPaper` asserts, but those that the operator sees later."""

    def __init__(self) -> None:
        super().__init__()
        self.job = JobOnPaper(replicas=1)
        self.unseen = 0

    @initialize(
        replicas=st.integers(1, MAX_WORKERS),
        spares=SPARES,
        least=st.integers(1, MAX_WORKERS),
        trains=st.booleans(),
        laid_out=st.booleans(),
        multiple=st.sampled_from((0, 0, 2, 3)),
    )
    def begins(self, replicas: int, spares: int, least: int, trains: bool, laid_out: bool, multiple: int) -> None:
        self.multiple = multiple
        size = self.sized(replicas)
        least = min(least, size["replicas"])
        keys = ("zone", "rack") if laid_out else ()
        self.job = JobOnPaper(spares=spares, min_replicas=least, max_restarts=3, rank_order=keys, **size)
        if trains:
            self.job.up(*range(min(replicas, size["replicas"])))

    def sized(self, replicas: int) -> dict[str, Any]:
        """As a job may be scaled: to a size that it may have."""
        sizes = tuple(range(self.multiple, MAX_WORKERS + 1, self.multiple)) if self.multiple else ()
        replicas = min((size for size in sizes if size >= replicas), default=sizes[-1]) if sizes else replicas
        return {"replicas": replicas, "sizes": tuple(size for size in sizes if size <= replicas)}

    def some(self, number: int) -> Worker:
        workers = list(self.job.workers.values())
        return workers[number % len(workers)]

    def set(self, worker: Worker, **changes: object) -> None:
        pod_key = (worker.index, worker.replacement)
        self.job.workers[pod_key] = replace(worker, **changes)  # type: ignore[arg-type]
        self.look()

    def look(self) -> None:
        if self.unseen:
            self.unseen -= 1
            return
        job = self.job
        backwards = decide(job.spec, job.state, tuple(reversed(job.workers.values())), job.now)
        decision = job.step()
        assert agreed(decision.state) == agreed(backwards.state)

    def joins(self, after: int, cause: str = "", *, live: bool = False) -> Request:
        """By a torchrun of the job's stage."""
        return Request(type=RequestType.JOIN, after=after, cause=cause, stage=self.job.state.stage, live=live)

    has_pods = precondition(lambda self: self.job.workers)

    @rule(unseen=st.integers(1, 5))
    def operator_is_slow(self, unseen: int) -> None:
        """It sees the next events together."""
        self.unseen = unseen

    @rule(replicas=st.integers(1, MAX_WORKERS))
    def scale(self, replicas: int) -> None:
        wanted = self.sized(max(replicas, self.job.spec.min_replicas))
        self.job.spec = replace(self.job.spec, **wanted)
        self.look()

    @rule(spares=SPARES)
    def scale_spares(self, spares: int) -> None:
        self.job.spec = replace(self.job.spec, spares=spares)
        self.look()

    @rule(laid_out=st.booleans())
    def rank_order_changes(self, laid_out: bool) -> None:
        self.job.spec = replace(self.job.spec, rank_order=("zone", "rack") if laid_out else ())
        self.look()

    @rule(at=st.sampled_from(["", "noon", "midnight"]))
    def restart(self, at: str) -> None:
        self.job.spec = replace(self.job.spec, restarted_at=at)
        self.look()

    @rule(suspended=st.booleans())
    def suspend(self, suspended: bool) -> None:
        self.job.spec = replace(self.job.spec, suspend=suspended)
        self.look()

    @has_pods
    @rule(number=NUMBER)
    def sidecar_starts(self, number: int) -> None:
        worker = self.some(number)
        self.set(worker, pod=PodState.RUNNING, id=self.job.new_id(worker.pod_key), **MENDED)

    @has_pods
    @rule(number=NUMBER, cause=CAUSES, behind=st.integers(0, 2), live=st.booleans())
    def join(self, number: int, cause: RequestCause, behind: int, live: bool) -> None:
        worker = self.some(number)
        if worker.id is not None:
            after = max(0, self.job.state.last_formed - behind)
            self.set(worker, request=self.joins(after, cause, live=live))

    @rule(but=NUMBER)
    def all_opt_in(self, but: int) -> None:
        """All but one."""
        for number, worker in enumerate(list(self.job.workers.values())):
            if number != but and worker.pod_key in self.job.workers:
                self.set(self.job.workers[worker.pod_key], live_in=self.job.state.round)

    @has_pods
    @rule(number=NUMBER)
    def record_turns_bad(self, number: int) -> None:
        self.set(self.some(number), **SENSELESS)

    @rule(live=st.booleans())
    def all_join(self, live: bool) -> None:
        for worker in list(self.job.workers.values()):
            join = self.joins(self.job.state.last_formed, RequestCause.MEMBERSHIP_CHANGED, live=live)
            if not self.trains(worker) and (worker.index, worker.replacement) in self.job.workers:
                id = worker.id or self.job.new_id(worker.pod_key)
                self.set(worker, pod=PodState.RUNNING, id=id, request=join, invalid="", rejected=False)

    @has_pods
    @rule(number=NUMBER, cause=LEAVES)
    def leave(self, number: int, cause: RequestCause) -> None:
        self.set(self.some(number), request=Request(type=RequestType.LEAVE, cause=cause))

    @has_pods
    @rule(number=NUMBER)
    def finish(self, number: int) -> None:
        worker = self.some(number)
        if worker.member in self.job.state.participants:
            state = self.job.state
            self.set(worker, request=Request(type=RequestType.FINISH, round=state.last_formed, stage=state.stage))

    @has_pods
    @rule(number=NUMBER)
    def container_ends_in_success(self, number: int) -> None:
        worker = self.some(number)
        if worker.asks(RequestType.FINISH):
            self.set(worker, pod=PodState.SUCCEEDED)

    @has_pods
    @rule(number=NUMBER)
    def container_fails_after_success(self, number: int) -> None:
        worker = self.some(number)
        if worker.asks(RequestType.FINISH):
            self.set(worker, pod=PodState.CRASH_LOOP, crashes=worker.crashes + 1)

    @has_pods
    @rule(number=NUMBER)
    def next_torchrun(self, number: int) -> None:
        worker = self.some(number)
        if worker.asks(RequestType.FINISH) and worker.pod is PodState.RUNNING and worker.request:
            join = self.joins(self.job.state.last_formed, RequestCause.STARTED)
            self.set(worker, request=replace(join, stage=worker.request.stage + 1))

    @has_pods
    @rule(number=NUMBER, really=st.integers(0, 9))
    def close(self, number: int, really: int) -> None:
        if not really:  # or every life would be a short one
            self.set(self.some(number), request=Request(type=RequestType.CLOSE))

    @has_pods
    @rule(number=NUMBER, fault=FAULTS)
    def pod_fault(self, number: int, fault: PodState) -> None:
        worker = self.some(number)
        self.set(worker, pod=fault, crashes=worker.crashes + (fault is PodState.CRASH_LOOP))

    @has_pods
    @rule(number=NUMBER)
    def pod_evicted(self, number: int) -> None:
        self.set(self.some(number), pod=PodState.FAILED, disrupted=True)

    @has_pods
    @rule(number=NUMBER)
    def pod_rejected(self, number: int) -> None:
        self.set(self.some(number), pod=PodState.FAILED, rejected=True)

    @has_pods
    @rule(number=NUMBER, matched=MATCHED)
    def policy_matches(self, number: int, matched: Matched | None) -> None:
        self.set(self.some(number), matched=matched)

    @has_pods
    @rule(number=NUMBER)
    def template_changes(self, number: int) -> None:
        self.set(self.some(number), outdated=True)

    @has_pods
    @rule(number=NUMBER, goes=st.booleans())
    def node_drains(self, number: int, goes: bool) -> None:
        self.set(self.some(number), draining=goes)

    @has_pods
    @rule(number=NUMBER, labels=st.tuples(LABELS, LABELS, LABELS))
    def node_is_labelled(self, number: int, labels: tuple[str, ...]) -> None:
        self.set(self.some(number), topology=labels)

    @has_pods
    @rule(number=NUMBER)
    def training_hangs(self, number: int) -> None:
        """As the operator judges it anew in each step."""
        worker = self.some(number)
        self.set(worker, hung="no step")
        if (there := self.job.workers.get(worker.pod_key)) is not None:
            self.set(there, hung="")

    @has_pods
    @rule(number=NUMBER)
    def way_to_rank_0_is_cut(self, number: int) -> None:
        worker = self.some(number)
        self.set(worker, cut_off=not worker.cut_off)

    @has_pods
    @rule(number=NUMBER, ahead=st.integers(1, 2))
    def somebody_makes_a_pod(self, number: int, ahead: int) -> None:
        """By the name of one that may come next, and it joins."""
        job, index = self.job, self.some(number).index
        pod_key = (index, job.state.replacements.get(index, 0) + ahead)
        if pod_key not in job.workers:
            join = self.joins(job.state.last_formed, RequestCause.STARTED)
            id = job.new_id(pod_key)
            job.workers[pod_key] = Worker(index=index, replacement=pod_key[1], id=id, request=join)
            self.look()

    @has_pods
    @rule(number=NUMBER)
    def pod_deleted(self, number: int) -> None:
        self.set(self.some(number), deleting=True)

    @has_pods
    @rule(number=NUMBER)
    def pod_gone(self, number: int) -> None:
        worker = self.some(number)
        del self.job.workers[worker.index, worker.replacement]
        self.look()

    @has_pods
    @rule(number=NUMBER)
    def heartbeat(self, number: int) -> None:
        worker = self.some(number)
        self.set(worker, heartbeat=(worker.heartbeat or 0) + 1)

    @has_pods
    @rule(number=NUMBER, other=NUMBER)
    def suspects(self, number: int, other: int) -> None:
        suspected = self.some(other).member
        self.set(self.some(number), suspects=(suspected,) if suspected else ())

    @has_pods
    @rule(number=NUMBER)
    def answers(self, number: int) -> None:
        self.set(self.some(number), ack=self.job.state.ping)

    @rule(seconds=st.sampled_from([1, 6, 16, 31, 80, 700]))
    def time_passes(self, seconds: int) -> None:
        self.job.now += seconds
        self.look()

    @rule()
    def operator_restarts(self) -> None:
        self.job.state = replace(self.job.state, clocks=Clocks(opened=self.job.now, formed=self.job.now))
        self.look()

    def teardown(self) -> None:
        """Calm: pods come, sidecars live and answer, trainers join, and containers end in success after their torchrun
        has. The job then trains, or has ended."""
        job = self.job
        job.spec = replace(job.spec, suspend=False)
        job.step()
        for _ in range(4):
            for worker in list(job.workers.values()):
                self.calm(worker)
            job.now += job.spec.rejoin
            made = job.state.replacements  # a pod that somebody else has made counts for nothing
            job.beat(*{index for index, number in job.workers if number <= made.get(index, 0)})
            job.step()
        assert job.state.phase is not RendezvousPhase.FORMING, job.log[-5:]
        assert {word for _, word in job.words} <= WORDS, job.events

    def calm(self, worker: Worker) -> None:
        job, self.unseen = self.job, 0
        pod_key = (worker.index, worker.replacement)
        if pod_key not in job.workers:
            return
        if worker.deleting or worker.member in job.state.leaving:
            del job.workers[pod_key]
            job.step()
            return
        if worker.pod in (PodState.SUCCEEDED, PodState.FAILED):
            return
        if worker.index in job.state.done:
            self.set(worker, pod=PodState.SUCCEEDED)
            return
        join = self.joins(job.state.last_formed)
        request = worker.request if self.trains(worker) else join
        self.set(
            worker,
            pod=PodState.RUNNING,
            id=worker.id or job.new_id(worker.pod_key),
            request=request,
            invalid="",
            hung="",
            cut_off=False,
        )

    def trains(self, worker: Worker) -> bool:
        state = self.job.state
        return state.phase is RendezvousPhase.FORMED and worker.member in state.participants


TestJobLife = JobLife.TestCase
TestJobLife.settings = settings(max_examples=200, stateful_step_count=60, deadline=None, derandomize=True)
