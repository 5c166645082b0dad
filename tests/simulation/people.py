# SPDX-License-Identifier: Apache-2.0
"""What people do meanwhile: they change and delete jobs, and get in the way of what the operator keeps for them.

They talk to the API server as anybody does, and may be refused.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from copy import deepcopy
from random import Random
from typing import Any

from elasticjob.api import API_VERSION, INDEX_LABEL, JOB_LABEL
from simulation.calls import Reply
from simulation.containers import Plan
from simulation.judge import ACCESS, BY_HAND
from simulation.nodes import ZONE
from simulation.pods import BAD_IMAGE, FAILING_IMAGE
from simulation.store import Object
from simulation.world import NAMESPACE, World

WHO = "people"
CUSTOM, CORE, RBAC = f"/apis/{API_VERSION}", "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
NETWORKING = "/apis/networking.k8s.io/v1"
POLICY = "/apis/policy/v1"
GROUPS = {
    "roles": RBAC,
    "rolebindings": RBAC,
    "networkpolicies": NETWORKING,
    "poddisruptionbudgets": POLICY,
    "serviceaccounts": CORE,
    "pods": CORE,
}
HELD = "example.com/held"


def ask(world: World, method: str, path: str, body: Any = None) -> Reply:
    """One request, at once."""
    headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    reply = world.server.handle(WHO, method, path, data, headers, world.loop.time())
    world.say(WHO, f"{method} {path}", f"{reply.status} {json.dumps(body) if body is not None else ''}"[:160])
    return reply


def path_of(plural: str, name: str = "") -> str:
    group = GROUPS.get(plural, CUSTOM)
    return f"{group}/namespaces/{NAMESPACE}/{plural}" + (f"/{name}" if name else "")


# --- jobs


def new_job(dice: Random, name: str) -> tuple[Object, Plan]:
    """A job as somebody might submit it, and what its training will do."""
    replicas = dice.choice((1, 1, 2, 2, 2, 3, 3, 4, 5)) if dice.random() < 0.96 else dice.randint(6, 12)
    trainer: Object = {"name": "trainer", "image": "example/train", "command": ["torchrun", "train.py"]}
    pod: Object = {"containers": [trainer], "terminationGracePeriodSeconds": dice.choice((1, 5, 30))}
    oddity = dice.random()
    if oddity < 0.03:
        trainer["image"] = BAD_IMAGE
    elif oddity < 0.08:
        trainer["unknownField"] = 1
    elif oddity < 0.10:
        trainer["env"] = [{"name": "PET_NNODES", "value": "2"}]  # our own rule
    if dice.random() < 0.3:
        pod["containers"].append({"name": "logs", "image": "example/logs"})
    if dice.random() < 0.1:
        image = FAILING_IMAGE if dice.random() < 0.1 else "example/init"
        pod["initContainers"] = [{"name": "init", "image": image}]
    rejoin = dice.choice((30, 60, 75))
    spec: Object = {
        "replicas": replicas,
        "minReplicas": dice.randint(1, replicas),
        "maxRestarts": dice.choice((0, 1, 3, 10)),
        "cleanPodPolicy": dice.choice(("None", "Running", "Running", "All")),
        "rendezvous": {
            "lastCallSeconds": dice.choice((1, 5, 20)),
            "joinTimeoutSeconds": dice.choice((60, 200, 600)),
            "rejoinSeconds": rejoin,
            "saveSeconds": dice.choice((0, 5)),
            "restartResetSeconds": dice.choice((30, 3600)),
        },
        "template": {"spec": pod},
    }
    if rejoin == 60:
        spec["rankOrder"] = {"topologyKeys": [ZONE]}
    if dice.random() < 0.5:
        spec["drain"] = {"graceSeconds": dice.choice((0, 5, 30))}
    if dice.random() < 0.3:
        spec["rendezvous"]["workerLostSeconds"] = dice.choice((12, 15, 25))
    if dice.random() < 0.5:
        spec["ttlSecondsAfterFinished"] = dice.choice((0, 5, 30))
    if dice.random() < 0.1:
        spec["suspend"] = True
    if dice.random() < 0.5:
        seconds = dice.choice((5, 30, 300))
        spec["avoidNodes"] = {
            "failures": dice.choice((1, 1, 2)),
            "forSeconds": seconds,
            "required": dice.random() < 0.3,
        }
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": meta, "spec": spec}, new_plan(dice)


def new_plan(dice: Random) -> Plan:
    plan = Plan(seconds=dice.choice((1.0, 5.0, 20.0, 40.0)) if dice.random() < 0.75 else None)
    plan.spread = dice.choice((0.0, 0.0, 3.0, 10.0))
    kind = dice.random()
    if kind < 0.04:
        plan.doomed = True
    elif kind < 0.3:
        plan.fails, plan.crashes, plan.killed = (dice.choice((0.0, 0.1, 0.3)) for _ in range(3))
    if dice.random() < 0.1:
        plan.closes = 0.2
    if dice.random() < 0.1:
        plan.hangs = 0.1
    if dice.random() < 0.1:
        plan.sidecar_crashes = 0.2
    if dice.random() < 0.3:
        plan.saves = 0.5
    if dice.random() < 0.3:
        plan.uploads, plan.upload_fails = dice.choice((0.0, 5.0, 40.0)), 0.1
        plan.stages = 1 if plan.closes else dice.choice((1, 2, 3))  # what is closed has no next one
    return plan


def submit(world: World, name: str) -> None:
    job, plan = new_job(world.dice, name)
    world.adds_features(world.dice, job, plan)
    world.plans[name] = plan
    world.say(WHO, f"submits {name}", str(plan))
    ask(world, "POST", path_of("elasticjobs"), job)


Doing = Callable[[World, Object], Awaitable[None]]


async def scale(world: World, job: Object) -> None:
    least = job["spec"].get("minReplicas", 1)
    replicas = world.dice.randint(least, max(least, job["spec"]["replicas"]) + 2)
    if step := (job["spec"].get("sizes") or {}).get("step"):
        replicas = -(-replicas // step) * step
    edit(world, job, {"replicas": replicas})


async def restart(world: World, job: Object) -> None:
    second = world.dice.randint(0, 59)
    edit(world, job, {"restartedAt": f"2026-01-02T03:04:{second:02}Z"})


async def suspend(world: World, job: Object) -> None:
    edit(world, job, {"suspend": True})
    await asyncio.sleep(world.dice.choice((0.1, 3.0, 30.0)))
    if world.dice.random() < 0.9:
        edit(world, job, {"suspend": False})


async def edit_template(world: World, job: Object) -> None:
    """What it takes to change what pods are made from; what was wrong with it is mended."""
    invalid = "unknownField" in json.dumps(job["spec"]) or "PET_NNODES" in json.dumps(job["spec"])
    if world.dice.random() < 0.9 and not invalid:
        edit(world, job, {"suspend": True})
        await asyncio.sleep(world.dice.choice((0.0, 0.2, 10.0)))
    found = world.server.get("elasticjobs", NAMESPACE, job["metadata"]["name"])
    if found is None:
        return
    template = deepcopy(found["spec"]["template"])
    trainer = template["spec"]["containers"][0]
    trainer.pop("unknownField", None)
    trainer["image"] = f"example/train:{world.dice.randint(1, 9)}"
    trainer["env"] = [{"name": "LR", "value": str(world.dice.randint(1, 9))}]
    edit(world, job, {"template": template})
    await asyncio.sleep(world.dice.choice((0.0, 5.0)))
    edit(world, job, {"suspend": False})


async def change_limits(world: World, job: Object) -> None:
    change = world.dice.choice(
        (
            {"maxRestarts": 5},
            {"minReplicas": 1},
            {"cleanPodPolicy": "All"},
            {"ttlSecondsAfterFinished": 10},
            {"activeDeadlineSeconds": world.dice.choice((1, 5))},
        )
    )
    edit(world, job, change)


async def delete_job(world: World, job: Object) -> None:
    """And often make it again, under the same name."""
    name = job["metadata"]["name"]
    policy = world.dice.choice(("Background", "Background", "Foreground", "Orphan"))
    ask(world, "DELETE", path_of("elasticjobs", name), {"propagationPolicy": policy})
    if world.dice.random() < 0.8:
        await asyncio.sleep(world.dice.choice((0.0, 0.02, 0.1, 1.0, 8.0)))
        while world.server.get("elasticjobs", NAMESPACE, name) is not None:
            await asyncio.sleep(0.05)
        submit(world, name)


async def delete_pod(world: World, job: Object) -> None:
    if pod := _pod(world, job):
        grace = world.dice.choice((None, None, 0, 1))
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        ask(world, "DELETE", path_of("pods", pod["metadata"]["name"]), options)


async def hold_pod(world: World, job: Object) -> None:
    """A finalizer of somebody's keeps it from going."""
    if pod := _pod(world, job):
        name = pod["metadata"]["name"]
        ask(world, "PATCH", path_of("pods", name), {"metadata": {"finalizers": [HELD]}})
        await asyncio.sleep(world.dice.uniform(10, 60))
        ask(world, "PATCH", path_of("pods", name), {"metadata": {"finalizers": None}})


