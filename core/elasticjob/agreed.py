# SPDX-License-Identifier: Apache-2.0
"""An ElasticJob as input of the state machine: the limits in its spec, and the state in its status."""

from elasticjob.blockers import Admitted
from elasticjob.heartbeats import MISSED_IN_RECORD, backstop_seconds, default_worker_lost
from elasticjob.rendezvous import Clocks, Matched, Spec, State
from elasticjob.spec import ElasticJobSpec
from elasticjob.status import ElasticJobStatus, MatchedRule
from elasticjob.terms import FailureKind


def limited(spec: ElasticJobSpec, admitted: Admitted | None) -> ElasticJobSpec:
    """The spec that the rendezvous is held to: that of a gang asks for no more workers than have quota."""
    if admitted is None:
        return spec
    if not admitted.replicas:
        return spec.model_copy(update={"suspend": True})
    replicas, spares = min(spec.replicas, admitted.replicas), min(spec.spare_replicas, admitted.spares)
    return spec.model_copy(update={"replicas": replicas, "spare_replicas": spares})


def rendezvous_spec(spec: ElasticJobSpec, workers: int = 0, *, starts_torchrun: bool = True) -> Spec:
    """The part of the spec that the rendezvous needs.

    `workers`: how many workers exist; for a while after a scale-down they are more than wanted. While quota leaves
    `spec.replicas` below `minReplicas`, sizes up to `minReplicas` are allowed: there is always a size to wait for.
    """
    timing, size = spec.rendezvous, max(spec.replicas, workers)
    return Spec(
        replicas=spec.replicas,
        spares=spec.spare_replicas,
        min_replicas=spec.min_replicas,
        max_restarts=spec.max_restarts,
        suspend=spec.suspend,
        restarted_at=spec.restarted_at or "",
        last_call=timing.last_call_seconds,
        join_timeout=timing.join_timeout_seconds,
        start_timeout=timing.start_timeout_seconds,
        rejoin=timing.rejoin_seconds,
        worker_lost=timing.worker_lost_seconds or default_worker_lost(size),
        heartbeat_timeout=MISSED_IN_RECORD * backstop_seconds(size),
        restart_reset=timing.restart_reset_seconds,
        finish=spec.finish_seconds,
        starts_torchrun=starts_torchrun,
        sizes=spec.sizes.up_to(max(spec.replicas, spec.min_replicas)) if spec.sizes else (),
        rank_order=spec.rank_order.topology_keys if spec.rank_order else (),
    )


def state_of(status: ElasticJobStatus, clocks: Clocks) -> State:
    """The state in a status, with the reader's own clocks."""
    agreed = status.rendezvous
    return State(
        clocks=clocks,
        round=max(1, agreed.round),
        phase=agreed.phase,
        participants=tuple(agreed.participants),
        replicas=agreed.replicas,
        restarted_at=agreed.restarted_at or "",
        leaving=tuple(agreed.leaving),
        finished=tuple(agreed.finished),
        finishing=tuple(agreed.finishing),
        stage=agreed.stage,
        scripts=agreed.scripts,
        failure=agreed.failure,
        failure_of=agreed.failure_of,
        failure_kind=agreed.failure_kind or FailureKind.UNKNOWN,
        matched=_matched(agreed.matched_rule),
        replaced=tuple(agreed.replaced),
        planned=agreed.planned,
        intact=agreed.intact,
        members_ended=agreed.members_ended,
        live=agreed.live,
        restart_round=agreed.restart_round,
        ping=agreed.ping.number,
        pinged=tuple(agreed.ping.members),
        replacements=status.replacements,
        restarts=status.restarts,
        waiting=agreed.waiting,
        spares=status.spares,
        store=agreed.store,
        outcome=agreed.outcome,
        reason=agreed.reason,
        cause=agreed.cause,
    )


def _matched(rule: MatchedRule | None) -> Matched | None:
    return None if rule is None else Matched(rule.index, rule.action, rule.message)
