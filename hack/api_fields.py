# SPDX-License-Identifier: Apache-2.0
"""The tables of `docs/fields.md`: each field of the CRDs, from the CRDs themselves.

What a field is for is written in `elasticjob.api`, and reaches the CRDs by hack/crds.py; nothing is added here.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from elasticjob_torch.wire import MAX_JSON_INTEGER

CRDS = Path(__file__).parents[1] / "crds"
Schema = dict[str, Any]
POD_TEMPLATE = "spec.template"  # whose fields are Kubernetes' own


def sections() -> dict[str, str]:
    """Name to text, for everything that is generated."""
    return {
        "job_spec": table("elasticjobs", "spec"),
        "job_status": table("elasticjobs", "status"),
        "worker_spec": table("elasticworkers", "spec"),
        "worker_status": table("elasticworkers", "status"),
    }


def table(kind: str, part: str) -> str:
    """All fields of one part of a kind, those within others after them."""
    rows = ["| field | is | meaning |", "|---|---|---|"]
    rows += [f"| `{path}` | {kind_of(schema)} | {meaning(schema)} |" for path, schema in fields(kind, part)]
    return "\n".join(rows)


def fields(kind: str, part: str) -> Iterator[tuple[str, Schema]]:
    """Path and schema of each field, such as `spec.rendezvous.saveSeconds`; `[]` stands for a list's items."""
    return within(part, parts_of(kind)[part])


@cache  # it takes seconds to read
def parts_of(kind: str) -> Schema:
    (version,) = yaml.load((CRDS / f"{kind}.yaml").read_text(), yaml.CSafeLoader)["spec"]["versions"]
    parts: Schema = version["schema"]["openAPIV3Schema"]["properties"]
    return parts


def within(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if path == POD_TEMPLATE:
        return
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from within(f"{path}.{name}", field)
        yield from within(f"{path}.{name}[]", field.get("items", {}))


def kind_of(schema: Schema) -> str:
    """What a field may be, in words: its type, bounds and default."""
    words = "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema["type"])
    if schema.get("type") == "string" and "format" in schema:
        words += f" ({schema['format']})"
    if "enum" in schema:
        words = ", ".join(f"`{word}`" for word in schema["enum"])
    bounds = {word: schema.get(key) for key, word in (("minimum", "from"), ("maximum", "to"))}
    words += "".join(f" {word} {bound}" for word, bound in bounds.items() if bound not in (None, MAX_JSON_INTEGER))
    default = schema.get("default")
    if default in (None, "", {}, []):
        return words
    return f"{words}; default `{str(default).lower() if isinstance(default, bool) else default}`"


def meaning(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split()).replace("|", "\\|")
