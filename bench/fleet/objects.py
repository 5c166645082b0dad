# SPDX-License-Identifier: Apache-2.0
"""The objects of a fleet, as the operator, a kubelet of Kubernetes 1.35 and the sidecars write them. Pure."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from elasticjob.api import API_VERSION, TUNNEL_PORT, ElasticJobSpec, WorkerRequest
from elasticjob.terms import RequestType
from elasticjob_operator.objects.access import render_access, render_budget
from elasticjob_operator.objects.pods import SidecarImage, render_pod
from elasticjob_sidecar.api_server.identity import Identity
from elasticjob_sidecar.api_server.worker_status import ScriptProgress, WorkerStatus
from support import kubelet

Object = dict[str, Any]

BATCH = "9f3c01d2"  # of all pods, as if each job's were made at once
ID = f"{BATCH}.0"
NAMESPACES = 10  # that share the jobs
WORKERS_ON_A_NODE = 4
IMAGE = SidecarImage("registry.example.com/elasticjob/sidecar:0.1.0", "IfNotPresent")
DIGEST = f"registry.example.com/team/train@sha256:{'1' * 64}"


class Place(NamedTuple):
    """One worker of the fleet, by the job's number and its own."""

    job: int
    index: int


def namespace_of(job: int) -> str:
    return f"team-{job % NAMESPACES}"


def job_body(job: int, workers: int) -> Object:
    """With a template of the size that people write."""
    variables = [{"name": f"SETTING_{number}", "value": "some value of a setting"} for number in range(10)]
    amounts = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    container = {
        "name": "trainer",
        "image": f"registry.example.com/team/train:1.2.3@sha256:{'0' * 64}",
        "command": ["torchrun", "train.py", "--config=/etc/config/train.yaml"],
        "env": variables,
        "resources": {"requests": amounts, "limits": {"memory": "64Gi", "nvidia.com/gpu": "8"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    spec = {"replicas": workers, "minReplicas": 1, "template": template}
    metadata = {"name": name_of(job), "namespace": namespace_of(job)}
    return {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": metadata, "spec": spec}


def name_of(job: int) -> str:
    return f"job-{job:04}"


def node_name(place: Place, workers: int) -> str:
    return f"node-{(place.job * workers + place.index) // WORKERS_ON_A_NODE:05}.example.internal"


def node_bodies(jobs: int, workers: int) -> list[Object]:
    names = sorted({node_name(Place(job, index), workers) for job in range(jobs) for index in range(workers)})
    return [{"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}} for name in names]


def beside(job: Object) -> Iterator[tuple[str, Object]]:
    """Collection path and body of what the operator makes for a job's workers. It would take its time for jobs that it
    takes over, and these are all."""
    yield from render_access(job, ElasticJobSpec.parse(job["spec"]))
    yield render_budget(job, min_available=job["spec"]["replicas"])


def pod_bodies(job: Object, places: Sequence[Place]) -> Iterator[Object]:
    """Of all of the job's workers, each bound to its node, as by the scheduler."""
    spec = ElasticJobSpec.parse(job["spec"])
    for place in places:
        pod = render_pod(job, spec, place.index, 0, IMAGE, batch=BATCH)
        pod["spec"]["nodeName"] = node_name(place, len(places))
        yield pod


def pod_status(pod: Object, place: Place) -> Object:
    """All containers run and are ready."""
    address = _address(place)
    status = kubelet.status(kubelet.running(pod["spec"], address, time.time()))
    status |= {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}], "observedGeneration": 1}
    status["conditions"] = [
        {**one, "lastProbeTime": None, "lastTransitionTime": status["startTime"], "observedGeneration": 1}
        for one in ({"type": "PodReadyToStartContainers", "status": "True"}, *status["conditions"])
    ]
    for kind, told in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        for container, one in zip(pod["spec"][kind], status[told], strict=True):
            mounts = [
                {**mount, "recursiveReadOnly": "Disabled"} if mount.get("readOnly") else mount
                for mount in container["volumeMounts"]
            ]
            one |= {
                "imageID": DIGEST,
                "containerID": f"containerd://{'2' * 64}",
                "lastState": {},
                "resources": container["resources"],
                "allocatedResources": container["resources"]["requests"],
                "user": {"linux": {"uid": 0, "gid": 0, "supplementalGroups": [0]}},
                "volumeMounts": mounts,
            }
    return status


def record_body(pod: Object, place: Place, certificate: str) -> Object:
    """A sidecar's whose trainer has asked to join."""
    meta = pod["metadata"]
    me = Identity(
        pod_name=meta["name"],
        pod_uid=meta["uid"],
        job=meta["labels"]["elasticjob.io/job"],
        index=place.index,
        id=ID,
        certificate=certificate,
        address=f"{_address(place)}:{TUNNEL_PORT}",
        node=pod["spec"]["nodeName"],
    )
    return me.created(WorkerRequest(type=RequestType.JOIN, after=0, stage=1, script="train.py", cause="Started"))


def joined() -> WorkerStatus:
    return WorkerStatus(ack=0)


def trains(rank: int, step: int) -> WorkerStatus:
    """In round 1; every rank has taken steps there, and told so as sidecars do."""
    progress = ScriptProgress(step, 1_000_000, {"loss": 1 / (1 + step), "tokens_per_second": 100_000.0 + step})
    return WorkerStatus(handed=(1, rank), progress=progress, connected=1 if rank == 0 else None, stepped=1, ack=0)


def _address(place: Place) -> str:
    return f"10.{64 + place.job // 256}.{place.job % 256}.{place.index % 256}"
