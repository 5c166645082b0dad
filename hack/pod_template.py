# SPDX-License-Identifier: Apache-2.0
"""Writes hack/pod_template.json, the schema of a pod template, from the OpenAPI of an API server.

    python hack/pod_template.py            writes it
    python hack/pod_template.py --check    fails when it differs from what the API server says

It starts the API server of `hack/cluster/tools.sh apiserver`, and needs no network and PYTHONPATH=tests. hack/crds.py
puts the schema into the CRD of the jobs.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from support import ControlPlane

Schema = dict[str, Any]
KUBERNETES = "1.35"  # whose pods the schema is of: the newest that this project is tested with
FILE = Path(__file__).with_name("pod_template.json")
MODELS = "io.k8s.api.core.v1."
ROOT = f"{MODELS}PodTemplateSpec"
KEPT = {"description", "type", "format", "enum", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
KEPT |= {"x-kubernetes-map-type"}
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
# A CRD cannot say `a number or a string`: this takes any value but an object and a list. Resources have 0.5 as well as
# "500m". Only the values of a map are so: of a field without a type CEL does not see that it was left out.
A_QUANTITY: Schema = {
    "x-kubernetes-preserve-unknown-fields": True,
    "minProperties": 1,
    "maxProperties": 0,
    "minItems": 1,
    "maxItems": 0,
}
# what no template has. Of the metadata there stay labels and annotations, and what tools write beside them.
LEFT_OUT = {
    "PodSpec": {"ephemeralContainers"},
    "ObjectMeta": {
        *("deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName", "generation"),
        *("managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
    },
}


def pod_template(models: dict[str, Schema]) -> Schema:
    """The structural schema of a pod template. `models`: the API server's, by their names in its OpenAPI."""
    return {**_structural(models[ROOT], "PodTemplateSpec", models), "required": ["spec"]}


def _structural(schema: Schema, name: str, models: dict[str, Schema]) -> Schema:
    if "allOf" in schema:
        ((reference,),) = (one.values() for one in schema["allOf"])
        return _structural({"$ref": reference} | {key: schema[key] for key in schema.keys() & KEPT}, name, models)
    if "$ref" in schema:
        target = schema["$ref"].rsplit("/", 1)[1]
        around = {key: value for key, value in schema.items() if key != "$ref"}
        if target in (QUANTITY, INT_OR_STRING):
            return {**_described(around), "x-kubernetes-int-or-string": True}
        return {**_structural(models[target], target.rsplit(".", 1)[1], models), **_described(around)}
    result = _described({key: value for key, value in schema.items() if key in KEPT})
    if "properties" in schema:
        fields = {field: value for field, value in schema["properties"].items() if field not in LEFT_OUT.get(name, ())}
        result["properties"] = {field: _structural(value, field, models) for field, value in fields.items()}
    for within in ("items", "additionalProperties"):
        if within in schema:
            result[within] = _structural(schema[within], "", models)
            result[within].pop("description", None)  # the list's own says it
    if schema.get("additionalProperties", {}).get("$ref", "").endswith(QUANTITY):
        result["additionalProperties"] = A_QUANTITY
    if "items" in result:
        result |= _list_type(result)
    return result


def _described(schema: Schema) -> Schema:
    """With one line of description: of what follows, the words that the enum has as well."""
    if "description" not in schema:
        return schema
    text = re.split(r"\s*\n\nPossible enum values:", schema["description"])[0]
    return {**schema, "description": " ".join(text.split())}


def _list_type(schema: Schema) -> Schema:
    """A list is one of items by their keys where each item has them.

    The API server asks for a default of a key that may be left out. It would be in the list, and tools that compare
    lists as a whole would see a difference for ever. A name has to be there instead; any other such list is atomic.
    """
    keys, items = schema.get("x-kubernetes-list-map-keys", []), schema["items"]
    missing = [key for key in keys if key not in items.get("required", ())]
    if not missing:
        return {"x-kubernetes-list-type": schema.get("x-kubernetes-list-type", "atomic")}
    if missing == ["name"]:
        return {"items": {**items, "required": sorted([*items.get("required", ()), "name"])}}
    del schema["x-kubernetes-list-map-keys"]
    return {"x-kubernetes-list-type": "atomic"}


def render() -> str:
    """The file's text, as the API server has it. Raises support.programs.ControlPlaneError."""
    with ControlPlane() as plane:
        if plane.minor_version != int(KUBERNETES.split(".")[1]):
            sys.exit(
                f"the API server is Kubernetes 1.{plane.minor_version}, and KUBERNETES in {__file__} {KUBERNETES}: set "
                "one to the other's"
            )
        return text_of(plane)


def text_of(plane: ControlPlane) -> str:
    models = plane.request("GET", "/openapi/v3/api/v1")["components"]["schemas"]
    return json.dumps(pod_template(models), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python hack/pod_template.py", description="Write the pod template's schema.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file is out of date")
    check, text = parser.parse_args().check, render()
    if check and text != FILE.read_text():
        sys.exit(f"{FILE} is out of date: run `python hack/pod_template.py`, then `make crds`, and commit both")
    if not check:
        FILE.write_text(text)


if __name__ == "__main__":
    main()
