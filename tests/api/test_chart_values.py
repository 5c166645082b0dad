# SPDX-License-Identifier: Apache-2.0
"""What values of the chart do to what helm renders; only the notes ask an API server.

In transcripts/chart_values.txt each section has a title, which is the claim, helm's options, and what differs from what
the chart renders without them. `REWRITE_TRANSCRIPTS=1 pytest PATH_OF_THIS_FILE` writes it anew.
"""

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.chart import CHART, render
from support import ControlPlane
from support.waiting import run

FILE = Path(__file__).parent / "transcripts" / "chart_values.txt"
SECTIONS = FILE.read_text().strip().split("\n\n")
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
LONGEST = 240  # of what is shown of a value
PLAIN = ("apiVersion:", "kind:", "metadata.labels.", "metadata.name:", "metadata.namespace: elasticjob-system")


def play(section: str) -> str:
    """The section as it really is. Without options it lists what is rendered."""
    title, *rest = section.splitlines()
    options = [line for line in rest if not line.startswith("    ")]
    found = difference(shlex.split(" ".join(options))) if options else objects_of()
    return "\n".join([title, *options, *(f"    {line}" for line in found or ["nothing differs"])])


@cache
def rendered(*options: str) -> dict[str, list[str]]:
    """The leaves of each object, by its kind and name, in whichever namespaces it is."""
    found = dict[str, list[str]]()
    for body in render(*options):
        found.setdefault(f"{body['kind']} {body['metadata']['name']}", []).extend(leaves(body))
    return found


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Elements of a list are told by their names; those that have none are in no order."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for inner in value:
            name = inner.get("name") if isinstance(inner, dict) else None
            rest = {key: known for key, known in inner.items() if key != "name"} if name else inner
            yield from leaves(rest, f"{path}[{name}]") if name else [f"{path}[]: {text_of(inner)}"]
    else:
        yield f"{path}: {text_of(value)}"


def text_of(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.replace(VERSION, "VERSION").split())


def objects_of() -> list[str]:
    """All that there is, with what is in the Deployment."""
    told = []
    for name, inside in sorted(rendered("--include-crds").items()):
        told.append(name)
        told += [f"  {line}" for line in inside if name.startswith("Deployment") and not line.startswith(PLAIN)]
    return told


def difference(options: list[str]) -> list[str]:
    """Objects that come (with what is in them) and go, and what is another in those that stay."""
    before, after = rendered(), rendered(*options)
    told = []
    for name in sorted(before.keys() | after.keys()):
        old, new = Counter(before.get(name, ())), Counter(after.get(name, ()))
        gone, come = sorted(old - new), sorted(new - old)
        if name not in after:
            told.append(f"- {name}")
            continue
        if gone or come:
            told.append(name if name in before else f"+ {name}")
        told += [f"  - {shortened(line, come)}" for line in gone]
        told += [f"  + {shortened(line, gone)}" for line in come if not line.startswith(PLAIN)]
    return told


def shortened(line: str, others: list[str]) -> str:
    """Of a long text what differs from the other one of its path, or its beginning."""
    if len(line) <= LONGEST:
        return line
    path = line.partition(": ")[0] + ": "
    other = next((one for one in others if one.startswith(path)), "")
    if not other:
        return line[:LONGEST] + "..."
    begin = shared(line, other)
    end = min(shared(line[::-1], other[::-1]), min(len(line), len(other)) - begin)
    return f"{path}...{line[begin : len(line) - end]}..."


def shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


if "REWRITE_TRANSCRIPTS" in os.environ:
    FILE.write_text("\n\n".join(map(play, SECTIONS)) + "\n")


@pytest.mark.parametrize("section", [pytest.param(one, id=one.splitlines()[0][2:]) for one in SECTIONS])
def test_what_differs(section: str) -> None:
    assert play(section) == section


def one(objects: list[Any], kind: str) -> Any:
    (found,) = [body for body in objects if body["kind"] == kind]
    return found


