# SPDX-License-Identifier: Apache-2.0
"""A job's conditions and its reason, in sentences: what it waits for, and what keeps workers away. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from elasticjob.api import ElasticJobSpec
from elasticjob.blocker_reasons import ORDER, Reason
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import State, Worker, roster_of
from elasticjob.rendezvous.barrier import silent_starts, unspoken
from elasticjob.rendezvous.roster import Roster, current
from elasticjob.rendezvous.sizes import largest_size, min_members
from elasticjob.rendezvous.words import first_few, round_of
from elasticjob.terms import Outcome, RendezvousPhase, RoundCause
from elasticjob_operator.job.evictions import Budget, Protection, grace_over
from elasticjob_operator.job.finishing import CONTAINERS_RUN, FINISHING, FinishingFound
from elasticjob_operator.job.network import CONNECTED, FAULT, REACHABLE, Network
from elasticjob_operator.job.quota import Allowance
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.sidecars import NOT_READY, READY
from elasticjob_operator.job.stalls import PROGRESSING, Hang

MISSING_SHOWN = 3
INVALID_SHOWN = 3
RENDEZVOUSED, ALL_FINISHED = "Rendezvoused", "AllFinished"

Truth = Literal["True", "False"]


class UntimedCondition(NamedTuple):
    """A condition without its times."""

    type: str
    status: Truth
    reason: str
    message: str


def conditions_of(report: Report) -> Iterator[UntimedCondition]:
    state, problem = report.decision.state, report.problem
    yield UntimedCondition(
        "TemplateValid", "False" if problem else "True", "Invalid" if problem else "Valid", problem or ""
    )
    yield _rendezvoused(report)
    if report.spec.progress_deadline_seconds is not None:
        yield _progressing(report.of(Hang))
    yield from _since_first_fault(report, CONNECTED, FAULT, report.of(Network).sentence, REACHABLE)
    yield from _finishing(report)
    if state.ended:
        complete = state.outcome is Outcome.COMPLETE
        yield UntimedCondition("Complete" if complete else "Failed", "True", _how_it_ended(state), state.reason)
    yield from _suspended(report)
    yield from _since_first_fault(report, READY, NOT_READY, _sidecars_not_ready(report), "Ready")
    yield from _since_first_fault(report, "WorkersValid", "InvalidRecord", _invalid_records(report), "Valid")


def _since_first_fault(report: Report, type: str, reason: str, fault: str, well: str) -> Iterator[UntimedCondition]:
    """A condition that exists from its first fault on."""
    if fault:
        yield UntimedCondition(type, "False", reason, fault)
    elif _had_condition(type, report):
        yield UntimedCondition(type, "True", well, "")


def _finishing(report: Report) -> Iterator[UntimedCondition]:
    found = report.of(FinishingFound)
    if found.message:
        reason = Reason.CONTAINER_FAILED if found.failed else CONTAINERS_RUN
        yield UntimedCondition(FINISHING, "True" if found.waits else "False", reason, found.message)
    elif _had_condition(FINISHING, report):
        yield UntimedCondition(FINISHING, "False", "NothingAwaited", "")


def _suspended(report: Report) -> Iterator[UntimedCondition]:
    if report.spec.suspend and report.decision.state.phase is RendezvousPhase.CLOSED:
        yield UntimedCondition(
            "Suspended", "False", "Closed", "spec.suspend is true, and no other round can follow the last"
        )
    elif report.spec.suspend:
        yield UntimedCondition("Suspended", "True", "Suspended", "spec.suspend is true")
    elif _had_condition("Suspended", report):
        yield UntimedCondition("Suspended", "False", "Resumed", "")


def _progressing(hang: Hang) -> UntimedCondition:
    if hang.sentence:
        return UntimedCondition(PROGRESSING, "False", Reason.HUNG, hang.sentence)
    return UntimedCondition(PROGRESSING, "True", "WithinDeadline", "")


def _had_condition(type: str, report: Report) -> bool:
    return any(condition.type == type for condition in report.before.conditions)


def _invalid_records(report: Report) -> str:
    """The ElasticWorkers that are ignored, and why: the first few of them."""
    bad = invalid_records(report)
    shown = [f"worker {worker.index}: {worker.invalid}" for worker in bad[:INVALID_SHOWN]]
    return "; ".join(shown + ([f"and {len(bad) - len(shown)} more"] if len(bad) > len(shown) else []))


def invalid_records(report: Report) -> list[Worker]:
    """The workers whose ElasticWorkers are ignored, in the order of their indices."""
    if not any(worker.invalid for worker in report.workers):
        return []
    workers = current(report.decision.state, report.workers)
    return [workers[index] for index in sorted(workers) if workers[index].invalid and not workers[index].deleting]


def silent_workers(roster: Roster, report: Report) -> list[Worker]:
    """Workers that a forming round awaits and whose torchruns have not spoken, unless their sidecars say why."""
    explained = {index for index, wait in report.waits.items() if wait.reason is Reason.SIDECAR_NOT_READY}
    return [worker for worker in silent_starts(roster.awaited) if worker.index not in explained]


def silence_of(silent: list[Worker], roster: Roster, report: Report) -> str:
    """Which workers `silent` are, the result of `silent_workers`. Unless enough have joined without them, also when
    that ends the job: some time after the last of them has started, if that is known.

    The end is a time of day: a status is not rewritten for each second that passes.
    """
    subject, seconds = unspoken(one.index for one in silent), report.spec.rendezvous.start_timeout_seconds
    if len(roster.joined) >= min_members(report.bounds, report.decision.state):
        return subject
    since = max((report.started.get(one.pod_key, "") for one in silent), default="")
    if not since:
        return f"{subject}: once the other pods run it has {seconds} s (spec.rendezvous.startTimeoutSeconds)"
    ends = datetime.fromisoformat(since) + timedelta(seconds=seconds)
    return f"{subject}: the job fails at {ends:%Y-%m-%dT%H:%M:%SZ} (spec.rendezvous.startTimeoutSeconds is {seconds})"


def grouped(waits: Mapping[int, Wait]) -> list[tuple[Wait, list[int]]]:
    """Each cause once with all workers that it keeps away, the most severe first."""
    found: dict[tuple[object, ...], tuple[Wait, list[int]]] = {}
    for index in sorted(waits):
        wait = waits[index]
        known = found.setdefault((wait.reason, wait.message, wait.spare, wait.object), (wait, []))
        known[1].append(index)
    return sorted(found.values(), key=lambda one: (ORDER[one[0].reason], one[1][0]))


def reason_of(report: Report, conditions: tuple[UntimedCondition, ...]) -> str:
    """Why the job waits or has ended, in one word. Empty while all wanted workers train."""
    if report.decision.state.outcome is not None:
        return _how_it_ended(report.decision.state)
    if report.of(FinishingFound).waits and not _obstacle(report):
        return Reason.FINISHING
    rendezvoused = next(one for one in conditions if one.type == RENDEZVOUSED)
    if rendezvoused.status != "True":
        return rendezvoused.reason
    if report.of(Network).sentence:
        return FAULT
    return Reason.HUNG if report.of(Hang).sentence else _obstacle(report) or ""


def _how_it_ended(state: State) -> str:
    """The outcome in one word. The words for the failure policy and the deadline are those of batch/v1."""
    if state.cause in (RoundCause.POD_FAILURE_POLICY, RoundCause.DEADLINE_EXCEEDED):
        return state.cause
    return ALL_FINISHED if state.outcome is Outcome.COMPLETE else str(state.outcome)


def _obstacle(report: Report) -> Reason | None:
    """The most severe cause that keeps workers away."""
    found = {wait.reason for wait in report.waits.values()}
    found -= {Reason.NOT_JOINED} if report.decision.state.phase is RendezvousPhase.FORMING else set()
    found |= {Reason.TEMPLATE_INVALID} if report.problem else set()
    found |= {report.refusal.reason} if report.refusal else set()
    found |= {Reason.QUOTA_PENDING} if report.of(Allowance).message else set()
    found |= {Reason.INVALID_RECORD} if _invalid_records(report) else set()
    return next((reason for reason in Reason if reason in found), None)


def _rendezvoused(report: Report) -> UntimedCondition:
    state, name = report.decision.state, RENDEZVOUSED
    if state.phase is RendezvousPhase.CLOSED:
        return UntimedCondition(name, "False", "Closed", "; ".join([state.reason, *_undone_restart(report)]))
    if state.phase is RendezvousPhase.FORMED:
        formed = f"{round_of(state.round, len(state.participants))}: {state.reason}"
        sentences = [formed, *_obstacles(report), *_left_over(report), *_undone_restart(report)]
        return UntimedCondition(name, "True", "Formed", "; ".join(sentences))
    if report.spec.suspend:
        return UntimedCondition(name, "False", "Suspended", "")
    if report.of(Allowance).suspends:
        return UntimedCondition(name, "False", Reason.QUOTA_PENDING, "; ".join(_obstacles(report)))
    roster = roster_of(report.bounds, state, report.workers)
    least = min_members(report.bounds, state)
    message = f"{len(roster.joined)} of {roster.wanted} workers have joined (at least {least} must)"
    reason = Reason.FORMING if len(roster.joined) >= least else Reason.INSUFFICIENT_MEMBERS
    if silent := silent_workers(roster, report):
        message += f"; {silence_of(silent, roster, report)}"
    sentences = [message, *_obstacles(report)]
    return UntimedCondition(name, "False", _obstacle(report) or reason, "; ".join(sentences))


def _obstacles(report: Report) -> list[str]:
    """What keeps workers away, the most severe first: each cause once, with the first few workers."""
    found = [f"no pod can be made: {report.problem}"] if report.problem else []
    found += [f"a pod cannot be made: {report.refusal.why}"] if report.refusal else []
    found += [report.of(Allowance).message] if report.of(Allowance).message else []
    found += [grace_over(report.spec.drain)] if report.of(Protection).budget is Budget.OPEN else []
    found += _summaries(report.spec, report.waits)
    return found + ([report.budget_problem] if report.budget_problem else [])


def _summaries(spec: ElasticJobSpec, waits: Mapping[int, Wait]) -> list[str]:
    """Each cause once with the first few workers that it keeps away, the most severe first."""
    return [f"{_who(spec, wait, indices)}: {wait.sentence}" for wait, indices in grouped(waits)[:MISSING_SHOWN]]


def _sidecars_not_ready(report: Report) -> str:
    """What keeps sidecars from reaching the API server."""
    waits = {index: wait for index, wait in report.waits.items() if wait.reason is Reason.SIDECAR_NOT_READY}
    return "; ".join(_summaries(report.spec, waits))


def _undone_restart(report: Report) -> Iterator[str]:
    """The sentence for a requested restart that is not done: a member has finished or the rendezvous is closed, so the
    round trains to its end."""
    state, asked = report.decision.state, report.spec.restarted_at
    if asked not in (None, state.restarted_at) and not state.ended:
        yield f"no restart is done for spec.restartedAt {asked}, as the round trains on to its end"


def _left_over(report: Report) -> Iterator[str]:
    """The sentence for workers that wait because no allowed size has room for them."""
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
    return f"{whose if len(indices) == 1 else f'{whose}s'} {first_few(indices, MISSING_SHOWN)}"
