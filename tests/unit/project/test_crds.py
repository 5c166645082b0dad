# SPDX-License-Identifier: Apache-2.0
"""The CRDs that are generated from the models, and what a checkout must not hold."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.api import Condition, ElasticJobSpec, RendezvousStatus, RoundRecord
from elasticjob.fields import MESSAGE_LENGTH, SENTENCE_LENGTH
from support.waiting import run

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "crds").glob("*.yaml"))
SENTENCE = re.compile(r"[A-Z]\S*( \S+){2,}\.")
TEMPLATE = ".spec.template"  # Kubernetes' own schema, whose words and bounds are its own
NOT_STRUCTURAL = {"$ref", "$defs", "anyOf", "title", "const", "exclusiveMinimum"}

Schema = dict[str, Any]


@cache  # it takes seconds to read
def schema_of(path: Path) -> Schema:
    schema: Schema = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    for name, field in {
        **schema.get("properties", {}),
        **({"[]": schema["items"]} if "items" in schema else {}),
    }.items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")


def ours(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """All but the metadata, of which a CRD may say no more than that it is there, and what is Kubernetes'."""
    return (one for one in fields(schema) if not one[0].startswith((".metadata", f"{TEMPLATE}.")))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_is_explained_by_a_sentence(path: Path) -> None:
    schema = schema_of(path)
    for name, field in [("", schema), *ours(schema)]:
        assert SENTENCE.fullmatch(field.get("description", "")), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_is_bounded(path: Path) -> None:
    """What others read has an end: a text its length, a list its number, a number its form."""
    for name, field in ours(schema_of(path)):
        match field.get("type"):
            case "string":
                assert field.keys() & {"maxLength", "enum", "format"}, name
            case "array":
                assert "maxItems" in field, name
                assert "x-kubernetes-list-type" in field, name
            case "integer":
                assert {"minimum", "maximum"} <= field.keys(), name
                assert field["format"] == ("int32" if field["maximum"] < 2**31 else "int64"), name
            case "object":
                assert field.keys() & {"properties", "maxProperties"}, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_rule_names_its_reason_and_its_field(path: Path) -> None:
    schema = schema_of(path)
    for name, field in [("", schema), *ours(schema)]:
        for rule in field.get("x-kubernetes-validations", ()):
            assert rule["reason"] == ("FieldValueForbidden" if "oldSelf" in rule["rule"] else "FieldValueInvalid"), rule
            assert "fieldPath" in rule or "properties" not in field, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_conditions_are_those_of_kubernetes(path: Path) -> None:
    conditions = dict(ours(schema_of(path))).get(".status.conditions")
    if conditions is None:
        return
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    one = conditions["items"]
    assert set(one["required"]) == {"type", "status", "reason", "message", "lastTransitionTime"}
    assert one["properties"]["lastTransitionTime"]["format"] == "date-time"
    assert (one["properties"]["reason"]["maxLength"], one["properties"]["message"]["maxLength"]) == (1024, 32768)


def test_text_for_people_is_cut_and_never_makes_a_status_invalid() -> None:
    record = RoundRecord(round=1, size=1, cause="c" * 5000, seconds=1.0, time="2026-01-02T03:04:05Z")
    assert RoundRecord.parse(record.dump()) == record
    assert len(record.cause) == SENTENCE_LENGTH
    condition = Condition(type="A", status="True", reason="B", message="m" * 40000, last_transition_time=record.time)
    assert len(condition.dump()["message"]) == MESSAGE_LENGTH
    agreed = RendezvousStatus(reason="r" * 5000, failure="f" * 5000)
    assert (len(agreed.reason), len(agreed.failure)) == (SENTENCE_LENGTH, SENTENCE_LENGTH)


def test_a_count_of_an_earlier_version_is_read_although_it_is_none_today() -> None:
    """The first CRDs took any count that JSON can hold; the API server leaves stored ones alone."""
    assert ElasticJobSpec.parse({"replicas": 1, "template": {}, "maxRestarts": 10**12}).max_restarts == 10**12


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_is_structural_and_sets_no_status(path: Path) -> None:
    for name, field in fields(schema_of(path)):
        assert not NOT_STRUCTURAL & field.keys(), name
        assert not (name.startswith(".status") and "default" in field), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_list_has_defaults_in_it(path: Path) -> None:
    """Tools that compare an object with its manifest take a list as a whole, and would see a change that lasts."""
    lists = [(name, field["items"]) for name, field in fields(schema_of(path)) if "items" in field]
    assert [name for name, items in lists for _, field in [("", items), *fields(items)] if "default" in field] == []


def template() -> Schema:
    return dict(fields(schema_of(ROOT / "crds" / "elasticjobs.yaml")))[TEMPLATE]


def test_every_field_of_the_template_is_explained_and_every_list_has_its_kind() -> None:
    found = list(fields(template()))
    assert len(found) > 900
    for name, field in found:
        assert name.endswith("[]") or field["description"], name
        assert ("items" in field) == (field.get("x-kubernetes-list-type") in ("map", "set", "atomic")), name


def test_two_managers_can_each_own_an_entry_of_a_templates_lists() -> None:
    found = dict(fields(template()))
    keys = {name: field.get("x-kubernetes-list-map-keys") for name, field in found.items()}
    assert (keys[".spec.containers"], keys[".spec.containers.[].env"]) == (["name"], ["name"])
    assert (keys[".spec.volumes"], keys[".spec.containers.[].volumeMounts"]) == (["name"], ["mountPath"])
    for name, field in found.items():
        assert set(field.get("x-kubernetes-list-map-keys", ())) <= set(field.get("items", {}).get("required", ())), name


def test_the_crds_fit_where_they_go() -> None:
    """etcd takes a request of 1.5 MiB, a ConfigMap has 1 MiB, and the chart's hook has both CRDs in one."""
    assert sum(path.stat().st_size for path in FILES) < 2**20 * 2 / 3


def test_the_operators_folder_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    code = "import operator, collections; print(operator.add(1, 2))"
    done = run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert done.stdout == "3\n"
