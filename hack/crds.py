# SPDX-License-Identifier: Apache-2.0
"""Writes the CRDs in `crds/` from the models of `elasticjob.api`.

    python hack/crds.py            writes them
    python hack/crds.py --check    fails when they differ from the models

pydantic speaks JSON Schema, the API server wants a structural schema: references are inlined, titles,
nulls and null defaults dropped, integers get a format by their bounds, an integer or a string becomes int-or-string.
The schema of the pod template is Kubernetes' own: hack/pod_template.py has fetched it.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from elasticjob.admission import CONTAINERS, POD
from elasticjob.api import GROUP, VERSION, ElasticJob, ElasticWorker
from elasticjob.fields import MAX_INT32
from elasticjob.schema import Model

Schema = dict[str, Any]
POD_TEMPLATE = Path(__file__).with_name("pod_template.json")
DROPPED = {"title", "$defs", "additionalProperties"}

JOB_COLUMNS = [
    ("Phase", "string", ".status.phase", 0),
    ("Reason", "string", ".status.reason", 0),
    ("Round", "integer", ".status.rendezvous.round", 0),
    ("World", "integer", ".status.rendezvous.worldSize", 0),
    ("Waiting", "integer", ".status.rendezvous.waiting", 0),
    ("Ready", "integer", ".status.readyReplicas", 0),
    ("Target", "integer", ".spec.replicas", 0),
    ("Step", "string", ".status.progress.summary", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Spares", "integer", ".status.spares", 1),
    ("Restarts", "integer", ".status.restarts", 1),
    ("Cause", "string", ".status.rendezvous.reason", 1),
]
WORKER_COLUMNS = [
    ("Job", "string", ".spec.job", 0),
    ("Rank", "integer", ".status.rank", 0),
    ("Round", "integer", ".status.round", 0),
    ("Request", "string", ".spec.request.type", 0),
    ("Step", "integer", ".status.step", 0),
    ("Node", "string", ".spec.node", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Metrics", "string", ".status.metrics", 1),
]
# so that a rule may say that the name is at fault; of the rest the API server does not let a CRD speak
NAMED = {"type": "object", "properties": {"name": {"type": "string"}}}
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def structural(schema: Schema, definitions: Schema) -> Schema:
    """`schema` as the API server takes it, with every reference to `definitions` inlined."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        return structural({**target, **{key: value for key, value in schema.items() if key != "$ref"}}, definitions)
    if "anyOf" in schema:
        return structural(_one_of(schema), definitions)
    free_form = schema.get("type") == "object" and not schema.get("properties")
    result = {key: value for key, value in schema.items() if key not in DROPPED}
    if result.get("default", "") is None:
        del result["default"]
    if free_form and isinstance(values := schema.get("additionalProperties"), dict):
        result["additionalProperties"] = structural(values, definitions)
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "properties" in result:
        result["properties"] = {name: structural(value, definitions) for name, value in result["properties"].items()}
    if "items" in result:
        result["items"] = structural(result["items"], definitions)
    if result.get("type") == "integer":
        result.setdefault("format", "int32" if result.get("maximum", MAX_INT32 + 1) <= MAX_INT32 else "int64")
    if result.get("type") == "number":
        result.setdefault("format", "double")
    return result


def _one_of(schema: Schema) -> Schema:
    """An optional value without its null; an integer or a string as the API server's own kind."""
    around = {key: value for key, value in schema.items() if key != "anyOf"}
    kinds = [kind for kind in schema["anyOf"] if kind.get("type") != "null"]
    if {kind.get("type") for kind in kinds} == {"integer", "string"}:
        return {**around, "x-kubernetes-int-or-string": True}
    (kind,) = kinds
    return {**kind, **around}


def with_pod_template(template: Schema) -> Schema:
    """`template`, the field of a job's spec, with the fields of Kubernetes' pod template and what is asked of them."""
    found: Schema = json.loads(POD_TEMPLATE.read_text())
    pod = found["properties"]["spec"]
    pod["properties"]["containers"] |= CONTAINERS
    return {**found, "description": template["description"], "properties": {**found["properties"], "spec": pod | POD}}


def without_defaults(schema: Schema) -> Schema:
    """A status says what was seen; what was not seen must not be filled in."""
    result = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in result:
        result["properties"] = {name: without_defaults(value) for name, value in result["properties"].items()}
    if "items" in result:
        result["items"] = without_defaults(result["items"])
    return result


def definition(
    model: type[Model],
    plural: str,
    short: str,
    columns: list[tuple[str, str, str, int]],
    *,
    categories: tuple[str, ...] = (),
    selectable: tuple[str, ...] = (),
    **subresources: Any,
) -> Schema:
    """The CustomResourceDefinition of `model`. `selectable`: fields that a field selector may name."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    body = structural(schema, schema.get("$defs", {}))
    body["required"] = ["spec"]
    body["properties"]["status"] = without_defaults(body["properties"]["status"])
    if template := body["properties"]["spec"]["properties"].get("template"):
        body["properties"]["spec"]["properties"]["template"] = with_pod_template(template)
    if any("metadata" in one["rule"] for one in body.get("x-kubernetes-validations", ())):
        body["properties"] = {"metadata": NAMED, **body["properties"]}
    kind = model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            }
            | ({"categories": list(categories)} if categories else {}),
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **subresources},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind_, "jsonPath": path, "priority": priority}
                        for name, kind_, path, priority in columns
                    ],
                    "schema": {"openAPIV3Schema": body},
                }
                | ({"selectableFields": [{"jsonPath": path} for path in selectable]} if selectable else {})
            ],
        },
    }


def definitions() -> dict[str, Schema]:
    """File name to CRD, for everything in `crds/`."""
    return {
        # in `kubectl get all`, as every workload. A worker's record is no workload: it is its pod's, and
        # `kubectl delete all --all` has no business with it
        "elasticjobs.yaml": definition(ElasticJob, "elasticjobs", "ej", JOB_COLUMNS, categories=("all",), scale=SCALE),
        "elasticworkers.yaml": definition(
            ElasticWorker, "elasticworkers", "ew", WORKER_COLUMNS, selectable=(".spec.job",)
        ),
    }


def render(crd: Schema) -> str:
    header = "# Generated by `make crds` from core/elasticjob/api.py; do not edit.\n---\n"
    apart = json.loads(json.dumps(crd))  # what is used twice is written twice, in place of an anchor
    return header + yaml.safe_dump(apart, sort_keys=False, width=110)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python hack/crds.py", description="Write the CRDs from the models.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is out of date")
    parser.add_argument("--directory", type=Path, default=Path("crds"), help="where the CRDs are (default: crds)")
    arguments = parser.parse_args()
    made = definitions()
    if others := sorted(path.name for path in arguments.directory.glob("*.yaml") if path.name not in made):
        sys.exit(f"{arguments.directory} has {', '.join(others)}, of which no model is; remove what is not generated")
    stale = []
    for name, crd in made.items():
        path, text = arguments.directory / name, render(crd)
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path))
        if not arguments.check:
            path.write_text(text)
    if arguments.check and stale:
        sys.exit(f"out of date: {', '.join(stale)}; run `make crds` and commit the result")


if __name__ == "__main__":
    main()
