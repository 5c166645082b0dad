# SPDX-License-Identifier: Apache-2.0
"""Documents for programs: one schema, described in docs/cli.md, in JSON or YAML. Pure.

A `JobReport` has the state of one job, a `JobReportList` that of several, and a `JobChange` what a command has changed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from elasticjob.api import VERSION
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.members import members_of
from elasticjob_cli.reading.rounds import goodput, rounds_of
from elasticjob_cli.why.answer import answer

API_VERSION = f"cli.elasticjob.io/{VERSION}"
OF_METADATA = frozenset({"job", "namespace"})  # fields that metadata already has
RESOURCE = "elasticjob.elasticjob.io"  # the resource in kubectl's `-o name`


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def report(look: Look, rates: Mapping[str, float]) -> dict[str, Any]:
    """A `JobReport`. `rates`: steps a second, by pod."""
    rounds = rounds_of(look)
    found = goodput(look, rounds)
    agreed, status, spec = look.status.rendezvous, look.status, look.spec
    body = {
        "phase": status.phase,
        "reason": status.reason,
        "round": agreed.round,
        "roundPhase": str(agreed.phase),
        "worldSize": agreed.world_size,
        "stage": agreed.stage,
        "waiting": agreed.waiting,
        "replicas": spec.replicas,
        "minReplicas": spec.min_replicas,
        "maxReplicas": spec.max_replicas,
        "spareReplicas": spec.spare_replicas,
        "spares": status.spares,
        "suspended": spec.suspend,
        "restarts": status.restarts,
        "maxRestarts": spec.max_restarts,
        "activeSeconds": round(look.active_for),
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "progress": _dumped(status.progress) if status.progress else None,
        "members": [_camel(asdict(member)) for member in members_of(look, rates)],
        "missing": [worker.index for worker in look.missing],
        "blockers": [{"object": "", "workers": "", "remedy": ""} | _dumped(one) for one in status.blockers],
        "hidden": list(look.scene.hidden),
        "nodeFailures": [_dumped(one) for one in status.node_failures],
        "rounds": [_camel(one.as_json()) for one in rounds],
        "goodput": _camel(found.as_json()) if found else None,
        "why": {name: field for name, field in _camel(answer(look).as_json()).items() if name not in OF_METADATA},
    }
    return _document("JobReport", look.name, look.namespace, body)


def reports(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A `JobReportList` with complete reports as its items."""
    return {"apiVersion": API_VERSION, "kind": "JobReportList", "items": list(found)}


def change(name: str, namespace: str, **body: Any) -> dict[str, Any]:
    """A `JobChange`. `body`: its fields, in snake_case."""
    return _document("JobChange", name, namespace, _camel(body))


def _document(kind: str, name: str, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, **body}


def _dumped(model: BaseModel) -> dict[str, Any]:
    """The fields, with null for absent ones: each document has all fields."""
    return model.model_dump(mode="json", by_alias=True)


def _camel(value: Any) -> Any:
    """The value with its field names in camelCase, as in Kubernetes. Not for mappings whose keys are the user's."""
    if isinstance(value, Mapping):
        return {to_camel(str(name)): _camel(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [_camel(one) for one in value]
    return str(value) if isinstance(value, str) else value  # also converts members of an enumeration


def written(body: Any, form: str, *, on_one_line: bool = False) -> str:
    """`body` as `json` or `yaml`. In a stream, each document has one line, or follows `---`."""
    if form == "yaml":
        text = yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).rstrip("\n")
        return f"---\n{text}" if on_one_line else text
    return json.dumps(body, indent=None if on_one_line else 2, default=str)


def name_of(name: str) -> str:
    return f"{RESOURCE}/{name}"
