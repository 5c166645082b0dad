# SPDX-License-Identifier: Apache-2.0
"""What a user is told of a mistake: each is a row of a table, with what kubectl get, describe and events then say.

That takes seconds; the limit here is for a machine that does much else.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from e2e.job import TRAINER, Job
from e2e.kube import Object, wait_until

TOLD_SECONDS = 120
HOLD = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]


class Mistake(NamedTuple):
    """`make` changes a job's spec. `reason` is what `kubectl get` shows; `condition` names the one that says why in a
    sentence, which `kubectl describe` shows too; `event` is None where nothing is wrong yet. `there` was made before.
    """

    make: Callable[[Object], None]
    reason: str
    condition: str
    sentence: str
    event: str | None
    there: tuple[Object, ...] = ()


def pod(**fields: Any) -> Callable[[Object], None]:
    """The template's pod has these fields."""
    return lambda spec: spec["template"]["spec"].update(fields)


def trainer(**fields: Any) -> Callable[[Object], None]:
    """The template's trainer has these fields."""
    return lambda spec: spec["template"]["spec"]["containers"][0].update(fields)


def fails_at_once(spec: Object) -> None:
    trainer(env=[{"name": "FAIL_AT_STEP", "value": "1"}])(spec)
    spec["maxRestarts"] = 0


def fails_behind_a_wrapper(spec: Object) -> None:
    """As by numactl or nsys: the script is no child of torchrun."""
    trainer(command=["torchrun", "--no-python", "sh", "-c", f"python3 -c '{RAISES}'; exit $?"])(spec)
    spec["maxRestarts"] = 0


def trains_alone(spec: Object) -> None:
    """The operator reads no script, and so does not see it."""
    trainer(command=["sh", "-c", f"cat > /tmp/run.sh <<EOF\n{STANDALONE}\nEOF\nsh /tmp/run.sh"])(spec)
    spec["maxRestarts"] = 0


def loses_the_plug_in(spec: Object) -> None:
    trainer(command=["sh", "-c", "export PYTHONPATH=/test; torchrun /test/train.py"])(spec)
    spec["maxRestarts"] = 0


def mounts_no_such_map(spec: Object) -> None:
    """A volume that nobody mounts is nothing to the kubelet."""
    spec["template"]["spec"]["volumes"].append(MAP)
    spec["template"]["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})


def made(kind: str, name: str, version: str = "v1", **spec: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "no-such-claim"}}
MAP = {"name": "data", "configMap": {"name": "no-such-map"}}
SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "key"}}}
RAISES = 'raise ValueError("shard 7 is broken")'
STANDALONE = "torchrun --standalone --nproc-per-node=1 /test/train.py"
BROKEN = {"name": "fetch", "image": "elasticjob/digits:dev", "command": ["sh", "-c", "echo no route >&2; exit 3"]}
LIMITS = [{"type": "Container", "max": {"memory": "1Mi"}}]

MISTAKES = {
    "no image": Mistake(
        trainer(image="localhost:1/nowhere:1"), "ImagePull", "Rendezvoused", "localhost:1/nowhere:1", "ImagePull"
    ),
    "no image name": Mistake(trainer(image="A B"), "ImagePull", "Rendezvoused", "InvalidImageName", "ImagePull"),
    "no secret": Mistake(
        trainer(env=[SECRET]), "ConfigMissing", "Rendezvoused", 'secret "no-such-secret" not found', "ConfigMissing"
    ),
    "no configmap": Mistake(
        trainer(envFrom=[{"configMapRef": {"name": "no-such-map"}}]),
        "ConfigMissing",
        "Rendezvoused",
        'configmap "no-such-map" not found',
        "ConfigMissing",
    ),
    "no configmap to mount": Mistake(
        mounts_no_such_map,
        "PodStarting",
        "Rendezvoused",
        "if it lasts, `kubectl describe pod` says why",
        None,
    ),
    "no claim": Mistake(
        lambda spec: spec["template"]["spec"]["volumes"].append(CLAIM),
        "ClaimNotReady",
        "Rendezvoused",
        'persistentvolumeclaim "no-such-claim" not found',
        "ClaimNotReady",
    ),
    "too many CPUs": Mistake(
        trainer(resources={"requests": {"cpu": "1000"}}),
        "Unschedulable",
        "Rendezvoused",
        "Insufficient cpu",
        "Unschedulable",
    ),
    "no such node": Mistake(
        pod(nodeSelector={"gpu": "of-tomorrow"}),
        "Unschedulable",
        "Rendezvoused",
        "didn't match Pod's node affinity/selector",
        "Unschedulable",
    ),
    "a gate that nobody opens": Mistake(
        pod(schedulingGates=[{"name": "example.com/queue"}]),
        "SchedulingGated",
        "Rendezvoused",
        "the controller that set the gates removes them",
        "SchedulingGated",
    ),
    "no such command": Mistake(
        trainer(command=["torchrum", "/test/train.py"]),
        "TrainerCrashes",
        "Rendezvoused",
        "torchrum: not found",
        "TrainerCrashes",
    ),
    "an init container that fails": Mistake(
        pod(initContainers=[BROKEN]),
        "InitContainerCrashes",
        "Rendezvoused",
        "the init container fetch fails: exit code 3: no route",
        "InitContainerCrashes",
    ),
    "a quota": Mistake(
        trainer(),
        "QuotaExceeded",
        "Rendezvoused",
        "exceeded quota: full",
        "CreateFailed",
        (made("ResourceQuota", "full", hard={"pods": "0"}),),
    ),
    "a quota on records": Mistake(
        trainer(),
        "SidecarNotReady",
        "SidecarsReady",
        "raise count/elasticworkers.elasticjob.io in spec.hard of the ResourceQuota records",
        "SidecarNotReady",
        (made("ResourceQuota", "records", hard={"count/elasticworkers.elasticjob.io": "0"}),),
    ),
    "a limit range": Mistake(
        trainer(resources={"limits": {"memory": "2Mi"}}),
        "AdmissionRefused",
        "Rendezvoused",
        "maximum memory usage per Container is 1Mi",
        "CreateFailed",
        (made("LimitRange", "small", limits=LIMITS),),
    ),
    "python in place of torchrun": Mistake(
        trainer(command=["python", "/test/train.py"]),
        "Failed",
        "Failed",
        "it must be torchrun",
        "Failed",
    ),
    "a command that does nothing": Mistake(
        trainer(command=["true"]), "Failed", "Failed", "its command must be torchrun, without --standalone", "Failed"
    ),
    "a training that fails": Mistake(
        fails_at_once, "Failed", "Failed", "exit code 1: RuntimeError: FAIL_AT_STEP is 1): failure 1", "Failed"
    ),
    "an exception behind a wrapper": Mistake(
        fails_behind_a_wrapper, "Failed", "Failed", "exit code 1: ValueError: shard 7 is broken", "Failed"
    ),
    "a rendezvous of its own in a script": Mistake(
        trains_alone, "Failed", "Failed", "--standalone passes over the job's rendezvous", "Failed"
    ),
    "a PYTHONPATH of its own": Mistake(loses_the_plug_in, "Failed", "Failed", "PYTHONPATH", "Failed"),
    "another rendezvous": Mistake(
        trainer(command=["torchrun", "--rdzv-backend=c10d", "/test/train.py"]),
        "TemplateInvalid",
        "TemplateValid",
        "remove --rdzv-backend from the trainer's command",
        "TemplateInvalid",
    ),
    "a node by its name": Mistake(
        lambda spec: spec["template"]["spec"].update(nodeName="node-a"),
        "TemplateInvalid",
        "TemplateValid",
        "spec.template.spec.nodeName must be left out",
        "TemplateInvalid",
    ),
    "a job that was left suspended": Mistake(
        lambda spec: spec.update(suspend=True), "Suspended", "Suspended", "spec.suspend is true", None
    ),
}


