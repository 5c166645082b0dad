"""Tests of one missing worker: each gives what Kubernetes says of its cause, or None where that is not the cause."""

import re

from elasticjob.members import Member
from elasticjob.objects import Object
from elasticjob.pods import (
    CONFIG_WORDS,
    CRASHES,
    IMAGE_WORDS,
    NEVER_RAN,
    SIDECAR,
    START_WORDS,
    awaited_queue,
    condition,
    container,
    containers,
    crash_before,
    ended,
    has_started,
    init_containers,
    kept_off,
    running_since,
    unready_since,
    waiting,
    waits_for,
)
from elasticjob.rendezvous.barrier import unspoken
from elasticjob.rendezvous.losses import never_joined
from elasticjob.rendezvous.roster import is_between_stages
from elasticjob.terms import Cause, RequestType
from elasticjob_cli.reading.containers import last_end, said, told_end
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.scene import event_time, events_of
from elasticjob_cli.reading.times import length, seconds_between
from elasticjob_cli.reading.worker import WorkerView

# what registries and container runtimes say of credentials
NO_ENTRY = re.compile(
    r"\b401\b|\b403\b|unauthorized|forbidden|access denied|denied:|authentication required|authorization failed|"
    r"no basic auth credentials",
    re.IGNORECASE,
)
BACK_OFF = re.compile(r"its pods failed (\d+) times in a row: (.*?)(?:; each next pod|$)")
NAMED = 3
SIDECAR_STARTS_SECONDS = 10.0
STORELESS = "did not serve the round's store"


