"""The chart's files agree with each other and with the project; the e2e tests tell whether it works."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from elasticjob_operator.objects.pods import SIDECAR_RESOURCES

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "elasticjob"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def resolve(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return resolve(SCHEMA["definitions"][reference.rsplit("/", 1)[1]]) if reference else schema


def leaves(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Every key that a user sets; a mapping without fixed keys, such as labels, is one."""
    for key, value in values.items():
        here = resolve(schema["properties"][key])
        if value and "properties" in here and key != "resources":
            yield from leaves(value, here, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def documented(text: str) -> Iterator[str]:
    """Every key of `values.yaml` that follows a comment which starts with `# --`."""
    parents: list[str] = []
    ready = False
    for line in text.splitlines():
        if comment := re.match(r" *# (--)?", line):
            ready = ready or bool(comment[1])
        elif key := re.match(r"( *)([A-Za-z]+):", line):
            parents[len(key[1]) // 2 :] = [key[2]]
            if ready:
                yield ".".join(parents)
            ready = False


def test_every_value_is_documented() -> None:
    assert set(documented((CHART / "values.yaml").read_text())) == set(leaves(VALUES, SCHEMA))


def test_the_schema_knows_every_value_and_no_other() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    for name in ("image", "sidecar", "serviceAccount", "rbac", "admissionPolicy", "flowControl", "workerNetworkPolicy"):
        assert set(SCHEMA["properties"][name]["properties"]) == set(VALUES[name])


def test_the_sidecars_resources_are_the_operators_own_default() -> None:
    assert VALUES["sidecar"]["resources"] == SIDECAR_RESOURCES


def test_the_images_have_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == project["version"]


def test_the_crds_are_the_generated_ones() -> None:
    assert (CHART / "crds").resolve() == ROOT / "crds"
