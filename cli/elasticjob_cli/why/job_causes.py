"""Tests of the whole job: each gives what is said of its cause, or None where that is not the cause."""

import re

from elasticjob.api import JOB_LEFT
from elasticjob.rendezvous.words import round_of
from elasticjob.spec import CONTROLLER
from elasticjob.terms import Loss, Outcome, RoundCause
from elasticjob_cli.reading.containers import said
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.scene import event_time, events_of
from elasticjob_cli.reading.times import length

LEFT_SECONDS = 3600.0  # the operator that leaves a job says so each half hour
ANSWERED_SECONDS = 15.0  # an operator that leads answers to a change within a second or two
REFUSAL = re.compile(r"a pod cannot be made: (.+?)(?=; workers? \d|$)")
# how the API server's authorization refuses; an admission plug-in's sentence has another form
NO_RIGHT = re.compile(r'User "([^"]+)" cannot (\w+) resource "([^"]+)"')
# what of a gang's quota does not come by itself
GANG_FAULT = re.compile(
    r"spec\.quotaAdmission is Gang, and |there is no WorkloadPriorityClass |that is not this job's|Kueue has refused |"
    r"Queue \S+ (doesn't exist|is inactive)"
)
DRAINING = re.compile(r"; (workers? [^;:]*: its node \S+ is about to go \([^)]*\))")
FAILED = re.compile(r"worker \d+'s container failed .*")
ACCESS = re.compile(r"^the (ServiceAccount|Role|RoleBinding|NetworkPolicy) ")


def being_deleted(look: Look) -> str | None:
    """A foreground deletion waits for its pods, and any other finalizer for whoever has set it."""
    meta = look.scene.job["metadata"]
    if "deletionTimestamp" not in meta:
        return None
    held = ", ".join(meta.get("finalizers") or ()) or "nothing"
    seconds = length(look.for_seconds(meta["deletionTimestamp"])) or "0 s"
    return said(f"for {seconds}, and held by {held}")


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
    """What the operator tells that leaves the job to another one."""
    told = [event for event in events_of(look.scene, "ElasticJob", look.name) if event.get("reason") == JOB_LEFT]
    passed = look.for_seconds(event_time(told[-1])) if told else None
    return said(told[-1].get("message", "")) if passed is not None and passed < LEFT_SECONDS else None


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
    refused = NO_RIGHT.search(_refusal(look) or "")
    if refused:
        return f"it may not {refused[2]} {refused[3]} as {refused[1]}"
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
    """What the operator tells of the quota of a gang, unless something worse keeps workers away."""
    found, agreed = look.condition("Rendezvoused"), look.status.rendezvous
    if not look.spec.admitted_as_gang or found is None or look.status.reason != "QuotaPending":
        return None
    if found.status != "True":
        return None if " have joined (" in found.message else found.message  # else it has pods, which are looked at
    return found.message.removeprefix(f"{round_of(agreed.round, len(agreed.participants))}: {agreed.reason}; ")


def gang_refused(look: Look) -> str | None:
    """What the operator tells of it that somebody has to mend."""
    told = gang_waits(look)
    return told if told and GANG_FAULT.search(told) else None


def access_refused(look: Look) -> str | None:
    refusal = _refusal(look)
    return refusal if refusal and ACCESS.search(refusal) else None


def name_taken(look: Look) -> str | None:
    refusal = _refusal(look)
    return refusal if refusal and refusal.startswith("there is a pod ") else None


def quota(look: Look) -> str | None:
    refusal = _refusal(look)
    return refusal if refusal and re.search(r"exceeded quota|failed quota", refusal) else None


def admission(look: Look) -> str | None:
    """Any other refusal."""
    return None if access_refused(look) or name_taken(look) or quota(look) else _refusal(look)


def storeless_rank_0(look: Look) -> str | None:
    agreed = look.status.rendezvous
    return agreed.reason if agreed.cause == Loss.STORE_NOT_READY and not (look.trains or look.has_ended) else None


def container_failed(look: Look) -> str | None:
    """After the success of its torchrun, be it while others train."""
    found = look.condition("Finishing")
    failed = FAILED.search(found.message) if found and not look.has_ended else None
    return failed[0] if failed else None


def finishing(look: Look) -> str | None:
    """With the time left as far as is known: a new leader begins it anew."""
    found = look.condition("Finishing")
    if look.finishing is None or found is None or container_failed(look) or look.has_ended:
        return None
    passed = look.for_seconds(found.last_transition_time) or 0.0
    left = look.spec.finish_seconds - passed
    return f"{look.finishing}; {f'{length(left)} of it are left' if left > 0 else 'that is over'}"


def network_fault(look: Look) -> str | None:
    return look.cut_off or None


def sidecars_not_ready(look: Look) -> str | None:
    return None if look.has_ended else look.message_of("SidecarsReady", "False")


def no_steps(look: Look) -> str | None:
    return look.message_of("Progressing", "False") if look.is_formed else None


def node_draining(look: Look) -> str | None:
    found = DRAINING.search(look.message_of("Rendezvoused", "True") or "")
    return found[1] if found and look.is_formed else None


def _refusal(look: Look) -> str | None:
    """Why the cluster makes no pod now, as the operator tells."""
    if look.has_ended:
        return None
    told = look.message_of("Rendezvoused", "False") or look.message_of("Rendezvoused", "True") or ""
    found = REFUSAL.search(told)
    return said(found[1]) if found else None
