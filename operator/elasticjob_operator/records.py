"""Which ElasticWorkers are believed, and what is wrong with the others. Pure.

The API server has checked each field by itself, and the admission policy, where there is one, who wrote it. What no
schema can know is checked here, so that a record that makes no sense makes its worker invalid and nothing else.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from pydantic import ValidationError

from elasticjob.api import MAX_REPLICAS, ElasticWorker, RendezvousPhase
from elasticjob.certificates import check_certificate, der_of, incarnation_id
from elasticjob_operator.kube import Object

PROBLEM_LENGTH = 300


class Reading(NamedTuple):
    """A pod's record, or what is wrong with it; neither where the pod has written none."""

    record: ElasticWorker | None = None
    problem: str = ""


def read_records(
    job: Object, pods: Mapping[str, Object], places: Mapping[str, tuple[int, int]], records: Mapping[str, Object]
) -> dict[str, Reading]:
    """For each of the job's `pods`, by name, its reading; `places` are their indices and numbers."""
    readings = {name: _read(records.get(name), pod, places[name][0], job) for name, pod in pods.items()}
    for name, problem in _shared_ids(job, places, readings).items():
        readings[name] = Reading(problem=problem)
    return readings


def _read(body: Object | None, pod: Object, index: int, job: Object) -> Reading:
    """One that another pod of this name has left is none."""
    uid = pod["metadata"]["uid"]
    if body is None or all(owner["uid"] != uid for owner in body["metadata"].get("ownerReferences", ())):
        return Reading()
    try:
        record = ElasticWorker.parse(body)
    except ValidationError as error:
        first = error.errors()[0]
        problem: str | None = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    else:
        problem = problem_of(record, pod, index, job)
    return Reading(problem=problem[:PROBLEM_LENGTH]) if problem else Reading(record)


def problem_of(record: ElasticWorker, pod: Object, index: int, job: Object) -> str | None:
    """What is wrong with the record of `pod`, worker `index` of `job`, beyond its form; it names the field."""
    spec, request = record.spec, record.spec.request
    formed = _last_formed(job)
    if spec.job != job["metadata"]["name"]:
        return f"spec.job is {spec.job!r}, and the pod belongs to {job['metadata']['name']!r}"
    if spec.index != index:
        return f"spec.index is {spec.index}, and the pod is worker {index}"
    if problem := _problem_of_certificate(spec.certificate, spec.id):
        return f"spec.certificate {problem}"
    if problem := _problem_of_address(spec.address, pod):
        return f"spec.address {problem}"
    for name, number in (("after", request.after), ("round", request.round)) if request else ():
        if number is not None and number > formed:
            return f"spec.request.{name} is {number}, and the last round that was formed is {formed}"
    return None


@lru_cache(maxsize=2 * MAX_REPLICAS)
def _problem_of_certificate(certificate: str, id: str) -> str | None:
    try:
        der = der_of(certificate)
        check_certificate(der)
    except ValueError as error:
        return f"is no certificate in PEM form: {error}"
    own = incarnation_id(der)
    return None if own == id else f"has the id {own}, and spec.id is {id}"


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


def _shared_ids(job: Object, places: Mapping[str, tuple[int, int]], readings: Mapping[str, Reading]) -> dict[str, str]:
    """What is wrong with those that have the id of another. A member of the last round keeps its own: else anybody
    could take it away by naming it. Of others it is not known whose it is, so none of them is believed."""
    members = {(one["index"], one["id"]) for one in _agreed(job).get("participants", ())}
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(readings, key=lambda name: places[name]):
        if record := readings[name].record:
            holders[record.spec.id].append(name)
    problems = {}
    for id, names in holders.items():
        owner = next((name for name in names if (places[name][0], id) in members), None)
        for name in names if len(names) > 1 else ():
            if name != owner:
                other = next(one for one in names if one != name)
                problems[name] = f"spec.id is that of {other} too"
    return problems


def _last_formed(job: Object) -> int:
    """Nobody can have seen a later round: this operator's own status is the newest."""
    agreed = _agreed(job)
    round: int = agreed.get("round", 0)
    return max(0, round - 1) if agreed.get("phase", RendezvousPhase.FORMING) == RendezvousPhase.FORMING else round


def _agreed(job: Object) -> Object:
    found: Object = (job.get("status") or {}).get("rendezvous") or {}
    return found