# what they say comes from torch or a Python that has it; from kubelets and container runtimes
IN_A_POD = {"an exception behind a wrapper"}
OF_TORCH = {
    "a rendezvous of its own in a script",
    "a training that fails",
    "python in place of torchrun",
    "a PYTHONPATH of its own",
}
OF_KUBELETS = {"no image name", "no secret", "no configmap", "no configmap to mount", "no such command"}
# of which test_cli.py has the same job, or tests/api the refusal
OF_OTHERS = {
    "no claim",
    "too many CPUs",
    "a gate that nobody opens",
    "an init container that fails",
    "a limit range",
    "a node by its name",
    "a job that was left suspended",
}
MARKS = {name: [pytest.mark.extended] for name in OF_OTHERS}
MARKS |= {name: [pytest.mark.torchrun, pytest.mark.real, pytest.mark.extended] for name in OF_TORCH}
MARKS |= {name: [pytest.mark.real, pytest.mark.extended] for name in OF_KUBELETS}
MARKS |= {name: [pytest.mark.torchrun, pytest.mark.real] for name in IN_A_POD}
CASES = [
    pytest.param(mistake, id=name.replace(" ", "-"), marks=MARKS.get(name, ())) for name, mistake in MISTAKES.items()
]


@pytest.mark.parametrize("mistake", CASES)
def test_a_mistake_is_told(job: Job, mistake: Mistake) -> None:
    body = job.manifest(replicas=1)
    mistake.make(body["spec"])
    if mistake.there:
        job.namespace.apply(*mistake.there)
        job.wait_for_quotas()
    job.namespace.apply(body)

    def known() -> bool:
        return (
            job.status.get("reason") == mistake.reason
            and mistake.sentence in job.condition(mistake.condition)["message"]
        )

    def got() -> bool:
        return job.namespace.kubectl("get", "elasticjob", job.name).splitlines()[-1].split()[2:3] == [mistake.reason]

    def described() -> bool:
        return mistake.sentence in " ".join(job.namespace.kubectl("describe", "elasticjob", job.name).split())

    def announced() -> bool:
        return any(one["reason"] == mistake.event and mistake.sentence in one["message"] for one in job.events())

    job.until(f"{mistake.reason} and {mistake.sentence!r} in the status", known, TOLD_SECONDS)
    job.until(f"{mistake.reason} in kubectl get", got, TOLD_SECONDS)
    job.until(f"{mistake.sentence!r} in kubectl describe", described, TOLD_SECONDS)
    if mistake.event:
        wait_until(f"an event {mistake.event} that says {mistake.sentence!r}", announced, TOLD_SECONDS, job.events)


def test_a_cause_is_told_once_however_the_kubelet_puts_it(job: Job) -> None:
    """It says in turn that it could not pull an image, and that it waits to try again."""
    job.apply(replicas=2, trainer={"image": "localhost:1/nowhere:1"})

    def backs_off() -> bool:
        waiting = [
            status["state"].get("waiting", {}).get("reason")
            for sighting in list(job.pod_states.sightings)
            for status in sighting.body["status"].get("containerStatuses", ())
            if status["name"] == TRAINER
        ]
        return {"ErrImagePull", "ImagePullBackOff"} <= set(waiting)

    job.until("both of the kubelet's words", backs_off, TOLD_SECONDS)
    job.wait_for_the_only_event("ImagePull")