async def drain(world: World, job: Object) -> None:
    """Until all is gone, or for want of patience; whom the budgets keep is tried again every few seconds."""
    if pod := _pod(world, job):
        run = world.nodes.run_of(pod["metadata"]["uid"])
        if run is not None:
            world.say(WHO, f"drains {run.node.name}")
            world.nodes.cordon(run.node)
            for _ in range(world.dice.choice((1, 4, 20))):
                for one in filter(world.nodes.may_evict, list(run.node.pods.values())):
                    world.nodes.evict(one)
                await asyncio.sleep(world.dice.uniform(4, 6))
            world.nodes.cordon(run.node, cordoned=False)


async def delete_record(world: World, job: Object) -> None:
    if pod := _pod(world, job):
        ask(world, "DELETE", path_of("elasticworkers", pod["metadata"]["name"]), {})


async def spoil_record(world: World, job: Object) -> None:
    """Writes nonsense into a worker's record."""
    if pod := _pod(world, job):
        change = world.dice.choice(
            (
                {"spec": {"request": {"type": "Join", "after": 99}}},
                {"spec": {"index": 77}},
                {"metadata": {"labels": {JOB_LABEL: "other"}}},
                {"metadata": {"ownerReferences": None}},
                {"spec": {"request": None}},
                {"status": None},
            )
        )
        ask(world, "PATCH", path_of("elasticworkers", pod["metadata"]["name"]), change)