def invalid_record(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is not None and worker.body is not None and worker.record is None:
        return "it does not follow its schema"
    return worker.invalid or None


def held_back_storeless(worker: WorkerView, look: Look) -> str | None:
    why = held_back(worker, look)
    return why if why and STORELESS in why else None


def held_back(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is not None:
        return None
    told = BACK_OFF.search(look.message_of("Rendezvoused", "False") or look.message_of("Rendezvoused", "True") or "")
    return f"{told[1]} times in a row: {told[2]}" if told else None


def no_pod(worker: WorkerView, look: Look) -> str | None:
    if worker.pod:
        return None
    made = "it is about to be made"
    return made if look.scene.leader.readable else f"{made}, if an operator leads: you may not see its Lease"


def queued(worker: WorkerView, look: Look) -> str | None:
    queue = awaited_queue(worker.pod or {})
    return None if queue is None else f"in the queue {queue}"


def queued_twice(worker: WorkerView, look: Look) -> str | None:
    """The pods of a gang have quota."""
    return queued(worker, look) if look.spec.admitted_as_gang else None


def gated(worker: WorkerView, look: Look) -> str | None:
    if condition(worker.pod or {}, "PodScheduled").get("reason") != "SchedulingGated":
        return None
    names = [gate["name"] for gate in (worker.pod or {})["spec"].get("schedulingGates", ())]
    return ", ".join(names) or "SchedulingGated"


def claim_not_ready(worker: WorkerView, look: Look) -> str | None:
    told = _unscheduled(worker.pod)
    if told is None or "persistentvolumeclaim" not in told.lower():
        return None
    if "persistentvolumeclaims" in look.scene.hidden:
        return told
    there = {claim["metadata"]["name"]: claim for claim in look.scene.claims}
    for name in claims_of(worker.pod or {}):
        phase = there.get(name, {}).get("status", {}).get("phase")
        if name not in there:
            return f"there is no PersistentVolumeClaim {name}"
        if phase != "Bound":
            events = events_of(look.scene, "PersistentVolumeClaim", name)
            return said(f"the PersistentVolumeClaim {name} is {phase}", events[-1]["message"] if events else "")
    return told


def avoiding(worker: WorkerView, look: Look) -> str | None:
    """It may not go to nodes on which others have room, perhaps."""
    told, nodes = _unscheduled(worker.pod), sorted(kept_off(worker.pod or {"metadata": {}}))
    if told is None or not nodes:
        return None
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return said(told, f"spec.avoidNodes.required rules out {', '.join(nodes[:NAMED])}{more}")


def unschedulable(worker: WorkerView, look: Look) -> str | None:
    return _unscheduled(worker.pod)


def pull_secret(worker: WorkerView, look: Look) -> str | None:
    why = _image(worker)
    if why is None:
        return None
    for event in reversed(_events(worker, look)):
        if event.get("reason") == "FailedToRetrieveImagePullSecret":
            return said(event["message"].partition(";")[0])
    return why if NO_ENTRY.search(why) else None


def image(worker: WorkerView, look: Look) -> str | None:
    return _image(worker)


def config_missing(worker: WorkerView, look: Look) -> str | None:
    return _waits_with(worker.pod, CONFIG_WORDS)


def container_error(worker: WorkerView, look: Look) -> str | None:
    if told := _waits_with(worker.pod, START_WORDS):
        return told
    for status in containers(worker.pod or {}):  # between two tries it shows as one that crashes
        end = ended(status) or crash_before(status)
        if end and end.get("reason") in NEVER_RAN:
            return said(end["reason"], end.get("message"))
    return None


def init_crashes(worker: WorkerView, look: Look) -> str | None:
    for status in init_containers(worker.pod or {}):
        end = last_end(status)
        failed = end is not None and end["exitCode"] != 0
        held_back = waits_for(status) == CRASHES
        if status["name"] != SIDECAR and failed and (held_back or ended(status)):
            return said(f"the init container {status['name']}, {_times(status)}", told_end(end))
    return None


def sidecar_crashes(worker: WorkerView, look: Look) -> str | None:
    status = container(worker.pod or {}, SIDECAR)
    return said(_times(status), told_end(last_end(status))) if waits_for(status) == CRASHES else None


def sidecar_not_ready(worker: WorkerView, look: Look) -> str | None:
    """What it says of the cause is among the job's."""
    seconds = look.for_seconds(unready_since(worker.pod or {}))
    return None if seconds is None or seconds < SIDECAR_STARTS_SECONDS else length(seconds)


def trainer_crashes(worker: WorkerView, look: Look) -> str | None:
    status = container(worker.pod or {}, look.spec.trainer_container)
    asked = worker.record is not None and worker.record.spec.request is not None
    end = ended(status) or crash_before(status)
    failed = end is not None and end["exitCode"] != 0
    if waits_for(status) == CRASHES or (failed and status.get("restartCount", 0) and not asked):
        return said(_times(status), told_end(end))
    return None


def volume(worker: WorkerView, look: Look) -> str | None:
    return _setup_event(worker, look, ("FailedMount", "FailedAttachVolume"))


def sandbox(worker: WorkerView, look: Look) -> str | None:
    return _setup_event(worker, look, ("FailedCreatePodSandBox", "NetworkNotReady"))


def no_scheduler(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is None or worker.node or condition(worker.pod, "PodScheduled").get("status") == "True":
        return None
    return length(seconds_between(worker.made, look.scene.now))


def starting(worker: WorkerView, look: Look) -> str | None:
    """How far its start has come."""
    if worker.pod is None or has_started(container(worker.pod, look.spec.trainer_container)):
        return None
    for status in init_containers(worker.pod):
        if running_since(status) and status["name"] != SIDECAR:
            return f"its init container {status['name']} runs for {length(look.for_seconds(running_since(status)))}"
    pulls = [event for event in _events(worker, look) if event.get("reason") in ("Pulling", "Pulled")]
    if pulls and pulls[-1]["reason"] == "Pulling":
        return said(pulls[-1]["message"]) + f" for {length(look.for_seconds(event_time(pulls[-1])))}"
    return said("it is being set up", waits_for(container(worker.pod, look.spec.trainer_container)))


def storeless(worker: WorkerView, look: Look) -> str | None:
    request = worker.record.spec.request if worker.record else None
    if request and request.type is RequestType.LEAVE and request.cause == Cause.STORE_NOT_READY:
        return f"storeReadySeconds is {look.spec.rendezvous.store_ready_seconds}"
    return None


def between_stages(worker: WorkerView, look: Look) -> str | None:
    if worker.worker is None or not is_between_stages(worker.worker):
        return None
    return f"that of stage {(worker.request and worker.request.stage) or 1} has ended in success"


def silent(worker: WorkerView, look: Look) -> str | None:
    """Not heard for long, or asked by the operator and without an answer yet."""
    seconds = seconds_between(worker.heard_at, look.scene.now) if worker.record else None
    if _owes_an_answer(worker, look):
        return "some seconds" if seconds is None else length(seconds)
    return length(seconds) if seconds is not None and seconds >= look.silence else None


def _owes_an_answer(worker: WorkerView, look: Look) -> bool:
    challenge, record = look.status.rendezvous.challenge, worker.record
    if challenge is None or record is None or Member(record.spec.index, record.spec.id) not in challenge.members:
        return False
    return (record.status.answer or 0) < challenge.number


def stopping(worker: WorkerView, look: Look) -> str | None:
    if look.trains or not (worker.is_member and worker.record) or worker.asks(RequestType.LEAVE):
        return None
    return length(look.changed_since)


def no_torchrun(worker: WorkerView, look: Look) -> str | None:
    """The same of all that are missing so, that they are told of together."""
    if not _never_spoke(worker, look):
        return None
    is_missing = worker in look.missing
    silent = [one for one in look.missing if _never_spoke(one, look)] if is_missing else [worker]
    ran = min(_runs_for(one, look) for one in silent)
    told = f"{length(ran) or '0 s'}: {unspoken(one.index for one in silent)}"
    if not is_missing or look.trains or len(look.joined) >= look.least:
        return told
    limit, seconds = "spec.rendezvous.startTimeoutSeconds", look.spec.rendezvous.start_timeout_seconds
    if any(_comes(one, look) for one in look.missing):
        return f"{told}; once all pods run {limit} leaves {length(seconds)}"
    return f"{told}; {limit} leaves {length(max(0.0, seconds - ran)) or '0 s'}"


def _comes(worker: WorkerView, look: Look) -> bool:
    """Whether its pod has been placed and is yet to run: it holds up the time that others have."""
    if worker.pod is None or has_started(container(worker.pod, look.spec.trainer_container)):
        return False
    return condition(worker.pod, "PodScheduled").get("reason") not in ("Unschedulable", "SchedulingGated")


def _never_spoke(worker: WorkerView, look: Look) -> bool:
    trainer = container(worker.pod or {}, look.spec.trainer_container)
    return has_started(trainer) and worker.worker is not None and never_joined(worker.worker)


def _runs_for(worker: WorkerView, look: Look) -> float:
    return look.for_seconds(running_since(container(worker.pod or {}, look.spec.trainer_container))) or 0.0


def slow_joiner(worker: WorkerView, look: Look) -> str | None:
    if worker.pod is None or not has_started(container(worker.pod, look.spec.trainer_container)):
        return None
    since = running_since(container(worker.pod, look.spec.trainer_container))
    return length(look.for_seconds(since)) or "0 s"


def claims_of(pod: Object) -> list[str]:
    """The PersistentVolumeClaims that the pod names."""
    volumes = pod.get("spec", {}).get("volumes") or ()
    return [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]


def _unscheduled(pod: Object | None) -> str | None:
    found = condition(pod or {}, "PodScheduled")
    return said(found.get("message", "Unschedulable")) if found.get("reason") == "Unschedulable" else None


def _image(worker: WorkerView) -> str | None:
    return _waits_with(worker.pod, IMAGE_WORDS)


def _waits_with(pod: Object | None, words: frozenset[str]) -> str | None:
    for status in containers(pod or {}):
        if (word := waits_for(status)) in words:
            return said(word, waiting(status).get("message") or status.get("image"))
    return None


def _setup_event(worker: WorkerView, look: Look, reasons: tuple[str, ...]) -> str | None:
    """The newest event of these reasons while the pod is set up."""
    if worker.pod is None or has_started(container(worker.pod, look.spec.trainer_container)):
        return None
    found = [event for event in _events(worker, look) if event.get("reason") in reasons]
    return said(found[-1]["message"]) if found else None


def _events(worker: WorkerView, look: Look) -> list[Object]:
    uid = worker.pod["metadata"]["uid"] if worker.pod else ""
    found = events_of(look.scene, "Pod", worker.name) if worker.pod else []
    return [event for event in found if event["involvedObject"].get("uid", uid) == uid]


def _times(status: Object) -> str:
    count = status.get("restartCount", 0)
    return f"started again {count} time{'s' * (count != 1)}"