def test_names_and_labels_can_be_chosen() -> None:
    plain = {(body["kind"], body["metadata"]["name"]) for body in render()}
    assert {name for _, name in plain if not name.startswith("elasticjob")} == set()
    objects = render("--set", "fullnameOverride=ej,commonLabels.team=ml,nameOverride=training")
    assert {body["metadata"]["name"].startswith("ej-") for body in objects} == {True}
    assert {body["metadata"]["labels"]["team"] for body in objects} == {"ml"}
    deployment = one(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert (labels["app.kubernetes.io/name"], labels["team"]) == ("training", "ml")
    objects = render("--set-json", 'commonLabels={"app.kubernetes.io/name": "mine"}')
    assert {body["metadata"]["labels"]["app.kubernetes.io/name"] for body in objects} == {
        "elasticjob",
        "elasticjob-hook",
    }


WATCHED = ("service", "serviceMonitor", "podMonitor", "rules", "dashboard")
MONITORED = ",".join([*(f"metrics.{one}.enabled=true" for one in WATCHED), "networkPolicy.enabled=true"])


def test_what_finds_the_operator_finds_its_pods_and_no_others() -> None:
    objects = render("--set", MONITORED)
    (service, monitor) = one(objects, "Service"), one(objects, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    operators = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    others = [one(objects, "Pod")["metadata"]["labels"], one(objects, "Job")["spec"]["template"]["metadata"]["labels"]]
    selectors = [
        service["spec"]["selector"],
        one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= operators.items()
        assert not any(selector.items() <= labels.items() for labels in others)


def test_no_hook_and_no_role_of_the_chart_can_delete_a_crd() -> None:
    for body in render():
        for rule in body.get("rules", ()) if body["kind"] in ("Role", "ClusterRole") else ():
            if {"customresourcedefinitions", "*"} & set(rule.get("resources", ())):
                assert set(rule["verbs"]) <= {"get", "patch"}, body["metadata"]["name"]
    assert not [body for body in render("--include-crds", "--no-hooks") if "CustomResource" in body["kind"]][2:]
    assert not (CHART / "templates" / "crds").exists()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("replicas=two", "'/replicas': got string, want integer"),
        ("logLevel=loud", "'/logLevel': value must be one of 'debug', 'info', 'warning', 'error'"),
        ("image.operator.repository=", "'/image/operator/repository'"),
        ("image.sidecar.digest=abc", "'/image/sidecar/digest': 'abc' does not match pattern"),
        ("image.tag=dev", "'/image': additional properties 'tag' not allowed"),
        ("namespaces=team-a", "'/namespaces': got string, want array"),
        ("sidecar.resources.limits.cpu=true", "'/sidecar/resources/limits/cpu': got boolean"),
        ("admissionPolicy.exempt={me}", "'/admissionPolicy/exempt/0': 'me' does not match pattern"),
        ("serviceAccount.create=maybe", "'/serviceAccount/create'"),
        ("rbac.create=1", "'/rbac/create'"),
        ("podDisruptionBudget.maxUnavailable=0", "'/podDisruptionBudget/maxUnavailable'"),
        ("podDisruptionBudget.maxUnavailable=0%", "'/podDisruptionBudget/maxUnavailable'"),
        ("podDisruptionBudget.minAvailable=1", "'/podDisruptionBudget'"),
        ("livenessProbe.periodSeconds=0", "'/livenessProbe/periodSeconds'"),
        ("readinessProbe.httpGet.path=/x", "'/readinessProbe'"),
    ],
)
def test_a_wrong_value_is_named(value: str, sentence: str) -> None:
    done = run(["helm", "template", "elasticjob", str(CHART), "--kube-version", "1.35", "--set", value])
    assert done.returncode
    assert sentence in done.stderr


@pytest.mark.parametrize("options", [(), ("--set", "test.enabled=false"), ("--set", "crds.upgrade=false")])
def test_the_notes_are_paragraphs(options: tuple[str, ...], with_crds: ControlPlane) -> None:
    # a name of its own, as other tests leave an installation's roles and accounts
    command = ["helm", "install", "notes", str(CHART), "--namespace", "notes", "--dry-run=server"]
    done = run([*command, "--kubeconfig", str(with_crds.kubeconfig), "--set", "allowOverlap=true", *options])
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:\n")[2].splitlines()
    assert len(notes) > 20
    for before, line in pairwise(notes):
        assert before or line, "one blank line between two paragraphs, and not two"
        assert not (before.startswith("    ") and line[:1].strip()), f"no blank line before: {line}"


def test_the_annotations_for_artifact_hub() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    told = chart["annotations"]
    images = {one["name"]: one["image"] for one in yaml.safe_load(told["artifacthub.io/images"])}
    (rendered,) = one(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert images["operator"] == rendered["image"]
    assert f"--sidecar-image={images['sidecar']}" in rendered["args"]
    (example,) = yaml.safe_load(told["artifacthub.io/crdsExamples"])
    assert (told["artifacthub.io/prerelease"] == "true") == ("alpha" in example["apiVersion"])
    assert (CHART.parents[1] / "docs" / "assets" / chart["icon"].rpartition("/")[2]).exists()