async def delete_grant(world: World, job: Object) -> None:
    plural = world.dice.choice(ACCESS)
    ask(world, "DELETE", path_of(plural, _grant(plural, job)), {})


async def edit_grant(world: World, job: Object) -> None:
    ask(world, "PATCH", path_of("roles", _grant("roles", job)), {"rules": []})


async def take_grant(world: World, job: Object) -> None:
    """Makes an object of the same name by hand, and takes it away later."""
    plural = world.dice.choice(("roles", "serviceaccounts"))
    name = _grant(plural, job)
    ask(world, "DELETE", path_of(plural, name), {})
    await asyncio.sleep(world.dice.choice((0.0, 0.01, 0.5)))
    meta = {"name": name, "namespace": NAMESPACE, "labels": {BY_HAND: "true"}}
    kind = {"roles": "Role", "serviceaccounts": "ServiceAccount"}[plural]
    body = {"kind": kind, "metadata": meta, "rules": [{"verbs": ["get"]}], "automountServiceAccountToken": True}
    ask(world, "POST", path_of(plural), body)
    await asyncio.sleep(world.dice.choice((3.0, 20.0)))
    found = world.server.get(plural, NAMESPACE, name)
    if found is not None and BY_HAND in (found["metadata"].get("labels") or {}):
        ask(world, "DELETE", path_of(plural, name), {})


