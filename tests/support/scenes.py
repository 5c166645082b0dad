# SPDX-License-Identifier: Apache-2.0
"""Scenes of the command line tool that were taken from a real cluster, kept as files for the unit tests."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from elasticjob.pods import BATCH
from elasticjob_cli.reading.scene import Leader, Scene
from support.pod_life import new_credentials

FOLDER = Path(__file__).parents[1] / "unit" / "cli" / "scenes"
CERTIFICATE = new_credentials().certificate  # in the place of any that was recorded
SEVERAL = ("pods", "records", "claims", "events", "hidden")
RECORD = "RECORD_SCENES"  # set it to write the files anew

OF_EVENT_METADATA = ("name", "annotations")
OF_METADATA = ("name", "namespace", "uid", "labels", "generation", "creationTimestamp", "deletionTimestamp")
OF_POD = ("nodeName", "schedulingGates", "volumes", "serviceAccountName")
OF_EVENT = ("involvedObject", "reason", "message", "type", "eventTime", "firstTimestamp", "lastTimestamp", "series")
OF_CONTAINER = ("name", "image", "containerID", "restartCount", "state", "lastState", "started", "ready")
OF_FIELDS = ("time", "subresource", "operation")


def load(name: str) -> Scene:
    body = json.loads((FOLDER / f"{name}.json").read_text())
    for one in body["records"]:
        one["spec"]["certificate"] = CERTIFICATE
    return from_json(body)


def record(name: str, scene: Scene) -> None:
    """Keep it, if this run is to write the files anew."""
    if not os.environ.get(RECORD):
        return
    body = as_json(scene)
    body["job"] = _trimmed(body["job"])
    for kind in ("pods", "claims", "records"):
        body[kind] = [_trimmed(one) for one in body[kind]]
    body["events"] = [
        _of(one, *OF_EVENT) | {"metadata": _of(one["metadata"], *OF_EVENT_METADATA)} for one in body["events"]
    ]
    if lease := body["leader"]["lease"]:
        body["leader"]["lease"] = {"metadata": _of(lease["metadata"], *OF_METADATA), "spec": lease["spec"]}
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n")


def as_json(scene: Scene) -> dict[str, Any]:
    of_one = {"job": scene.job, "leader": scene.leader._asdict(), "now": scene.now.isoformat()}
    return of_one | {kind: list(getattr(scene, kind)) for kind in SEVERAL}


def from_json(body: dict[str, Any]) -> Scene:
    leader = Leader(**body["leader"] | {"lacks": body["leader"]["lacks"] and tuple(body["leader"]["lacks"])})
    several = {kind: tuple(body[kind]) for kind in SEVERAL}
    return Scene(job=body["job"], leader=leader, now=datetime.fromisoformat(body["now"]), **several)


def _trimmed(body: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing to `why`: certificates, most of a pod's spec."""
    meta, spec = body["metadata"], body["spec"]
    kept = _of(meta, *OF_METADATA)
    kept["managedFields"] = [_of(one, *OF_FIELDS) for one in meta.get("managedFields", ())]
    kept["ownerReferences"] = [_of(one, "kind", "name", "uid") for one in meta.get("ownerReferences", ())]
    if "template" in spec:
        spec = spec | {"template": {}}
    if "containers" in spec:  # a pod's
        inits = [_of(one, "name") | {"env": _batch(one)} for one in spec.get("initContainers", ())]
        spec = _of(spec, *OF_POD) | {"initContainers": inits}
    if "certificate" in spec:
        spec = spec | {"certificate": ""}
    status = dict(body.get("status", {}))
    for kind in ("initContainerStatuses", "containerStatuses"):
        if kind in status:
            status[kind] = [_of(one, *OF_CONTAINER) for one in status[kind]]
    return {"metadata": kept, "spec": spec, "status": status}


def _batch(container: dict[str, Any]) -> list[dict[str, Any]]:
    return [variable for variable in container.get("env", ()) if variable["name"] == BATCH]


def _of(body: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: body[key] for key in keys if key in body}
