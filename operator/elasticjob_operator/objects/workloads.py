# SPDX-License-Identifier: Apache-2.0
"""Renders the Workloads by which a job requests quota from Kueue as a gang. Pure."""

from typing import NamedTuple

from elasticjob.api import GROUP, JOB_LABEL, ElasticJobSpec
from elasticjob.kube.paths import PRIORITIES, WORKLOADS
from elasticjob.objects import Object
from elasticjob.pods import KUEUE, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, TEMPLATE_HASH
from elasticjob_operator.objects.pods import SidecarImage, owner_reference, render_pod

POD_SET = "workers"
OF_PODS = "PriorityClass"
LEAST = f"{GROUP}/at-least"  # keeps the request: a Kueue without partial admission drops minCount
NO_BATCH = "0" * 8  # for a pod that is rendered and never made


class Ask(NamedTuple):
    """What a Workload requests: `workers`, or at least `least` of them, in `queue`, with a priority class if one is
    named. `by_pods`: the class is a PriorityClass of pods, because the job names none of Kueue's."""

    queue: str
    priority_class: str = ""
    workers: int = 0
    least: int = 0
    by_pods: bool = False


def problem(job: Object, spec: ElasticJobSpec) -> str | None:
    """What has to be changed in a job before a Workload can be made for it; None if nothing has."""
    if not spec.admitted_as_gang:
        return None
    if ask_of(job) is None:
        return f"spec.quotaAdmission is Gang, and the job has no label {QUEUE_LABEL}: add it, or leave the field out"
    if QUEUE_LABEL in ((spec.template.get("metadata") or {}).get("labels") or {}):
        return f"spec.template.metadata.labels: with quotaAdmission Gang {QUEUE_LABEL} must be the job's label alone"
    return None


def ask_of(job: Object) -> Ask | None:
    """The queue and the priority class that the job names; None if it names no queue."""
    labels = job["metadata"].get("labels") or {}
    if not labels.get(QUEUE_LABEL):
        return None
    if named := labels.get(QUEUE_PRIORITY_LABEL):
        return Ask(labels[QUEUE_LABEL], named)
    of_pods = ((job["spec"].get("template") or {}).get("spec") or {}).get("priorityClassName") or ""
    return Ask(labels[QUEUE_LABEL], of_pods, by_pods=bool(of_pods))


def asked_by(workload: Object) -> Ask:
    spec, annotations = workload["spec"], workload["metadata"].get("annotations") or {}
    workers = sum(one["count"] for one in spec["podSets"] if one["name"] == POD_SET)
    least = annotations.get(LEAST, "")
    by = spec.get("priorityClassRef") or {}
    at_least = int(least) if least.isdecimal() else workers
    return Ask(spec.get("queueName", ""), by.get("name", ""), workers, at_least, by.get("kind") == OF_PODS)


def workload_name(job: str, number: int) -> str:
    return f"{job}-{number}"


def collection(namespace: str) -> str:
    return WORKLOADS.all(namespace)


def render_workload(
    job: Object, spec: ElasticJobSpec, image: SidecarImage, number: int, ask: Ask, priority: int | None
) -> Object:
    """The Workload with this number. Kueue counts what the containers request, including the sidecar. `priority`: the
    value of the priority class."""
    meta = job["metadata"]
    pod = render_pod(job, spec, 0, 0, image, batch=NO_BATCH)
    pod_set = {"name": POD_SET, "count": ask.workers, "template": {"spec": pod["spec"]}}
    if ask.least < ask.workers:
        pod_set["minCount"] = ask.least
    body: Object = {"queueName": ask.queue, "podSets": [pod_set]}
    if priority is not None:
        kind = {"group": WORKLOADS.group, "kind": "WorkloadPriorityClass"}
        kind = {"group": PRIORITIES.group, "kind": OF_PODS} if ask.by_pods else kind
        reference = {**kind, "name": ask.priority_class}
        body |= {"priority": priority, "priorityClassRef": reference}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(meta["name"], number),
            "namespace": meta["namespace"],
            "labels": {JOB_LABEL: meta["name"], f"{KUEUE}job-uid": meta["uid"]},
            "annotations": {TEMPLATE_HASH: spec.template_hash, LEAST: str(ask.least)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": body,
    }
