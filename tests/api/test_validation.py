# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses of both kinds, field by field, and in our own words where a rule is ours."""

import copy
import secrets
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.api import API_VERSION, JOB_NAME_LENGTH, MAX_METRICS, METRIC_NAME_LENGTH, RendezvousStatus
from elasticjob.fields import SENTENCE_LENGTH
from support import ControlPlane
from support.control_plane import Refused
from support.waiting import run

CRDS = Path(__file__).parents[2] / "crds"
COLLECTION = "/apis/elasticjob.io/v1alpha1/namespaces/default"
TIME = "2026-01-02T03:04:05Z"
ROUND = {"round": 1, "size": 1, "cause": "first formation", "seconds": 1.5, "time": TIME}
CONDITION = {
    "type": "Rendezvoused",
    "status": "True",
    "reason": "Formed",
    "message": "",
    "observedGeneration": 1,
    "lastTransitionTime": TIME,
}
SELECTABLE_FIELDS = 31  # the minor version of Kubernetes from which on the CRDs' selectableFields are taken
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "train:1", "command": ["torchrun", "a"]}]}}

TEMPLATE_PATH, DEPTH = ("spec", "template"), 4  # its fields are Kubernetes' own, and to look at each takes minutes

Path_ = tuple[str | int, ...]
Case = tuple[str, Path_, Any]

# every field that has bounds is in one of these
WHOLE: dict[str, dict[str, Any]] = {
    "elasticjobs": {
        "apiVersion": API_VERSION,
        "kind": "ElasticJob",
        "spec": {"replicas": 1, "template": TEMPLATE},
        "status": {
            "conditions": [CONDITION],
            "history": [ROUND],
            "nodeFailures": [{"node": "n", "time": TIME}],
            "rendezvous": {},
            "progress": {},
        },
    },
    "elasticworkers": {
        "apiVersion": API_VERSION,
        "kind": "ElasticWorker",
        "spec": {
            "job": "digits",
            "index": 0,
            "id": "9f3c01d2.0",
            "certificate": "",
            "address": "10.0.0.1:27601",
            "request": {"type": "Join"},
        },
        "status": {},
    },
}


@cache  # it takes seconds to read
def schema_of(plural: str) -> dict[str, Any]:
    (version,) = yaml.load((CRDS / f"{plural}.yaml").read_text(), yaml.CSafeLoader)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def beyond(schema: dict[str, Any]) -> Iterator[Any]:
    """One value beyond each bound of a field."""
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maxLength" in schema:
        yield "a" * (schema["maxLength"] + 1)
    if schema.get("minLength"):
        yield ""
    if "pattern" in schema:
        yield "not a word!"
    if "enum" in schema:
        yield "Other"
    if schema.get("format") == "date-time":
        yield "yesterday"
    if "maxProperties" in schema:
        yield {f"metric-{number}": 1.0 for number in range(schema["maxProperties"] + 1)}
    if schema.get("type") in ("integer", "number"):
        yield "many"
    if schema.get("type") in ("string", "boolean"):
        yield 7


def cases_of(plural: str) -> Iterator[Case]:
    def walk(schema: dict[str, Any], path: Path_) -> Iterator[Case]:
        yield from ((plural, path, value) for value in beyond(schema))
        if path[:2] == TEMPLATE_PATH and len(path) > DEPTH:
            return
        for name, field in schema.get("properties", {}).items():
            yield from walk(field, (*path, name))
        if "items" in schema:
            yield from walk(schema["items"], (*path, 0))

    for part in ("spec", "status"):
        yield from walk(schema_of(plural)["properties"][part], (part,))


