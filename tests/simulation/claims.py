# SPDX-License-Identifier: Apache-2.0
"""What must have come of every job a while after the last fault: each claim is a sentence when it does not hold."""

from collections.abc import Iterator

from elasticjob.api import ElasticJobSpec, ElasticJobStatus, Outcome, RendezvousPhase
from elasticjob.reading import Pod
from elasticjob_operator.job.observe import is_made_for
from elasticjob_operator.objects.access import change_of, render_access, render_budget
from elasticjob_operator.objects.pods import access_name
from simulation.containers import Plan
from simulation.pods import BAD_IMAGE, FAILING_IMAGE
from simulation.store import Object
from simulation.world import NAMESPACE, World


def claims(world: World) -> list[str]:
    """Those that do not hold now."""
    found = [why for job in jobs(world) for why in _of_job(world, job)]
    return found + list(_of_leftovers(world))


def jobs(world: World) -> list[Object]:
    return [stored.body for stored in world.server.store.all("elasticjobs", NAMESPACE)]


def _of_job(world: World, job: Object) -> Iterator[str]:
    name = f"job {job['metadata']['name']}"
    spec, status = ElasticJobSpec.parse(job["spec"]), ElasticJobStatus.parse(job.get("status"))
    agreed, plan = status.rendezvous, world.plans[job["metadata"]["name"]]
    ended = agreed.phase is RendezvousPhase.CLOSED and agreed.outcome is not Outcome.CLOSED
    if "deletionTimestamp" in job["metadata"]:
        yield f"{name} is being deleted, and stays"
        return
    if status.observed_generation != job["metadata"]["generation"]:
        yield f"{name} has a status that does not answer to its spec"
    if ended:
        if spec.ttl_seconds_after_finished is not None:
            yield f"{name} has ended, and is not deleted after its time"
        yield from _of_ended(world, job, spec, name)
        return
    if spec.suspend and agreed.phase is not RendezvousPhase.CLOSED:
        yield from _of_suspended(world, job, spec, status, name)
        return
    invalid = any(one.type == "TemplateValid" and one.status == "False" for one in status.conditions)
    if invalid != _is_invalid(spec):
        yield f"{name} has {'an invalid' if _is_invalid(spec) else 'a valid'} template, and its status says otherwise"
    if invalid:
        return
    yield from _of_access(world, job, spec, name)
    if _cannot_start(spec):
        if status.reason not in ("ImagePull", "InitContainerCrashes"):
            yield f"{name} cannot start, and its status gives the reason {status.reason!r}"
        return
    if _may_fail_for_ever(spec, plan):
        return
    if plan.seconds is not None or plan.doomed:
        yield f"{name} trains to an end, and stands at {status.phase}: {agreed.phase} {agreed.reason}"
    else:
        yield from _of_endless(spec, status, name)


def _of_suspended(
    world: World, job: Object, spec: ElasticJobSpec, status: ElasticJobStatus, name: str
) -> Iterator[str]:
    finished = {one.index for one in status.rendezvous.finished} if spec.clean_pod_policy == "None" else set()
    stay = {f"{job['metadata']['name']}-{index}-{status.replacements.get(index, 0)}" for index in finished}
    if pods := [pod for pod in _alive(world, job) if pod not in stay]:
        yield f"{name} is suspended, and has the pods {', '.join(pods)}"
    if status.phase != "Suspended":
        yield f"{name} is suspended, and its status says {status.phase}"


def _of_endless(spec: ElasticJobSpec, status: ElasticJobStatus, name: str) -> Iterator[str]:
    """Of a job that trains on, as nothing ends it."""
    agreed = status.rendezvous
    if agreed.phase is RendezvousPhase.FORMING:
        why = next((one.message for one in status.conditions if one.type == "Rendezvoused"), "")
        yield f"{name} is not formed: {why}"
    elif agreed.phase is RendezvousPhase.FORMED and agreed.world_size + len(agreed.finished) < spec.replicas:
        yield f"{name} trains with {agreed.world_size} of {spec.replicas} workers"
    elif agreed.phase is RendezvousPhase.FORMED and not agreed.finished and status.spares != spec.spare_replicas:
        yield f"{name} trains, and {status.spares} of {spec.spare_replicas} spares wait"
    elif agreed.phase is RendezvousPhase.FORMED and not agreed.finished and agreed.restarted_at != spec.restarted_at:
        yield f"{name} trains, and the restart at {spec.restarted_at} was never done"
    elif agreed.phase is RendezvousPhase.FORMED and status.reason:
        yield f"{name} trains, and its status gives the reason {status.reason!r}"


