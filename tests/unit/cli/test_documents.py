# SPDX-License-Identifier: Apache-2.0
"""What programs read: the one schema of docs/cli.md, for one job and for many."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from elasticjob.objects import Object
from elasticjob_cli.output.documents import API_VERSION, change, report, reports, written
from elasticjob_cli.reading.look import Look
from support.cli_jobs import ago, formed, forming, pod

DOCUMENT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| ([a-z ]+) \| .+ \|$")
TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "time": (str,),
    "whole number": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
}
OWN_NAMES = "progress.metrics"  # whose fields a script names


def section(title: str) -> str:
    return DOCUMENT.split(f"\n{title}\n")[1].split("\n#")[0]


def rows(title: str) -> dict[str, str]:
    """By the path of a field its type."""
    return {found[1]: found[2] for line in section(title).splitlines() if (found := ROW.match(line))}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each path with a value there; a list's path is also that of its items, with `[]` behind."""
    if path and isinstance(value, dict) and not path.endswith("[]"):
        yield path, value
    if isinstance(value, dict) and path != OWN_NAMES:
        for name, field in value.items():
            yield from leaves(field, f"{path}.{name}" if path else name)
        return
    if not isinstance(value, dict):
        yield path, value
    if isinstance(value, list):
        for one in value:
            if isinstance(one, dict):
                yield from leaves(one, f"{path}[]")


def everything() -> Look:
    """A job of which each part has something."""
    history: list[Object] = [
        {"round": number, "size": 2, "seconds": 3.0, "time": ago(90 - number), "cause": "Scaled", "reason": "why"}
        for number in (3, 4)
    ]
    nodes = [{"node": "node-4", "failures": 1, "pod": "digits-4-0", "round": 2, "time": ago(60)}]
    progress = {"step": 7, "total": 9, "metrics": {"train_loss": 0.5}, "summary": "7/9"}
    blockers = [
        {"reason": "Unschedulable", "object": "Node/node-4", "workers": "2", "count": 1, "since": ago(30)}
        | {"message": "0/3 nodes are available", "remedy": "make room"}
    ]
    spec = {"replicas": 3, "maxReplicas": 4, "activeDeadlineSeconds": 600}
    given = {"history": history, "nodeFailures": nodes, "progress": progress, "phase": "Running", "reason": "Trains"}
    given["blockers"] = blockers
    return formed([0, 1], spec=spec, pods=[pod(2)], **given)


def of_type(value: Any, kind: str) -> bool:
    optional = kind.endswith(" or null")
    types = TYPES[kind.removesuffix(" or null")]
    if value is None:
        return optional
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def test_each_field_of_a_report_is_documented_with_its_type() -> None:
    documented = rows("### JobReport")
    for seen in (everything(), forming(last=[], spec={"replicas": 2})):
        found = list(leaves(report(seen, {})))
        for path, value in found:
            assert of_type(value, documented[path]), f"{path} is {value!r} and not {documented[path]}"
    there = {path for path, _ in leaves(report(everything(), {}))}
    assert documented.keys() == there


def test_each_field_of_a_change_is_documented() -> None:
    known = dict.fromkeys(("replicas", "suspended", "restarted_at", "round", "world_size"))
    made = change("digits", "ml", change="scale", changed=True, waited=True, seconds=1.5, **known)
    assert rows("### JobChange").keys() == {path for path, _ in leaves(made)}


def test_one_job_and_many_have_the_same_fields() -> None:
    one, other = report(everything(), {}), report(forming(), {})
    assert one.keys() == other.keys()
    many = reports([one, other])
    assert many == {"apiVersion": API_VERSION, "kind": "JobReportList", "items": [one, other]}


def test_all_names_are_in_one_case_but_the_scripts_own() -> None:
    made = report(everything(), {})
    assert made["progress"]["metrics"] == {"train_loss": 0.5}
    names = {name for path, _ in leaves(made) for name in re.split(r"[.\[\]]+", path) if name}
    assert not [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z]*)*", name)]


def test_yaml_says_what_json_says() -> None:
    made = reports([report(everything(), {})] * 2)
    assert yaml.safe_load(written(made, "yaml")) == json.loads(written(made, "json")) == made
    assert "&id" not in written(made, "yaml")


def test_a_stream_is_documents_that_a_reader_can_tell_apart() -> None:
    made = report(everything(), {})
    assert json.loads(written(made, "json", on_one_line=True)) == made
    assert "\n" not in written(made, "json", on_one_line=True)
    twice = "\n".join([written(made, "yaml", on_one_line=True)] * 2)
    assert list(yaml.safe_load_all(twice)) == [made, made]
