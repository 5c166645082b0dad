# SPDX-License-Identifier: Apache-2.0
"""An ElasticJob's status after each look at the job. Pure."""

from elasticjob.api import (
    Condition,
    ElasticJobSpec,
    ElasticJobStatus,
    MatchedRule,
    Members,
    Ping,
    RendezvousStatus,
    RoundRecord,
)
from elasticjob.rendezvous import Matched, PodState, State, Worker, roster_of
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.roster import current
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_operator.job.bad_nodes import BadNodesFound
from elasticjob_operator.job.blockers import blockers_of
from elasticjob_operator.job.conditions import UntimedCondition, conditions_of, reason_of
from elasticjob_operator.job.deadline import Activity
from elasticjob_operator.job.finishing import FinishingFound, succeeded
from elasticjob_operator.job.progress import progress_of
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.stalls import Hang
from elasticjob_operator.job.starts import StartFound
from elasticjob_operator.objects.pods import own_selector

HISTORY_LENGTH = 5  # `kubectl describe` prints seven lines for each


def status_of(report: Report) -> ElasticJobStatus:
    """The status after `report.decision`. `report.now` is wall-clock time in RFC 3339, for people only."""
    state = report.decision.state
    failed = (PodState.FAILED, PodState.OOM_KILLED)
    alive = [one for one in current(state, report.workers).values() if not one.deleting and one.pod not in failed]
    beside = _without_place(report)
    placed = [one.pod_key for one in alive if one.pod_key not in beside]
    conditions, active, stalled = tuple(conditions_of(report)), report.of(Activity).active, report.of(Hang).stalled
    return ElasticJobStatus(
        observed_generation=report.job["metadata"].get("generation"),
        phase=_phase(state, report.spec, alive),
        reason=reason_of(report, conditions),
        conditions=_timed(conditions, report),
        blockers=blockers_of(report),
        replicas=len(placed),
        ready_replicas=len(report.ready.intersection(placed)),
        spares=state.spares,
        selector=own_selector(report.job),
        starting=_starts(report),
        start_time=report.before.start_time or (active and active.since),
        completion_time=report.before.completion_time or (report.now if state.outcome is Outcome.COMPLETE else None),
        active=active,
        restarts=state.restarts,
        term=report.term,
        lease=report.lease,
        rendezvous=RendezvousStatus(
            round=state.round,
            phase=state.phase,
            world_size=len(state.participants) if state.phase is RendezvousPhase.FORMED else 0,
            waiting=state.waiting,
            participants=Members(state.participants),
            replicas=state.replicas,
            restarted_at=state.restarted_at or None,
            leaving=Members(state.leaving),
            finished=Members(state.finished),
            finishing=Members(state.finishing),
            stage=state.stage,
            scripts=state.scripts,
            failure=state.failure,
            failure_of=state.failure_of,
            failure_kind=state.failure_kind if state.failure else None,
            matched_rule=_matched_rule(state.matched),
            replaced=Members(state.replaced),
            planned=state.planned,
            intact=state.intact,
            members_ended=state.members_ended,
            live=state.live,
            restart_round=state.restart_round,
            stalled=stalled if stalled == state.round else 0,
            ping=Ping(number=state.ping, members=Members(state.pinged)),
            store=state.store,
            reason=state.reason,
            cause=state.cause,
            outcome=state.outcome,
        ),
        replacements=dict(state.replacements),
        draining=dict(one.pod_key for one in current(state, report.workers).values() if one.draining),
        admitted=report.admitted,
        progress=progress_of(report.view, state, report.before.progress),
        node_failures=report.of(BadNodesFound).record,
        history=_history(report),
    )


def _matched_rule(matched: Matched | None) -> MatchedRule | None:
    return matched and MatchedRule(index=matched.rule, action=matched.action, message=matched.why)


def _without_place(report: Report) -> frozenset[PodKey]:
    """Spares, and replacements of draining members until they have their places: an autoscaler must not see more pods
    than are wanted."""
    if not report.spec.spare_replicas and not any(worker.draining for worker in report.workers):
        return frozenset()
    state = report.decision.state
    roster = roster_of(report.bounds, state, report.workers)
    places = max(0, report.bounds.replicas - len(state.done))
    return frozenset(worker.pod_key for worker in (*roster.spares, *roster.kept[places:]))


def _starts(report: Report) -> bool:
    """Whether the round's processes are still starting. That begins when a round has just formed."""
    state = report.decision.state
    stands = state.phase is RendezvousPhase.FORMED or state.outcome is Outcome.CLOSED
    starts = report.decision.formed_after is not None or report.of(StartFound).starting
    return stands and starts and not report.of(FinishingFound).waits


def _history(report: Report) -> tuple[RoundRecord, ...]:
    decision, state, history = report.decision, report.decision.state, report.before.history
    if (seconds := report.of(StartFound).seconds) is not None:
        history = (*history[:-1], history[-1].model_copy(update={"started": seconds}))
    if report.of(FinishingFound).waits and state.phase is not RendezvousPhase.FORMING and history:
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


def _timed(conditions: tuple[UntimedCondition, ...], report: Report) -> tuple[Condition, ...]:
    known = {condition.type: condition for condition in report.before.conditions}

    def timed(one: UntimedCondition) -> Condition:
        before = known.get(one.type)
        same = before is not None and before.status == one.status
        return Condition(
            **one._asdict(),
            observed_generation=report.job["metadata"].get("generation"),
            last_transition_time=before.last_transition_time if same and before else report.now,
        )

    return tuple(map(timed, conditions))
