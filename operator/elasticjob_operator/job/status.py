"""Between an ElasticJob's status and the state machine's state, and what people read of it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import (
    Challenge,
    Condition,
    ElasticJobSpec,
    ElasticJobStatus,
    MatchedRule,
    Members,
    NodeFailures,
    Progress,
    RendezvousStatus,
    RoundRecord,
)
from elasticjob.objects import Object
from elasticjob.rendezvous import Decision, Failures, Matched, PodState, Spec, State, Worker, roster_of
from elasticjob.rendezvous.backoff import delay_of
from elasticjob.rendezvous.barrier import silent_starts
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.roster import current, has_joined
from elasticjob.rendezvous.sizes import largest_size, min_members
from elasticjob.terms import Outcome, RendezvousPhase, RoundCause
from elasticjob_operator.job.drain import Budget
from elasticjob_operator.job.finishing import CONTAINER_FAILED, CONTAINERS_RUN, FINISHING, Finishing, succeeded
from elasticjob_operator.job.network import CONNECTED, FAULT, REACHABLE, Network
from elasticjob_operator.job.quota import UNLIMITED, Allowance
from elasticjob_operator.job.silent_starts import silence
from elasticjob_operator.job.stalls import EXCEEDED, PROGRESSING, Hang
from elasticjob_operator.job.starts import Start
from elasticjob_operator.job.waiting import Reason, Wait
from elasticjob_operator.objects.pods import selector

HISTORY_LENGTH = 5  # `kubectl describe` takes seven lines for each
MISSING_SHOWN = 3
INVALID_SHOWN = 3
ORDER = {reason: severity for severity, reason in enumerate(Reason)}
RENDEZVOUSED, ALL_FINISHED = "Rendezvoused", "AllFinished"

Truth = Literal["True", "False"]


class Finding(NamedTuple):
    """A condition before it has a time."""

    type: str
    status: Truth
    reason: str
    message: str


class Report(NamedTuple):
    """All that a status is made of; `ready` are those whose pods are, `waits` are those of wanted workers, by index;
    `allowance`: what the quota makes of the spec; `started`: since when trainers run, while the time runs in which
    their torchruns have to speak."""

    job: Object
    spec: ElasticJobSpec
    workers: tuple[Worker, ...]
    ready: frozenset[PodKey]
    decision: Decision
    before: ElasticJobStatus
    problem: str | None
    refusal: str | None
    term: int
    now: str
    progress: Progress | None = None
    waits: Mapping[int, Wait] = MappingProxyType({})
    hang: Hang = Hang()
    network: Network = Network()
    start: Start = Start()
    finishing: Finishing = Finishing()
    node_failures: tuple[NodeFailures, ...] = ()
    allowance: Allowance = UNLIMITED
    started: Mapping[PodKey, str] = MappingProxyType({})
    budget: Budget = Budget.CLOSED

    @property
    def limited(self) -> ElasticJobSpec:
        """The spec that the rendezvous is held to."""
        return self.allowance.of(self.spec)

    @property
    def bounds(self) -> Spec:
        return rendezvous_spec(self.limited)

    @property
    def suspended(self) -> bool:
        """By the user, or as its quota is gone."""
        return self.spec.suspend or self.allowance.suspends


def status_of(report: Report) -> ElasticJobStatus:
    """The status after `report.decision`; `report.now` is wall-clock time in RFC 3339, for people only."""
    state = report.decision.state
    failed = (PodState.FAILED, PodState.OOM_KILLED)
    alive = [one for one in current(state, report.workers).values() if not one.deleting and one.pod not in failed]
    beside = _without_place(report)
    placed = [one.pod_key for one in alive if one.pod_key not in beside]
    findings = tuple(_findings(report))
    return ElasticJobStatus(
        observed_generation=report.job["metadata"].get("generation"),
        phase=_phase(state, report.spec, alive),
        reason=_reason(report, next(one for one in findings if one.type == RENDEZVOUSED)),
        conditions=_conditions(findings, report),
        replicas=len(placed),
        ready_replicas=len(report.ready.intersection(placed)),
        spares=state.spares,
        selector=selector(report.job["metadata"]["name"]),
        starting=_starts(report),
        restarts=state.restarts,
        term=report.term,
        rendezvous=RendezvousStatus(
            round=state.round,
            phase=state.phase,
            world_size=len(state.participants) if state.phase is RendezvousPhase.FORMED else 0,
            waiting=state.waiting,
            participants=Members(state.participants),
            replicas=state.replicas,
            leaving=Members(state.leaving),
            finished=Members(state.finished),
            finishing=Members(state.finishing),
            stage=state.stage,
            scripts=state.scripts,
            failure=state.failure,
            matched_rule=_matched_rule(state.matched),
            given_up=Members(state.given_up),
            planned=state.planned,
            stalled=report.hang.stalled if report.hang.stalled == state.round else 0,
            challenge=Challenge(number=state.challenge, members=Members(state.challenged)),
            store=state.store,
            reason=state.reason,
            cause=state.cause,
            outcome=state.outcome,
        ),
        replacements=dict(state.replacements),
        progress=report.progress,
        node_failures=report.node_failures,
        history=_history(report),
    )


def _matched_rule(matched: Matched | None) -> MatchedRule | None:
    return matched and MatchedRule(index=matched.rule, action=matched.action, message=matched.why)


def _without_place(report: Report) -> frozenset[PodKey]:
    """Spares, and who comes for a member whose node drains, until it has its place: an autoscaler must not see more
    than are wanted."""
    if not report.spec.spare_replicas and not any(worker.draining for worker in report.workers):
        return frozenset()
    state = report.decision.state
    roster = roster_of(report.bounds, state, report.workers)
    places = max(0, report.bounds.replicas - len(state.done))
    return frozenset(worker.pod_key for worker in (*roster.spares, *roster.kept[places:]))


def _starts(report: Report) -> bool:
    """A round that has just been formed does, and before that no other is."""
    state = report.decision.state
    stands = state.phase is RendezvousPhase.FORMED or state.outcome is Outcome.CLOSED
    return stands and not report.finishing.waits and (report.decision.formed_after is not None or report.start.starting)


def _history(report: Report) -> tuple[RoundRecord, ...]:
    decision, state, history = report.decision, report.decision.state, report.before.history
    if report.start.seconds is not None:
        history = (*history[:-1], history[-1].model_copy(update={"started": report.start.seconds}))
    if report.finishing.waits and state.phase is not RendezvousPhase.FORMING and history:
        history = (*history[:-1], succeeded(history[-1], report.now))
    if decision.formed_after is None:
        return history
    record = RoundRecord(
        round=state.round,
        size=len(state.participants),
        cause=state.cause,
        reason=state.reason,
        counted=state.restarts > report.before.restarts,
        seconds=round(decision.formed_after, 3),
        time=report.now,
    )
    return (*history, record)[-HISTORY_LENGTH:]


def _phase(state: State, spec: ElasticJobSpec, alive: list[Worker]) -> str:
    if state.ended:
        return "Complete" if state.outcome is Outcome.COMPLETE else "Failed"
    if spec.suspend and state.phase is not RendezvousPhase.CLOSED:
        return "Suspended"
    if state.phase is not RendezvousPhase.FORMING:
        return "Running"
    return "Forming" if state.last_formed or any(worker.pod is PodState.RUNNING for worker in alive) else "Pending"


def _findings(report: Report) -> Iterator[Finding]:
    state, problem = report.decision.state, report.problem
    yield Finding("TemplateValid", "False" if problem else "True", "Invalid" if problem else "Valid", problem or "")
    yield _rendezvoused(report)
    if report.spec.progress_deadline_seconds is not None:
        yield _progressing(report.hang)
    if report.network.sentence:
        yield Finding(CONNECTED, "False", FAULT, report.network.sentence)
    elif _had_condition(CONNECTED, report):
        yield Finding(CONNECTED, "True", REACHABLE, "")
    if report.finishing.message:
        reason = CONTAINER_FAILED if report.finishing.failed else CONTAINERS_RUN
        yield Finding(FINISHING, "True" if report.finishing.waits else "False", reason, report.finishing.message)
    elif _had_condition(FINISHING, report):
        yield Finding(FINISHING, "False", "NothingAwaited", "")
    if state.ended:
        complete = state.outcome is Outcome.COMPLETE
        yield Finding("Complete" if complete else "Failed", "True", _how_it_ended(state), state.reason)
    if report.spec.suspend and state.phase is RendezvousPhase.CLOSED:
        yield Finding("Suspended", "False", "Closed", "spec.suspend is true, and no other round can follow the last")
    elif report.spec.suspend:
        yield Finding("Suspended", "True", "Suspended", "spec.suspend is true")
    elif _had_condition("Suspended", report):
        yield Finding("Suspended", "False", "Resumed", "")
    if problems := _invalid_records(report):
        yield Finding("WorkersValid", "False", "InvalidRecord", problems)
    elif _had_condition("WorkersValid", report):
        yield Finding("WorkersValid", "True", "Valid", "")


def _progressing(hang: Hang) -> Finding:
    if hang.sentence:
        return Finding(PROGRESSING, "False", EXCEEDED, hang.sentence)
    return Finding(PROGRESSING, "True", "WithinDeadline", "")


def _had_condition(type: str, report: Report) -> bool:
    return any(condition.type == type for condition in report.before.conditions)


def _invalid_records(report: Report) -> str:
    """Which ElasticWorkers count for nothing, and why; the first few of them."""
    if not any(worker.invalid for worker in report.workers):
        return ""
    workers = current(report.decision.state, report.workers)
    bad = [workers[index] for index in sorted(workers) if workers[index].invalid and not workers[index].deleting]
    shown = [f"worker {worker.index}: {worker.invalid}" for worker in bad[:INVALID_SHOWN]]
    return "; ".join(shown + ([f"and {len(bad) - len(shown)} more"] if len(bad) > len(shown) else []))


def waits_of(spec: Spec, state: State, workers: Iterable[Worker], waits: Mapping[PodKey, Wait]) -> dict[int, Wait]:
    """By index, the waits of wanted workers, and of those whose next pod is held back. While a round stands also those
    of spares, unless their pods just start."""
    failures = state.clocks.failures
    if not waits and not failures:
        return {}
    roster = roster_of(spec, state, workers)
    found = {worker.index: waits.get(worker.pod_key) for worker in roster.missing}
    found |= {index: _held_back(failures[index]) for index in roster.owed if index in failures}
    if state.phase is RendezvousPhase.FORMED:
        spares = {worker.index: waits.get(worker.pod_key) for worker in roster.spares if not has_joined(state, worker)}
        spares |= {index: _held_back(failures[index]) for index in roster.owed_spares if index in failures}
        found |= {index: wait._replace(spare=True) for index, wait in spares.items() if wait and wait.is_news}
    return {index: wait for index, wait in sorted(found.items()) if wait}


def _held_back(failures: Failures) -> Wait | None:
    if not delay_of(failures):
        return None
    return Wait(Reason.POD_BACK_OFF, f"its pods failed {failures.in_a_row} times in a row: {failures.why}")


def _reason(report: Report, rendezvoused: Finding) -> str:
    """Why the job waits, or has ended, in one word; empty while all wanted workers train."""
    if report.decision.state.outcome is not None:
        return _how_it_ended(report.decision.state)
    if report.finishing.waits and not _obstacle(report):
        return FINISHING
    if rendezvoused.status != "True":
        return rendezvoused.reason
    if report.network.sentence:
        return FAULT
    return EXCEEDED if report.hang.sentence else _obstacle(report) or ""


def _how_it_ended(state: State) -> str:
    """In one word; that of the policy for failures is batch/v1's."""
    if state.cause == RoundCause.POD_FAILURE_POLICY:
        return state.cause
    return ALL_FINISHED if state.outcome is Outcome.COMPLETE else str(state.outcome)


