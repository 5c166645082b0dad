# SPDX-License-Identifier: Apache-2.0
"""Tests of one missing worker. Each returns what Kubernetes says about its cause, or None if the cause does not
hold."""

from collections.abc import Callable

from elasticjob.blocker_reasons import Reason
from elasticjob.members import Member
from elasticjob.objects import Object
from elasticjob.pods import CRASHES, NEVER_RAN, NO_ENTRY, SIDECAR
from elasticjob.rendezvous.barrier import unspoken
from elasticjob.rendezvous.losses import never_joined
from elasticjob.rendezvous.roster import is_between_stages
from elasticjob.rendezvous.words import first_few
from elasticjob.terms import Loss, RequestCause, RequestType
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.scene import event_time, events_of
from elasticjob_cli.reading.times import length, seconds_between
from elasticjob_cli.reading.words import phrase
from elasticjob_cli.reading.worker import WorkerView

SIDECAR_STARTS_SECONDS = 10.0


Test = Callable[[WorkerView, Look], str | None]


def kept_by(reason: Reason) -> Test:
    """The test for a cause that is read from the pod alone."""
    return lambda worker, look: _kept_by(worker, reason)


def at_fault(reason: Reason) -> Test:
    """The test for a cause for which the kubelet cannot start a container."""
    return lambda worker, look: _at_fault(worker, reason)


