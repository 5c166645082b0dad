# SPDX-License-Identifier: Apache-2.0
"""Tests of the whole job. Each returns the message about its cause, or None if the cause does not hold."""

from collections.abc import Iterable

from elasticjob.api import JOB_LEFT, Blocker
from elasticjob.blocker_reasons import Reason
from elasticjob.spec import CONTROLLER
from elasticjob.terms import Loss, Outcome, RoundCause
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.scene import event_time, events_of
from elasticjob_cli.reading.times import length
from elasticjob_cli.reading.words import names, phrase

LEFT_SECONDS = 3600.0  # an operator that leaves a job says so each half hour
ANSWERED_SECONDS = 15.0  # an operator that leads answers to a change within a second or two


def being_deleted(look: Look) -> str | None:
    """A foreground deletion waits for the pods, and another finalizer for its owner."""
    meta = look.scene.job["metadata"]
    if "deletionTimestamp" not in meta:
        return None
    held = ", ".join(meta.get("finalizers") or ()) or "nothing"
    seconds = length(look.for_seconds(meta["deletionTimestamp"])) or "0 s"
    return phrase(f"for {seconds}, and held by {held}")


def complete(look: Look) -> str | None:
    return look.status.rendezvous.reason if look.status.rendezvous.outcome is Outcome.COMPLETE else None


def failed_by_policy(look: Look) -> str | None:
    agreed = look.status.rendezvous
    ruled = agreed.outcome is Outcome.FAILED and agreed.cause == RoundCause.POD_FAILURE_POLICY
    return agreed.reason if ruled else None


def failed(look: Look) -> str | None:
    outcome = look.status.rendezvous.outcome
    return look.status.rendezvous.reason if outcome in (Outcome.FAILED, Outcome.TIMEOUT) else None


def closed(look: Look) -> str | None:
    return look.status.rendezvous.reason if look.status.rendezvous.outcome is Outcome.CLOSED else None


def two_installations(look: Look) -> str | None:
    """The message of the operator that leaves the job to another one."""
    left = [event for event in events_of(look.scene, "ElasticJob", look.name) if event.get("reason") == JOB_LEFT]
    passed = look.for_seconds(event_time(left[-1])) if left else None
    return phrase(left[-1].get("message", "")) if passed is not None and passed < LEFT_SECONDS else None


def managed_elsewhere(look: Look) -> str | None:
    manager = look.spec.managed_by
    if manager in (None, CONTROLLER):
        return None
    return f"spec.managedBy is {manager}, so ElasticJob's operator makes no pods and writes no status for it"


def no_operator(look: Look) -> str | None:
    leader, behind = look.scene.leader, look.behind_since
    late = behind is not None and behind >= ANSWERED_SECONDS
    if not leader.readable:
        return (
            f"nobody has answered to the job for {length(behind)}; you may not read the Lease {leader.name}" * late
            or None
        )
    if leader.lease is None:
        return (
            f"there is no Lease {leader.name}, and nobody has answered to the job for {length(behind)}" * late or None
        )
    spec = leader.lease.get("spec", {})
    if not spec.get("holderIdentity"):
        return f"nobody holds the Lease {leader.name}"
    if not leader.beats:
        seconds = length(look.for_seconds(spec.get("renewTime")))
        return f"{spec['holderIdentity']} has not renewed the Lease {leader.name} for {seconds}"
    return None


def no_rights(look: Look) -> str | None:
    if refused := look.blocker_message(Reason.OPERATOR_WITHOUT_RIGHTS):
        return refused
    behind = look.behind_since
    if behind is None or not look.scene.leader.beats:
        return None
    if look.scene.leader.lacks:
        return f"it may not {', '.join(look.scene.leader.lacks)} in the namespace {look.namespace}"
    if behind >= ANSWERED_SECONDS:
        return f"it leads, and has not answered to the job for {length(behind)}"
    return None


def template_invalid(look: Look) -> str | None:
    return look.message_of("TemplateValid", "False")


def suspended(look: Look) -> str | None:
    return "spec.suspend is true" if look.spec.suspend and not (look.trains or look.has_ended) else None


def gang_waits(look: Look) -> str | None:
    """The message if a gang lacks quota. None if a worse cause keeps workers away, or if some workers have quota and
    have not joined: their pods are examined then."""
    found = _gang(look)
    return phrase(found.message) if found and found.passes else None


def gang_refused(look: Look) -> str | None:
    """The same, if somebody has to repair something."""
    found = _gang(look)
    return phrase(found.message) if found and not found.passes else None


def _gang(look: Look) -> Blocker | None:
    worst, admitted = next(iter(look.status.blockers), None), look.status.admitted
    if worst is None or worst.reason != Reason.QUOTA_PENDING or worst.workers:
        return None
    return worst if look.trains or (admitted is not None and not admitted.replicas) else None


def storeless_rank_0(look: Look) -> str | None:
    agreed = look.status.rendezvous
    return agreed.reason if agreed.cause == Loss.STORE_NOT_READY and not (look.trains or look.has_ended) else None


def finishing(look: Look) -> str | None:
    """With the time left as far as it is known: a new leader begins to count again."""
    found = next(iter(look.blockers_of(Reason.FINISHING)), None)
    if found is None or look.blocker_message(Reason.CONTAINER_FAILED) or look.has_ended:
        return None
    left = look.spec.finish_seconds - (look.for_seconds(found.since) or 0.0)
    return f"{phrase(found.message)}; {f'{length(left)} of it are left' if left > 0 else 'that is over'}"


def network_fault(look: Look) -> str | None:
    return look.cut_off or None


def sidecars_not_ready(look: Look) -> str | None:
    return None if look.has_ended else _with_workers(look.blockers_of(Reason.SIDECAR_NOT_READY))


def no_steps(look: Look) -> str | None:
    return look.blocker_message(Reason.HUNG) if look.is_formed else None


def device_unhealthy(look: Look) -> str | None:
    return _with_workers(look.blockers_of(Reason.DEVICE_UNHEALTHY)) if look.is_formed else None


def node_draining(look: Look) -> str | None:
    return _with_workers(look.blockers_of(Reason.NODE_DRAINING)) if look.is_formed else None


def _with_workers(found: Iterable[Blocker]) -> str | None:
    return "; ".join(f"{names(one.workers)}: {one.message}" for one in found) or None