def _obstacle(report: Report) -> Reason | None:
    """The worst of all that keeps workers away."""
    found = {wait.reason for wait in report.waits.values()}
    found |= {Reason.TEMPLATE_INVALID} if report.problem else set()
    found |= {Reason.POD_REFUSED} if report.refusal else set()
    found |= {Reason.QUOTA_PENDING} if report.allowance.told else set()
    found |= {Reason.INVALID_RECORD} if _invalid_records(report) else set()
    return next((reason for reason in Reason if reason in found), None)


def _rendezvoused(report: Report) -> Finding:
    state, name = report.decision.state, RENDEZVOUSED
    if state.phase is RendezvousPhase.CLOSED:
        return Finding(name, "False", "Closed", state.reason)
    if state.phase is RendezvousPhase.FORMED:
        formed = f"round {state.round} of {len(state.participants)}: {state.reason}"
        return Finding(name, "True", "Formed", "; ".join([formed, *_obstacles(report), *_left_over(report)]))
    if report.spec.suspend:
        return Finding(name, "False", "Suspended", "")
    if report.allowance.suspends:
        return Finding(name, "False", Reason.QUOTA_PENDING, "; ".join(_obstacles(report)))
    roster = roster_of(report.bounds, state, report.workers)
    least = min_members(report.bounds, state)
    message = f"{len(roster.joined)} of {roster.wanted} workers have joined (at least {least} must)"
    reason = Reason.FORMING if len(roster.joined) >= least else Reason.INSUFFICIENT_MEMBERS
    if silent := silent_starts(roster.missing):
        seconds = report.spec.rendezvous.start_timeout_seconds
        message += f"; {silence(silent, report.started, seconds, enough=len(roster.joined) >= least)}"
    told = [message, *_obstacles(report)]
    return Finding(name, "False", _obstacle(report) or reason, "; ".join(told))


