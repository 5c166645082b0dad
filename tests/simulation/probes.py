# SPDX-License-Identifier: Apache-2.0
"""One more fault when all is quiet, which has to be mended in a time that people would wait for.

What is slow in a storm is hidden by it: an event that was overlooked is found by the next listing, minutes later.
"""

from collections.abc import Callable
from typing import NamedTuple

from elasticjob.api import INDEX_LABEL, JOB_LABEL, Members
from elasticjob.heartbeats import BACKSTOP_SECONDS
from elasticjob_operator.objects.pods import SIDECAR, access_name
from simulation.operators import LEASE, LEASE_NAMESPACE
from simulation.people import ask, path_of
from simulation.store import Object
from simulation.world import NAMESPACE, World

MISSED_BEATS = 3  # after which a worker is suspected of which nobody else hears


class Probe(NamedTuple):
    """`mended` says whether what was done is mended, `seconds` how long that may take."""

    what: str
    mended: Callable[[], bool]
    seconds: float


def probe(world: World, jobs: list[Object]) -> Probe | None:
    """Does something to one of the jobs that train, and that may form another round; None where there is none."""
    training = [job for job in jobs if _may_go_on(job) and _pods(world, job)]
    if not training:
        return None
    job = world.dice.choice(training)
    return world.dice.choice((_delete_pod, _silence, _grow, _take_role, _end_trainer, _part))(world, job)


def _may_go_on(job: Object) -> bool:
    status = job.get("status", {})
    return status.get("phase") == "Running" and status["rendezvous"]["phase"] != "Closed"


def _delete_pod(world: World, job: Object) -> Probe:
    pod = world.dice.choice(_pods(world, job))
    ask(world, "DELETE", path_of("pods", pod["metadata"]["name"]), {})
    return Probe(f"{pod['metadata']['name']} was deleted", lambda: _is_gone(world, pod), 150.0)


def _silence(world: World, job: Object) -> Probe:
    """A sidecar that says nothing more, for ever; not one that is to be started again just now, nor one whose record
    somebody has hidden, which only the sidecar itself can mend. Perhaps the leader was on the same node, and one that
    has stood by for long takes over."""
    pods = [pod for pod in _pods(world, job) if _sidecar_runs(world, pod) and _is_seen(world, pod)]
    if not pods:
        return _grow(world, job)
    pod = world.dice.choice(pods)
    run = world.nodes.run_of(pod["metadata"]["uid"])
    if run is not None:
        run.containers[SIDECAR].process.freeze()
    seconds = 240.0 if _is_heard(world, job) else 240.0 + MISSED_BEATS * BACKSTOP_SECONDS
    beside = ""
    if len(alive := [one for one in world.operators if not one.process.dead]) > 1 and world.dice.random() < 0.5:
        lease = world.server.get("leases", LEASE_NAMESPACE, LEASE) or {}
        for one in alive:
            if one.identity == lease.get("spec", {}).get("holderIdentity"):
                one.process.freeze()
                beside = f" and the leader {one.identity}"
    what = f"the sidecar of {pod['metadata']['name']}{beside} fell silent"
    return Probe(what, lambda: _is_gone(world, pod), seconds)


def _is_heard(world: World, job: Object) -> bool:
    """Whether each worker has a line, or holds those of others: all take part, and none is a stub, which has no lines.
    Else the heartbeats tell."""
    agreed, pods = job["status"]["rendezvous"], _pods(world, job)
    records = [world.server.get("elasticworkers", NAMESPACE, pod["metadata"]["name"]) or {} for pod in pods]
    answers = all(record.get("status", {}).get("ack") is not None for record in records)
    return agreed["phase"] == "Formed" and agreed.get("worldSize", 0) >= max(2, len(pods)) and answers


def _is_seen(world: World, pod: Object) -> bool:
    """Whether the operator finds the pod's record, if there is one, by the labels that they share."""
    record = world.server.get("elasticworkers", NAMESPACE, pod["metadata"]["name"]) or pod
    return all(
        record["metadata"]["labels"].get(one) == pod["metadata"]["labels"][one] for one in (JOB_LABEL, INDEX_LABEL)
    )


def _sidecar_runs(world: World, pod: Object) -> bool:
    run = world.nodes.run_of(pod["metadata"]["uid"])
    return run is None or not run.containers[SIDECAR].process.dead


def _grow(world: World, job: Object) -> Probe:
    step = (job["spec"].get("sizes") or {}).get("step", 1)
    name, replicas = job["metadata"]["name"], job["spec"]["replicas"] + step
    ask(world, "PATCH", path_of("elasticjobs", name), {"spec": {"replicas": replicas}})

    def grown() -> bool:
        status = _status(world, name)
        return status.get("rendezvous", {}).get("replicas") == replicas or status.get("phase") != "Running"

    return Probe(f"{name} was scaled to {replicas}", grown, 150.0)


