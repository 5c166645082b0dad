# SPDX-License-Identifier: Apache-2.0
"""Which ElasticWorkers are valid, and what is wrong with the others. Pure.

The API server has checked each field by itself, and the admission policy, if installed, has checked the writer. This
module checks what a schema cannot express, so that a contradictory record makes only its own worker invalid.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

from elasticjob.api import MAX_SUSPECTS, RendezvousPhase
from elasticjob.objects import Object
from elasticjob.reading.pod import Pod
from elasticjob.reading.record import PROBLEM_LENGTH, Record, WorkerContent
from elasticjob.terms import RequestType
from elasticjob.text import plain


class Reading(NamedTuple):
    """A pod's record, or what is wrong with it; neither if the pod has written none. `writes`: how often it was
    written, by heartbeats and by requests."""

    content: WorkerContent | None = None
    problem: str = ""
    writes: int | None = None


def judge(record: Record | None, pod: Pod, index: int, job_name: str) -> Reading:
    """The record of `pod`, worker `index` of the job, as far as it can be checked by itself.

    A record left by another pod of the same name does not count.
    """
    if record is None or pod.uid not in record.owners:
        return Reading()
    if record.content is None:
        return Reading(problem=record.problem)
    if problem := _problem_of(record.content, pod, index, job_name):
        return Reading(problem=plain(problem, PROBLEM_LENGTH))
    return Reading(record.content, writes=record.writes)


def problems_among(job: Object, records: Mapping[str, WorkerContent]) -> dict[str, str]:
    """What is wrong with records in view of the job's state, by pod name."""
    formed, ping, stage = _last_formed(job), _last_ping(job), _stage(job)
    problems = {}
    for name, content in records.items():
        request, ack = content.request, content.status.ack
        if ack is not None and ack > ping:
            problems[name] = f"status.ack is {ack}, and the last ping is {ping}"
        for field, number in (("after", request.after), ("round", request.round)) if request else ():
            if number is not None and number > formed:
                problems[name] = f"spec.request.{field} is {number}, and the last round that was formed is {formed}"
        if request and (request.stage or 1) > stage + (request.type is not RequestType.FINISH):
            problems[name] = f"spec.request.stage is {request.stage}, and the job is at stage {stage}"
    return problems


def _problem_of(content: WorkerContent, pod: Pod, index: int, job_name: str) -> str | None:
    """What is wrong with a well-formed record; the sentence names the field."""
    if content.job != job_name:
        return f"spec.job is {content.job!r}, and the pod belongs to {job_name!r}"
    if content.index != index:
        return f"spec.index is {content.index}, and the pod is worker {index}"
    if pod.batch is not None and content.id.partition(".")[0] != pod.batch:
        return f"spec.id is {content.id}, and ids in this pod begin with {pod.batch}."
    if content.certificate_problem:
        return f"spec.certificate {content.certificate_problem}"
    if problem := _problem_of_address(content.address, pod):
        return f"spec.address {problem}"
    if (suspected := len(content.status.suspects)) > MAX_SUSPECTS:
        return f"status.suspects names {suspected} workers, and a sidecar suspects {MAX_SUSPECTS} at most"
    return None


def _problem_of_address(address: str, pod: Pod) -> str | None:
    host, _, port = address.rpartition(":")
    try:
        ip = ip_address(host.strip("[]"))
    except ValueError:
        return f"{address!r} holds no IP address"
    if not 0 < int(port) < 65536:
        return f"{address!r} holds no port"
    own = set(map(ip_address, pod.addresses))
    if own and ip not in own:
        return f"is {address}, and the pod's own is {', '.join(sorted(map(str, own)))}"
    return None


def _last_formed(job: Object) -> int:
    """The last round that a worker can have seen: this operator's own status is the newest."""
    agreed = _agreed(job)
    round: int = agreed.get("round", 0)
    return max(0, round - 1) if agreed.get("phase", RendezvousPhase.FORMING) == RendezvousPhase.FORMING else round


def _last_ping(job: Object) -> int:
    number: int = (_agreed(job).get("ping") or {}).get("number", 0)
    return number


def _stage(job: Object) -> int:
    """The last stage that may be requested: workers that succeeded in this stage may ask for the next one."""
    stage: int = _agreed(job).get("stage", 1)
    return stage


def _agreed(job: Object) -> Object:
    found: Object = (job.get("status") or {}).get("rendezvous") or {}
    return found