async def foreign_pod(world: World, job: Object) -> None:
    """A pod with the job's labels, a worker's name and perhaps the job as its owner, made by hand for a while."""
    name, index = job["metadata"]["name"], world.dice.randint(0, 3)
    owned, number = world.dice.random() < 0.4, world.dice.choice((0, 1, 2, 7))
    owner = {"apiVersion": API_VERSION, "kind": "ElasticJob", "name": name, "uid": job["metadata"]["uid"]}
    meta: Object = {"name": f"{name}-{index}-{number}", "labels": {JOB_LABEL: name, INDEX_LABEL: str(index)}}
    if owned:
        meta["ownerReferences"] = [owner]
    spec = {"containers": [{"name": "logs", "image": "example/logs"}]}
    reply = ask(world, "POST", path_of("pods"), {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    if reply.status < 300:
        uid = json.loads(reply.body)["metadata"]["uid"]
        await asyncio.sleep(world.dice.uniform(1, 40))
        ask(world, "DELETE", path_of("pods", meta["name"]), {"preconditions": {"uid": uid}})


async def delete_lease(world: World, _: Object) -> None:
    ask(world, "DELETE", "/apis/coordination.k8s.io/v1/namespaces/ops/leases/elasticjob-operator", {})


async def quota(world: World, _: Object) -> None:
    world.server.admission.quota = world.dice.randint(0, 4)
    world.say(WHO, "set a quota", str(world.server.admission.quota))
    await asyncio.sleep(world.dice.uniform(5, 40))
    world.server.admission.quota = None


async def webhook(world: World, job: Object) -> None:
    """While it is there, a pod has to be made."""
    admission = world.server.admission
    admission.denies, admission.hangs = world.dice.choice(((True, False), (False, True)))
    world.say(WHO, "install a webhook that " + ("denies" if admission.denies else "hangs"))
    await delete_pod(world, job)
    await asyncio.sleep(world.dice.uniform(5, 30))
    admission.denies = admission.hangs = False


DOINGS: dict[Doing, int] = {  # and how often, beside the others
    scale: 8,
    restart: 3,
    suspend: 5,
    edit_template: 4,
    change_limits: 2,
    delete_job: 5,
    delete_pod: 8,
    hold_pod: 2,
    drain: 3,
    delete_record: 3,
    spoil_record: 4,
    delete_grant: 4,
    edit_grant: 2,
    take_grant: 2,
    foreign_pod: 3,
    delete_lease: 2,
    quota: 3,
    webhook: 3,
}


def tidy(world: World) -> None:
    """What people left behind that nobody else would take away."""
    for stored in list(world.server.store.all("pods", NAMESPACE)):
        meta = stored.body["metadata"]
        if HELD in meta.get("finalizers", ()):
            ask(world, "PATCH", path_of("pods", meta["name"]), {"metadata": {"finalizers": None}})
        if not meta.get("ownerReferences"):
            ask(world, "DELETE", path_of("pods", meta["name"]), {"gracePeriodSeconds": 0})
    for plural in ACCESS:
        for stored in list(world.server.store.all(plural, NAMESPACE)):
            meta = stored.body["metadata"]
            if BY_HAND in (meta.get("labels") or {}) or not meta.get("ownerReferences"):
                ask(world, "DELETE", path_of(plural, stored.body["metadata"]["name"]), {})


def edit(world: World, job: Object, change: Object) -> None:
    ask(world, "PATCH", path_of("elasticjobs", job["metadata"]["name"]), {"spec": change})


def _grant(plural: str, job: Object) -> str:
    return f"{job['metadata']['name']}-worker"


def _pod(world: World, job: Object) -> Object | None:
    """One of the job's, whichever."""
    uid = job["metadata"]["uid"]
    found = [
        one.body
        for one in world.server.store.all("pods", NAMESPACE)
        if any(owner["uid"] == uid for owner in one.body["metadata"].get("ownerReferences", ()))
    ]
    return world.dice.choice(found) if found else None
