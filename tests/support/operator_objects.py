# SPDX-License-Identifier: Apache-2.0
"""Pods, records and jobs as the API server gives them, cut down to what the operator reads."""

from collections.abc import Mapping
from typing import Any

from elasticjob.reading import Pod, Record
from elasticjob_operator.job.view import JobView
from support.pod_life import new_credentials

Object = dict[str, Any]

JOB_UID = "11111111-2222-3333-4444-555555555555"
CERTIFICATES = {f"{number}f3c01d2.0": new_credentials().certificate for number in range(5)}
ID, OTHER_ID, *_ = CERTIFICATES


def job(**spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "trainer", "image": "busybox", "command": ["torchrun", "train.py"]}]}}
    return {
        "metadata": {"name": "digits", "namespace": "ml", "uid": JOB_UID, "generation": 3, "resourceVersion": "7"},
        "spec": {"replicas": 2, "minReplicas": 1, "template": template, **spec},
    }


def pod(index: int = 0, number: int = 0, owner: str = JOB_UID, version: int = 1, **status: Any) -> Object:
    return {
        "metadata": {
            "name": f"digits-{index}-{number}",
            "namespace": "ml",
            "uid": f"pod-{index}-{number}",
            "resourceVersion": str(version),
            "labels": {"elasticjob.io/job": "digits", "elasticjob.io/index": str(index)},
            "ownerReferences": [{"uid": owner}],
        },
        "spec": {"initContainers": [sidecar(owner)]},
        "status": status,
    }


def sidecar(job_uid: str = JOB_UID) -> Object:
    return {"name": "elasticjob-sidecar", "env": [{"name": "ELASTICJOB_JOB_UID", "value": job_uid}]}


def record(index: int = 0, number: int = 0, owner: str | None = None, /, **spec: Any) -> Object:
    known = {"id": ID, "certificate": CERTIFICATES.get(spec.get("id", ID), "")}
    return {
        "metadata": {
            "name": f"digits-{index}-{number}",
            "namespace": "ml",
            "uid": f"record-{index}-{number}",
            "resourceVersion": "1",
            "labels": {"elasticjob.io/job": "digits", "elasticjob.io/index": str(index)},
            "ownerReferences": [{"uid": owner or f"pod-{index}-{number}"}],
        },
        "spec": {"job": "digits", "index": index, "address": "10.0.0.1:27601", **known, **spec},
        "status": {"heartbeat": 4},
    }


def trainer(restarts: int = 0, **states: Any) -> Object:
    """A container status; `states` as `running={}`, `waiting={...}`, `terminated={...}`, `last={...}`."""
    last = states.pop("last", None)
    found: Object = {"name": "trainer", "restartCount": restarts, "state": states}
    return found | ({"lastState": {"terminated": last}} if last else {})


def view_of(
    body: Object, pods: Mapping[str, Object] | None = None, records: Mapping[str, Object] | None = None, **known: Any
) -> JobView:
    """What the operator knows of the job once it has read all that; `known`: as `JobView` takes it."""
    view = JobView(body, **known)
    see(view, pods or {}, records or {})
    return view


def see(view: JobView, pods: Mapping[str, Object], records: Mapping[str, Object] | None = None) -> None:
    """In place of what was there."""
    view.pods = {name: Pod.read(one) for name, one in pods.items()}
    view.workers = {name: Record.read(one) for name, one in (records or {}).items()}