def _obstacles(report: Report) -> list[str]:
    """What keeps workers away, the worst first, each cause once with the first few that it keeps."""
    found = [f"no pod can be made: {report.problem}"] if report.problem else []
    found += [f"a pod cannot be made: {report.refusal}"] if report.refusal else []
    found += [report.allowance.told] if report.allowance.told else []
    found += [evictions(report.spec)] if report.budget is Budget.OPEN else []
    kept: dict[Wait, list[int]] = {}
    for index, wait in sorted(report.waits.items(), key=lambda item: (ORDER[item[1].reason], item[0])):
        if wait.is_news or report.decision.state.phase is RendezvousPhase.FORMING:
            kept.setdefault(wait._replace(crashes=0), []).append(index)
    shown = islice(kept.items(), MISSING_SHOWN)
    return found + [f"{_who(report.spec, wait, indices)}: {wait.sentence}" for wait, indices in shown]


def evictions(spec: ElasticJobSpec) -> str:
    """Once the grace of a drain is over."""
    return (
        f"its pods may be evicted: spec.drain.graceSeconds, {spec.drain.grace_seconds} s, are over on a node that goes"
    )


def _left_over(report: Report) -> Iterator[str]:
    """Who waits as no round may have one more."""
    state, bounds = report.decision.state, report.bounds
    members = len(state.participants)
    if not bounds.sizes or state.done or not state.waiting:
        return
    if largest_size(bounds, state, members + state.waiting) <= members:
        larger = min((size for size in bounds.sizes if size > members), default=members)
        wait = "worker waits" if state.waiting == 1 else "workers wait"
        yield f"{state.waiting} {wait}: the next larger size that spec.sizes allows is {larger}"


def _who(spec: ElasticJobSpec, wait: Wait, indices: list[int]) -> str:
    if not wait.several:
        return _names(wait.whose, indices)
    return f"{len(indices)} of {spec.spare_replicas if wait.spare else spec.replicas} {wait.whose}s {wait.several}"


def _names(whose: str, indices: list[int]) -> str:
    if len(indices) == 1:
        return f"{whose} {indices[0]}"
    more = len(indices) - MISSING_SHOWN
    return f"{whose}s {', '.join(map(str, indices[:MISSING_SHOWN]))}" + (f" and {more} more" if more > 0 else "")


def _conditions(findings: tuple[Finding, ...], report: Report) -> tuple[Condition, ...]:
    known = {condition.type: condition for condition in report.before.conditions}

    def timed(finding: Finding) -> Condition:
        before = known.get(finding.type)
        same = before is not None and before.status == finding.status
        return Condition(
            **finding._asdict(),
            observed_generation=report.job["metadata"].get("generation"),
            last_transition_time=before.last_transition_time if same and before else report.now,
        )

    return tuple(timed(finding) for finding in findings)
