# SPDX-License-Identifier: Apache-2.0
"""What the operator keeps of each worker, in memory: 20,000 of them are to fit into one process of 512 MiB."""

import gc
import json
import tracemalloc
from typing import Any

from elasticjob.api import ElasticJobSpec
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.objects.pods import SidecarImage, render_pod
from support.operator_objects import CERTIFICATES, ID, Object, job

JOBS, WORKERS = 200, 2
MOST_KIB = 8.0  # measured: 4.5; the JSON of a pod alone takes 30 to 60
IMAGE = SidecarImage("registry.example.com/elasticjob/sidecar:1", "IfNotPresent")
SINCE = "2026-01-02T03:04:05Z"


def job_of(number: int) -> Object:
    body = job(replicas=WORKERS)
    body["metadata"] |= {"name": f"job-{number}", "uid": f"0b6dfbe8-{number:012}"}
    return body


def container(name: str) -> Object:
    image = {"image": "registry.example.com/team/train:1", "imageID": "sha256:" + "1" * 64}
    state = {"ready": True, "started": True, "restartCount": 0, "state": {"running": {"startedAt": SINCE}}}
    return {"name": name, "containerID": "containerd://" + "2" * 64, "lastState": {}, **image, **state}


def gpus(number: int) -> Object:
    healthy = [{"resourceID": f"GPU-{number}-{gpu}", "health": "Healthy"} for gpu in range(8)]
    return {"name": "nvidia.com/gpu", "resources": healthy}


def pod_of(body: Object, number: int, index: int) -> Object:
    """As the API server has it once it runs."""
    pod = render_pod(body, ElasticJobSpec.parse(body["spec"]), index, 0, IMAGE, batch=ID.partition(".")[0])
    uid = f"1b6dfbe8-{number:04}-4000-8000-{index:012}"
    managed = [{"manager": "kubelet", "fieldsV1": {f"f:{field}": {".": {}} for field in range(60)}}]
    pod["metadata"] |= {"uid": uid, "resourceVersion": str(1000 * number + index), "managedFields": managed}
    pod["spec"]["nodeName"] = f"node-{number % 50}"
    address = f"10.{number // 256}.{number % 256}.{index}"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    pod["status"] = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": type, "status": "True", "lastTransitionTime": SINCE} for type in conditions],
        "containerStatuses": [container("trainer") | {"allocatedResourcesStatus": [gpus(number)]}],
        "initContainerStatuses": [container("elasticjob-sidecar")],
    }
    return pod


def record_of(pod: Object, index: int) -> Object:
    meta = {key: pod["metadata"][key] for key in ("name", "namespace", "labels", "resourceVersion")}
    owner = {"kind": "Pod", "name": meta["name"], "uid": pod["metadata"]["uid"]}
    request = {"type": "Join", "after": 0, "cause": "Started"}
    spec = {"job": meta["labels"]["elasticjob.io/job"], "index": index, "id": ID, "certificate": CERTIFICATES[ID]}
    spec |= {"address": f"{pod['status']['podIP']}:27601", "node": pod["spec"]["nodeName"], "request": request}
    status = {"heartbeat": 7, "ack": 0, "round": 1, "rank": index, "imports": ",".join(["torch"] * 200)}
    meta |= {"uid": f"2{pod['metadata']['uid'][1:]}", "generation": 2, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": spec, "status": status}


def as_it_comes(body: Object) -> Any:
    return json.loads(json.dumps(body))


def test_a_worker_takes_a_few_kibibytes() -> None:
    cache, observers = Cache(), []
    tracemalloc.start()
    try:
        for number in range(JOBS):
            body = job_of(number)
            for index in range(WORKERS):
                pod = pod_of(body, number, index)
                cache.note_pod(as_it_comes(pod))
                cache.note_worker(as_it_comes(record_of(pod, index)))
            view = cache.view(Key("ml", body["metadata"]["name"]))
            view.job = {**body, "status": {"rendezvous": {"round": 1, "phase": "Formed"}}}
            observers.append(Observer("trainer"))
            workers, ready = observers[-1].observe(view)
            assert len(workers) == len(ready) == WORKERS
            assert not any(worker.invalid or worker.request is None for worker in workers)
            view.job = None  # its own size is that of what its user wrote
        gc.collect()
        kibibytes = tracemalloc.get_traced_memory()[0] / 1024 / (JOBS * WORKERS)
    finally:
        tracemalloc.stop()
    assert kibibytes < MOST_KIB, f"{kibibytes:.1f} KiB for each worker"