def _may_fail_for_ever(spec: ElasticJobSpec, plan: Plan) -> bool:
    """Or stand still, and nothing but a word follows from it."""
    ignores = spec.pod_failure_policy and any(one.action == "Ignore" for one in spec.pod_failure_policy.rules)
    fails = plan.doomed or plan.fails or plan.crashes or plan.killed
    only_told = spec.progress_deadline_seconds is not None and spec.hang_policy == "Report"
    return bool(ignores and (fails or plan.hangs)) or bool(only_told and plan.hangs)


def _of_ended(world: World, job: Object, spec: ElasticJobSpec, name: str) -> Iterator[str]:
    pods = _alive(world, job)
    if spec.clean_pod_policy == "All" and (left := _pods(world, job)):
        yield f"{name} has ended, all its pods are to go, and {', '.join(left)} stay"
    if spec.clean_pod_policy == "Running" and pods:
        yield f"{name} has ended, and {', '.join(pods)} still run"


def _of_access(world: World, job: Object, spec: ElasticJobSpec, name: str) -> Iterator[str]:
    """By the options of the operator that leads."""
    lease = world.server.get("leases", "ops", "elasticjob-operator")
    holder = lease["spec"].get("holderIdentity") if lease else ""
    leader = next((one for one in reversed(world.operators) if one.identity == holder), None)
    if leader is None:
        yield f"{name} has nobody who leads"
        return
    access = render_access(job, spec, network_policy=leader.options.worker_network_policy)
    budget = [render_budget(job, min_available=len(_alive(world, job)))] if spec.drain.grace_seconds else []
    for path, body in (*access, *budget):
        plural = path.rsplit("/", 1)[1]
        found = world.server.get(plural, NAMESPACE, access_name(job["metadata"]["name"]))
        if found is None:
            yield f"{name} lacks its {body['kind']}"
        elif change_of(found, body) is not None:
            yield f"{name} has a {body['kind']} that is not as it should be"


def _of_leftovers(world: World) -> Iterator[str]:
    """Nothing stays of jobs that are no more."""
    uids = world.server.store.uids
    for plural in ("pods", "elasticworkers", "roles"):
        for stored in world.server.store.all(plural, NAMESPACE):
            owners = stored.body["metadata"].get("ownerReferences", ())
            if owners and not any(one["uid"] in uids for one in owners):
                yield f"{plural} {stored.body['metadata']['name']} belongs to nobody, and stays"
    for stored in world.server.store.all("workloads", NAMESPACE):
        if not any(one["uid"] in uids for one in stored.body["metadata"].get("ownerReferences", ())):
            yield f"the Workload {stored.body['metadata']['name']} belongs to nobody, and keeps its quota"


def _pods(world: World, job: Object) -> list[str]:
    found = (one.body for one in world.server.store.all("pods", NAMESPACE))
    return [pod["metadata"]["name"] for pod in found if is_made_for(Pod.read(pod), job)]


def _alive(world: World, job: Object) -> list[str]:
    return [name for name in _pods(world, job) if _phase(world, name) not in ("Succeeded", "Failed")]


def _phase(world: World, pod: str) -> str:
    found = world.server.get("pods", NAMESPACE, pod) or {}
    return str(found.get("status", {}).get("phase"))


def _is_invalid(spec: ElasticJobSpec) -> bool:
    trainer = spec.template["spec"]["containers"][0]
    return "unknownField" in trainer or any(one["name"] == "PET_NNODES" for one in trainer.get("env", ()))


def _cannot_start(spec: ElasticJobSpec) -> bool:
    pod = spec.template["spec"]
    images = [one["image"] for one in (*pod["containers"], *pod.get("initContainers", ()))]
    return BAD_IMAGE in images or FAILING_IMAGE in images