def invalid_record(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is not None and worker.body is not None and worker.record is None:
        return "it does not follow its schema"
    return worker.invalid or None


def held_back_storeless(worker: WorkerView, look: Look) -> str | None:
    """For rank 0 of a round that ended because it served no store."""
    agreed = look.status.rendezvous
    was_rank_0 = bool(agreed.participants) and agreed.participants[0].index == worker.index
    return held_back(worker, look) if was_rank_0 and agreed.cause == Loss.STORE_NOT_READY else None


def held_back(worker: WorkerView, look: Look) -> str | None:
    """The operator's message about this worker, which the operator knows from earlier pods."""
    if worker.pod is not None:
        return None
    kept = (one for one in look.status.blockers if one.reason == Reason.POD_BACK_OFF and worker.index in one.workers)
    return next((phrase(one.message) for one in kept), None)


def no_pod(worker: WorkerView, look: Look) -> str | None:
    if worker.pod:
        return None
    made = "it is about to be made"
    return made if look.scene.leader.readable else f"{made}, if an operator leads: you may not see its Lease"


def queued_twice(worker: WorkerView, look: Look) -> str | None:
    """For the pods of a gang, which have quota already."""
    return _kept_by(worker, Reason.QUOTA_PENDING) if look.spec.admitted_as_gang else None


def gated(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is None or _kept_by(worker, Reason.SCHEDULING_GATED) is None:
        return None
    return ", ".join(worker.pod.gates) or "SchedulingGated"


def claim_not_ready(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is None or _kept_by(worker, Reason.CLAIM_NOT_READY) is None:
        return None
    message = phrase(worker.scheduling.message)
    if "persistentvolumeclaims" in look.scene.hidden:
        return message
    there = {claim["metadata"]["name"]: claim for claim in look.scene.claims}
    for name in worker.pod.claims:
        phase = there.get(name, {}).get("status", {}).get("phase")
        if name not in there:
            return f"there is no PersistentVolumeClaim {name}"
        if phase != "Bound":
            events = events_of(look.scene, "PersistentVolumeClaim", name)
            return phrase(f"the PersistentVolumeClaim {name} is {phase}", events[-1]["message"] if events else "")
    return message


def avoiding(worker: WorkerView, look: Look) -> str | None:
    """If the pod is excluded from nodes, which may have room."""
    message, nodes = unschedulable(worker, look), sorted(worker.pod.avoided_nodes) if worker.pod else []
    if message is None or not nodes:
        return None
    return phrase(message, f"spec.avoidNodes.required rules out {first_few(nodes)}")


def unschedulable(worker: WorkerView, look: Look) -> str | None:
    kept = _kept_by(worker, Reason.UNSCHEDULABLE)
    return kept and phrase(worker.scheduling.message or kept)


def pull_secret(worker: WorkerView, look: Look) -> str | None:
    why = _at_fault(worker, Reason.IMAGE_PULL)
    if why is None:
        return None
    for event in reversed(_events(worker, look)):
        if event.get("reason") == "FailedToRetrieveImagePullSecret":
            return phrase(event["message"].partition(";")[0])
    return why if NO_ENTRY.search(why) else None


def container_error(worker: WorkerView, look: Look) -> str | None:
    if message := _at_fault(worker, Reason.CONTAINER_ERROR):
        return message
    for one in worker.pod.containers if worker.pod else ():  # between two tries the container is shown as crashing
        end = one.ended or one.crashed_before
        if end and end.reason in NEVER_RAN:
            return phrase(end.reason, end.message)
    return None


def init_crashes(worker: WorkerView, look: Look) -> str | None:
    message = _kept_by(worker, Reason.INIT_CRASHES)
    return message and phrase(_times(worker.wait.crashes if worker.wait else 0), message)


def sidecar_crashes(worker: WorkerView, look: Look) -> str | None:
    """For this project's sidecar, not one of the template's."""
    message, sidecar = _kept_by(worker, Reason.SIDECAR_CRASHES), worker.container(SIDECAR)
    end = sidecar.last_end
    if message is None or not (sidecar.reason == CRASHES or sidecar.ended):
        return None
    return phrase(_times(sidecar.restarts), end.summary if end else "")


def sidecar_not_ready(worker: WorkerView, look: Look) -> str | None:
    """What the sidecar says about it is among the job's causes."""
    seconds = look.for_seconds(worker.pod.unready_since if worker.pod else "")
    return None if seconds is None or seconds < SIDECAR_STARTS_SECONDS else length(seconds)


def trainer_crashes(worker: WorkerView, look: Look) -> str | None:
    message = _kept_by(worker, Reason.TRAINER_CRASHES)
    return message and phrase(_times(worker.wait.crashes if worker.wait else 0), message)


def volume(worker: WorkerView, look: Look) -> str | None:
    return _setup_event(worker, look, ("FailedMount", "FailedAttachVolume"))


def sandbox(worker: WorkerView, look: Look) -> str | None:
    return _setup_event(worker, look, ("FailedCreatePodSandBox", "NetworkNotReady"))


def no_scheduler(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is None or worker.node or worker.scheduling.status == "True":
        return None
    return length(seconds_between(worker.made, look.scene.now))


def starting(worker: WorkerView, look: Look) -> str | None:
    """How far the start of its pod has come."""
    if worker.pod is None or _runs(worker, look):
        return None
    for one in worker.pod.init_containers:
        if one.since and one.name != SIDECAR:
            return f"its init container {one.name} runs for {length(look.for_seconds(one.since))}"
    pulls = [event for event in _events(worker, look) if event.get("reason") in ("Pulling", "Pulled")]
    if pulls and pulls[-1]["reason"] == "Pulling":
        return phrase(pulls[-1]["message"]) + f" for {length(look.for_seconds(event_time(pulls[-1])))}"
    return phrase("it is being set up", worker.container(look.spec.trainer_container).reason)


def storeless(worker: WorkerView, look: Look) -> str | None:
    request = worker.record.request if worker.record else None
    if request and request.type is RequestType.LEAVE and request.cause == RequestCause.STORE_NOT_READY:
        return f"storeReadySeconds is {look.spec.rendezvous.store_ready_seconds}"
    return None


def between_stages(worker: WorkerView, look: Look) -> str | None:
    if worker.worker is None or not is_between_stages(worker.worker):
        return None
    return f"that of stage {(worker.request and worker.request.stage) or 1} has ended in success"


def silent(worker: WorkerView, look: Look) -> str | None:
    """If the worker has not been heard for long, or was pinged and has not acked yet."""
    seconds = seconds_between(worker.heard_at, look.scene.now) if worker.record else None
    if _owes_an_answer(worker, look):
        return "some seconds" if seconds is None else length(seconds)
    return length(seconds) if seconds is not None and seconds >= look.silence else None


def _owes_an_answer(worker: WorkerView, look: Look) -> bool:
    ping, record = look.status.rendezvous.ping, worker.record
    if record is None or Member(record.index, record.id) not in ping.members:
        return False
    return (record.status.ack or 0) < ping.number


def stopping(worker: WorkerView, look: Look) -> str | None:
    if look.trains or not (worker.is_member and worker.record) or worker.asks(RequestType.LEAVE):
        return None
    return length(look.changed_since)


def no_torchrun(worker: WorkerView, look: Look) -> str | None:
    """The same message for all workers that are missing for this cause, so that they are grouped."""
    if not _never_spoke(worker, look):
        return None
    is_missing = worker in look.missing
    silent = [one for one in look.missing if _never_spoke(one, look)] if is_missing else [worker]
    ran = min(_runs_for(one, look) for one in silent)
    text = f"{length(ran) or '0 s'}: {unspoken(one.index for one in silent)}"
    if not is_missing or look.trains or len(look.joined) >= look.least:
        return text
    limit, seconds = "spec.rendezvous.startTimeoutSeconds", look.spec.rendezvous.start_timeout_seconds
    if any(_comes(one, look) for one in look.missing):
        return f"{text}; once all pods run {limit} leaves {length(seconds)}"
    return f"{text}; {limit} leaves {length(max(0.0, seconds - ran)) or '0 s'}"


def _comes(worker: WorkerView, look: Look) -> bool:
    """Whether its pod has been placed and does not run yet: until it runs, the time limit of the others does not
    start."""
    if worker.pod is None or _runs(worker, look):
        return False
    return worker.scheduling.reason not in ("Unschedulable", "SchedulingGated")


def _never_spoke(worker: WorkerView, look: Look) -> bool:
    return _runs(worker, look) and worker.worker is not None and never_joined(worker.worker)


def _runs_for(worker: WorkerView, look: Look) -> float:
    return look.for_seconds(worker.container(look.spec.trainer_container).since) or 0.0


def slow_joiner(worker: WorkerView, look: Look) -> str | None:
    if not _runs(worker, look):
        return None
    return length(look.for_seconds(worker.container(look.spec.trainer_container).since)) or "0 s"


def _runs(worker: WorkerView, look: Look) -> bool:
    """Whether its trainer has been started."""
    return worker.container(look.spec.trainer_container).has_started


def _kept_by(worker: WorkerView, reason: Reason) -> str | None:
    """The pod's message, if `reason` is why it does not do its part, as the operator reads it too."""
    return phrase(worker.wait.message) if worker.wait and worker.wait.reason is reason else None


def _at_fault(worker: WorkerView, reason: Reason) -> str | None:
    """The same, with more of the kubelet's message about the container: the cause may be at its end."""
    if worker.pod is None or (message := _kept_by(worker, reason)) is None:
        return None
    return next((phrase(one.reason, one.message or one.image) for one in worker.pod.containers if one.fault), message)


def _setup_event(worker: WorkerView, look: Look, reasons: tuple[str, ...]) -> str | None:
    """The newest event with one of these reasons, while the pod is being set up."""
    if worker.pod is None or _runs(worker, look):
        return None
    found = [event for event in _events(worker, look) if event.get("reason") in reasons]
    return phrase(found[-1]["message"]) if found else None


def _events(worker: WorkerView, look: Look) -> list[Object]:
    uid = worker.pod.uid if worker.pod else ""
    found = events_of(look.scene, "Pod", worker.name) if worker.pod else []
    return [event for event in found if event["involvedObject"].get("uid", uid) == uid]


def _times(count: int) -> str:
    return f"started again {count} time{'s' * (count != 1)}"