def with_value(plural: str, path: Path_, value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(WHOLE[plural])
    place: Any = whole
    for step, within in pairwise(path):
        empty: Any = [{}] if isinstance(within, int) else {}
        place = place.setdefault(step, empty) if isinstance(place, dict) and isinstance(step, str) else place[step]
    place[path[-1]] = value
    return whole


def write(plane: ControlPlane, plural: str, body: dict[str, Any], **metadata: str) -> Any:
    """Make it; with its status, where it has one."""
    metadata = metadata or {"name": f"one-{secrets.token_hex(4)}"}
    made = plane.request("POST", f"{COLLECTION}/{plural}?fieldValidation=Strict", {**body, "metadata": metadata})
    path = f"{COLLECTION}/{plural}/{made['metadata']['name']}/status"
    return plane.request("PUT", path, {**made, "status": body["status"]})


def refusal_of(plane: ControlPlane, plural: str, body: dict[str, Any], **metadata: str) -> Refused:
    with pytest.raises(Refused) as refused:
        write(plane, plural, body, **metadata)
    assert refused.value.code == 422
    return refused.value


@pytest.mark.parametrize("plural", WHOLE)
def test_what_is_within_all_bounds_is_taken(with_crds: ControlPlane, plural: str) -> None:
    stored = write(with_crds, plural, WHOLE[plural])
    assert stored["status"].keys() == WHOLE[plural]["status"].keys()


@pytest.mark.parametrize("plural", WHOLE)
def test_a_value_beyond_any_bound_is_refused_and_its_field_named(with_crds: ControlPlane, plural: str) -> None:
    cases = list(cases_of(plural))
    assert len(cases) > 40
    for _, path, value in cases:
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
        refusal = refusal_of(with_crds, plural, with_value(plural, path, value))
        assert refusal.names(field), (field, str(value)[:50], str(refusal)[:500])


LONG_NAME = "n" * (JOB_NAME_LENGTH + 1)
NAME_SENTENCE = (
    f"a job's name has at most {JOB_NAME_LENGTH} characters, with generateName {JOB_NAME_LENGTH - 5} and "
    "five that are added: "
)
LONG_METRIC = {"m" * (METRIC_NAME_LENGTH + 1): 1.0}
METRIC_SENTENCE = "the name of a metric has at most 64 characters"


@pytest.mark.parametrize(
    ("plural", "path", "value", "field", "sentence"),
    [
        ("elasticjobs", ("status", "conditions"), [CONDITION, CONDITION], "status.conditions[1]", ""),
        (
            "elasticjobs",
            ("status", "conditions"),
            [{key: value for key, value in CONDITION.items() if key != "message"}],
            "status.conditions[0].message",
            "",
        ),
        ("elasticjobs", ("status", "history"), [ROUND] * 17, "status.history", ""),
        ("elasticjobs", ("status", "progress", "metrics"), LONG_METRIC, "status.progress.metrics", METRIC_SENTENCE),
        ("elasticworkers", ("status", "metrics"), LONG_METRIC, "status.metrics", METRIC_SENTENCE),
    ],
    ids=["condition twice", "message missing", "history", "metric of a job", "metric of a worker"],
)
def test_a_value_that_no_bound_of_its_field_refuses(
    with_crds: ControlPlane, plural: str, path: Path_, value: Any, field: str, sentence: str
) -> None:
    refusal = refusal_of(with_crds, plural, with_value(plural, path, value))
    assert refusal.names(field, sentence), refusal


@pytest.mark.parametrize("time", [TIME, "2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901+00:00"])
def test_a_time_may_have_microseconds_and_an_offset(with_crds: ControlPlane, time: str) -> None:
    write(with_crds, "elasticjobs", with_value("elasticjobs", ("status", "history", 0, "time"), time))


def test_as_many_metrics_and_as_long_names_as_a_sidecar_writes(with_crds: ControlPlane) -> None:
    metrics = {f"{number:0{METRIC_NAME_LENGTH}}": -1e-300 for number in range(MAX_METRICS)}
    body = with_value("elasticworkers", ("status", "metrics"), metrics)
    assert write(with_crds, "elasticworkers", body)["status"]["metrics"] == metrics


def test_a_length_is_one_of_characters_as_the_operator_cuts_it(with_crds: ControlPlane) -> None:
    sentence = RendezvousStatus(reason="é" * 5000).reason
    assert len(sentence.encode()) > SENTENCE_LENGTH
    write(with_crds, "elasticjobs", with_value("elasticjobs", ("status", "rendezvous", "reason"), sentence))


def test_an_incarnation_cannot_change_its_certificate(with_crds: ControlPlane) -> None:
    name = write(with_crds, "elasticworkers", WHOLE["elasticworkers"])["metadata"]["name"]
    change = {"spec": {"certificate": "another"}}
    path = f"{COLLECTION}/elasticworkers/{name}"
    with pytest.raises(Refused, check=lambda it: it.names("spec.certificate", "an incarnation has one certificate")):
        with_crds.request("PATCH", path, change, content_type="application/merge-patch+json")


@pytest.mark.parametrize(
    "metadata", [{"name": LONG_NAME}, {"generateName": LONG_NAME[:-5]}], ids=lambda one: "".join(one)
)
def test_a_name_that_leaves_no_room_for_the_pods_is_refused(with_crds: ControlPlane, metadata: dict[str, str]) -> None:
    refusal = refusal_of(with_crds, "elasticjobs", WHOLE["elasticjobs"], **metadata)
    assert refusal.names("metadata.name", NAME_SENTENCE), refusal


@pytest.mark.parametrize(
    "metadata", [{"name": LONG_NAME[1:]}, {"generateName": LONG_NAME[:-6]}], ids=lambda one: "".join(one)
)
def test_the_longest_name_is_taken(with_crds: ControlPlane, metadata: dict[str, str]) -> None:
    name = write(with_crds, "elasticjobs", WHOLE["elasticjobs"], **metadata)["metadata"]["name"]
    assert len(name) == JOB_NAME_LENGTH
    with_crds.request("DELETE", f"{COLLECTION}/elasticjobs/{name}")


def test_kubectl_lists_jobs_among_all_and_finds_a_jobs_workers_by_a_field(with_crds: ControlPlane) -> None:
    job = write(with_crds, "elasticjobs", WHOLE["elasticjobs"])["metadata"]["name"]
    worker = write(with_crds, "elasticworkers", with_value("elasticworkers", ("spec", "job"), job))["metadata"]["name"]
    listed = kubectl(with_crds, "get", "all", "--output", "name").split()
    assert f"elasticjob.elasticjob.io/{job}" in listed
    assert f"elasticworker.elasticjob.io/{worker}" not in listed
    if with_crds.minor_version < SELECTABLE_FIELDS:
        pytest.skip(f"Kubernetes 1.{with_crds.minor_version} selects no custom resources by a field of their own")
    found = kubectl(with_crds, "get", "elasticworkers", f"--field-selector=spec.job={job}", "--output", "name")
    assert found.split() == [f"elasticworker.elasticjob.io/{worker}"]


@pytest.mark.parametrize("plural", WHOLE)
def test_kubectl_explains_every_field_to_its_leaves(with_crds: ControlPlane, plural: str) -> None:
    tree = kubectl(with_crds, "explain", plural, "--recursive")
    for path, schema in objects(schema_of(plural)):
        printed = kubectl(with_crds, "explain", ".".join((plural, *path)))
        for name, field in schema["properties"].items():
            assert f" {name}\t<" in tree, (path, name)
            described = field.get("description", "Standard object's metadata.")  # that of metadata is Kubernetes' own
            assert "".join(described.split()) in "".join(printed.split()), (path, name)
        assert "<no description>" not in printed, path


def objects(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The root, and every field that has fields."""
    found = schema.get("items", schema)
    if path[:2] == TEMPLATE_PATH and len(path) > DEPTH:
        return
    if path != ("metadata",) and "properties" in found:
        yield path, found
        for name, field in found["properties"].items():
            yield from objects(field, (*path, name))


def structures() -> Iterator[Path_]:
    """The path of each field of a job's spec; the template's own are Kubernetes'."""

    def walk(schema: dict[str, Any], path: Path_) -> Iterator[Path_]:
        for name, field in schema.get("properties", {}).items():
            yield (*path, name)
            if (*path, name) != TEMPLATE_PATH:
                yield from walk(field, (*path, name))
                yield from walk(field.get("items", {}), (*path, name, 0))

    return walk(schema_of("elasticjobs")["properties"]["spec"], ("spec",))


def test_no_rule_reads_what_may_be_missing(with_crds: ControlPlane) -> None:
    """Each field empty, null and alone: what is refused is refused in words, never in the terms of a rule."""
    bodies = []
    for path in structures():
        for value in ({}, [], None, 0, ""):
            whole = with_value("elasticjobs", path, value)
            bodies += [whole, {**whole, "spec": {path[1]: whole["spec"][path[1]]}}]
    bodies += [with_value("elasticjobs", ("spec", "sizes"), one) for one in ({"step": 1, "allowed": [1]}, {"step": 0})]
    assert len(bodies) > 400
    said = [create(with_crds, body) for body in bodies]
    assert [one for one in said if "evaluating rule" in one or "no such" in one] == []
    assert any("give either step or allowed" in one for one in said)


def create(plane: ControlPlane, body: dict[str, Any]) -> str:
    """What the API server says to it."""
    try:
        plane.request("POST", f"{COLLECTION}/elasticjobs?dryRun=All", {**body, "metadata": {"name": "one"}})
    except Refused as refused:
        return str(refused)
    return ""


def kubectl(plane: ControlPlane, *words: str) -> str:
    command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), *words]
    return run(command, check=True).stdout