def _take_role(world: World, job: Object) -> Probe:
    """Or empty it."""
    name, of_job = access_name(job["metadata"]["name"]), job["metadata"]["name"]
    if gone := world.dice.random() < 0.5:
        ask(world, "DELETE", path_of("roles", name), {})
    else:
        ask(world, "PATCH", path_of("roles", name), {"rules": []})

    def mended() -> bool:
        role = world.server.get("roles", NAMESPACE, name)
        return _status(world, of_job).get("phase") != "Running" or (role is not None and role["rules"] != [])

    return Probe(f"the role {name} was {'deleted' if gone else 'emptied'}", mended, 700.0)


def _end_trainer(world: World, job: Object) -> Probe:
    """A member's is killed, and its sidecar knows."""
    pod = world.dice.choice(_members(world, job))
    run = world.nodes.run_of(pod["metadata"]["uid"])
    before = job["status"]["rendezvous"]["round"]
    name, held = job["metadata"]["name"], _holds(world, pod, before)
    if run is not None and "trainer" in run.containers:
        run.containers["trainer"].kill()

    def mended() -> bool:
        status = _status(world, name)
        over = status.get("phase") != "Running" or status.get("rendezvous", {}).get("round", 0) > before
        # else its sidecar had not heard of the round yet, in which the next trainer trains from its beginning
        return over or (not held and _holds(world, pod, before))

    return Probe(f"the trainer of {pod['metadata']['name']} was killed", mended, 400.0)


def _part(world: World, job: Object) -> Probe:
    """A member and rank 0, which reach everybody else: it has to be told, by when packets pass again, and is over soon
    after; and costs neither its place. A later round may have another rank 0, or be without the other."""
    name, pods = job["metadata"]["name"], {pod["metadata"]["labels"][INDEX_LABEL]: pod for pod in _pods(world, job)}
    ranks = _ranks(job["status"])
    if not _is_heard(world, job) or not all(one in pods and _sidecar_runs(world, pods[one]) for one in ranks):
        return _grow(world, job)
    index = world.dice.choice(ranks[1:])
    rank0, other = pods[ranks[0]], pods[index]
    one, two = (world.nodes.run_of(pod["metadata"]["uid"]) for pod in (rank0, other))
    if one is None or two is None:
        return _grow(world, job)
    parted, address, told = one.sandbox.network.parted, two.sandbox.ip, False
    parted.add(address)

    def mended() -> bool:
        nonlocal told
        status = _status(world, name)
        connected = next((one["status"] for one in status.get("conditions", ()) if one["type"] == "Connected"), "")
        if connected == "False":
            told = True
            parted.discard(address)
        now = _ranks(status)
        over = status.get("phase") not in ("Running", "Forming") or now[:1] != ranks[:1] or index not in now
        return over or (told and connected == "True" and not (_is_gone(world, rank0) or _is_gone(world, other)))

    return Probe(f"{rank0['metadata']['name']} and {other['metadata']['name']} were parted", mended, 300.0)


def _holds(world: World, pod: Object, round: int) -> bool:
    """Whether its trainer was handed the round, as its record says."""
    record = world.server.get("elasticworkers", NAMESPACE, pod["metadata"]["name"]) or {}
    handed: bool = record.get("status", {}).get("round") == round
    return handed


def _ranks(status: Object) -> list[str]:
    """The indices of the last round's members."""
    return [str(member.index) for member in Members.read(status.get("rendezvous", {}).get("participants", ""))]


def _status(world: World, job: str) -> Object:
    found = world.server.get("elasticjobs", NAMESPACE, job)
    status: Object = found.get("status", {}) if found else {}
    return status


def _pods(world: World, job: Object) -> list[Object]:
    """Those of its workers that are there for certain."""
    uid, finished = job["metadata"]["uid"], job["status"]["rendezvous"].get("finished", "")
    if finished:
        return []
    return [
        stored.body
        for stored in world.server.store.all("pods", NAMESPACE)
        if any(one["uid"] == uid for one in stored.body["metadata"].get("ownerReferences", ()))
        and stored.body.get("status", {}).get("phase") == "Running"
        and "deletionTimestamp" not in stored.body["metadata"]
        and any(one["name"] == SIDECAR for one in stored.body["spec"].get("initContainers", ()))
    ]


def _members(world: World, job: Object) -> list[Object]:
    """The pods of those that train: a spare may end without another round. All pods where they come and go."""
    pods, agreed = _pods(world, job), job["status"]["rendezvous"].get("participants", "")
    indices = {str(member.index) for member in Members.read(agreed)}
    return [pod for pod in pods if pod["metadata"]["labels"][INDEX_LABEL] in indices] or pods


def _is_gone(world: World, pod: Object) -> bool:
    return pod["metadata"]["uid"] not in world.server.store.uids
