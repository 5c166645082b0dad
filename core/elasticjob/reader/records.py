"""Which ElasticWorkers are believed, and what is wrong with the others. Pure.

The API server has checked each field by itself, and the admission policy, where there is one, who wrote it. What no
schema can know is checked here, so that a record that makes no sense makes its worker invalid and nothing else.
"""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from pydantic import ValidationError

from elasticjob.api import MAX_DOUBTS, MAX_REPLICAS, ElasticWorker, RendezvousPhase
from elasticjob.certificates import check_certificate, der_of
from elasticjob.objects import Object
from elasticjob.pods import batch_of
from elasticjob.terms import RequestType
from elasticjob.text import plain

PROBLEM_LENGTH = 300
MOST_CHALLENGES = 2**31 - 1  # that a job can have had


class Reading(NamedTuple):
    """A pod's record, or what is wrong with it; neither where the pod has written none. `signs`: how often it was
    written, by heartbeats and by requests."""

    record: ElasticWorker | None = None
    problem: str = ""
    signs: int | None = None


def read_record(body: Object | None, pod: Object, index: int, job_name: str) -> Reading:
    """The record of `pod`, worker `index` of the job, as far as it can be judged by itself.

    A record that another pod of this name has left does not count.
    """
    uid = pod["metadata"]["uid"]
    if body is None or all(owner["uid"] != uid for owner in body["metadata"].get("ownerReferences", ())):
        return Reading()
    try:
        record = ElasticWorker.parse(body)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    else:
        problem = _problem_of(record, pod, index, job_name) or ""
        if not problem:
            return Reading(record, signs=(record.status.heartbeat or 0) + body["metadata"].get("generation", 0))
    return Reading(problem=plain(problem, PROBLEM_LENGTH))


def problems_among(job: Object, records: Mapping[str, ElasticWorker]) -> dict[str, str]:
    """By the pod's name, what is wrong with a record in view of the job's state."""
    formed, challenge, stage = _last_formed(job), _last_challenge(job), _stage(job)
    problems = {}
    for name, record in records.items():
        request, answer = record.spec.request, record.status.answer
        if answer is not None and answer > challenge:
            problems[name] = f"status.answer is {answer}, and the last challenge is {challenge}"
        for field, number in (("after", request.after), ("round", request.round)) if request else ():
            if number is not None and number > formed:
                problems[name] = f"spec.request.{field} is {number}, and the last round that was formed is {formed}"
        if request and stage is not None and (request.stage or 1) > stage + (request.type is not RequestType.FINISH):
            problems[name] = f"spec.request.stage is {request.stage}, and the job is at stage {stage}"
    return problems


def _problem_of(record: ElasticWorker, pod: Object, index: int, job_name: str) -> str | None:
    """What is wrong beyond its form; it names the field."""
    spec = record.spec
    if spec.job != job_name:
        return f"spec.job is {spec.job!r}, and the pod belongs to {job_name!r}"
    if spec.index != index:
        return f"spec.index is {spec.index}, and the pod is worker {index}"
    batch = batch_of(pod)
    if batch is not None and spec.id.partition(".")[0] != batch:
        return f"spec.id is {spec.id}, and ids in this pod begin with {batch}."
    if problem := _problem_of_certificate(spec.certificate):
        return f"spec.certificate {problem}"
    if problem := _problem_of_address(spec.address, pod):
        return f"spec.address {problem}"
    if (doubted := len(record.status.doubts)) > MAX_DOUBTS:
        return f"status.doubts names {doubted} workers, and a sidecar doubts {MAX_DOUBTS} at most"
    return None


@lru_cache(maxsize=2 * MAX_REPLICAS)
def _problem_of_certificate(certificate: str) -> str | None:
    try:
        check_certificate(der_of(certificate))
    except ValueError as error:
        return f"is no certificate in PEM form: {error}"
    return None


def _problem_of_address(address: str, pod: Object) -> str | None:
    host, _, port = address.rpartition(":")
    try:
        ip = ip_address(host.strip("[]"))
    except ValueError:
        return f"{address!r} holds no IP address"
    if not 0 < int(port) < 65536:
        return f"{address!r} holds no port"
    own = {ip_address(one["ip"]) for one in pod.get("status", {}).get("podIPs", ()) if one.get("ip")}
    if own and ip not in own:
        return f"is {address}, and the pod's own is {', '.join(sorted(map(str, own)))}"
    return None


def _last_formed(job: Object) -> int:
    """Nobody can have seen a later round: this operator's own status is the newest."""
    agreed = _agreed(job)
    round: int = agreed.get("round", 0)
    return max(0, round - 1) if agreed.get("phase", RendezvousPhase.FORMING) == RendezvousPhase.FORMING else round


def _last_challenge(job: Object) -> int:
    """An operator that knows none drops it from the status, as after a rollback: then it may have been any."""
    challenge = _agreed(job).get("challenge")
    number: int = MOST_CHALLENGES if challenge is None else challenge.get("number", 0)
    return number


def _stage(job: Object) -> int | None:
    """The next one may be asked for by those that have succeeded in this one. None where the status has been written by
    an operator that knows no stages, as after a rollback: then it may have been any."""
    agreed = _agreed(job)
    stage: int | None = agreed.get("stage", None if agreed else 1)
    return stage


def _agreed(job: Object) -> Object:
    found: Object = (job.get("status") or {}).get("rendezvous") or {}
    return found
