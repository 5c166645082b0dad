"""Manifests as charts, GitOps tools and autoscalers leave them, with a real API server and kubectl."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ControlPlane
from support.control_plane import Refused
from support.waiting import run

CRDS = Path(__file__).parents[2] / "crds"
COLLECTION = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "train:1", "command": ["torchrun", "a"]}]}}


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name}
    body = {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "metadata": meta}
    return {**body, "spec": {"template": TEMPLATE, **spec}}


def kubectl(plane: ControlPlane, *arguments: str, given: Any = None) -> str:
    environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
    done = run(["kubectl", *arguments], 60, input=json.dumps(given), env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def spec_of(plane: ControlPlane, name: str) -> Any:
    return plane.request("GET", f"{COLLECTION}/{name}")["spec"]


def nulls(*path: str) -> dict[str, Any]:
    """All fields at that path that may be left out, as null."""
    (version,) = yaml.safe_load((CRDS / "elasticjobs.yaml").read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema["properties"][name]
    return dict.fromkeys(set(schema["properties"]).difference(schema.get("required", ())))


def test_null_in_any_field_of_the_spec_is_as_good_as_left_out(with_crds: ControlPlane) -> None:
    parts = ("drain", "rendezvous", "avoidNodes")
    template = {"metadata": {"labels": None, "annotations": None, "creationTimestamp": None}, **TEMPLATE}
    null = {**nulls("spec"), **{part: nulls("spec", part) for part in parts}, "template": template}
    found = []
    for name, spec in (("plain", {part: {} for part in parts}), ("null", null)):
        kubectl(with_crds, "create", "--validate=false", "--filename=-", given=manifest(name, **spec))
        found.append(spec_of(with_crds, name))
        assert found[-1].pop("template")["spec"] == TEMPLATE["spec"]
    assert len(null) > 20
    assert found[0] == found[1]


@pytest.mark.parametrize("apply", [["apply"], ["apply", "--server-side", "--field-manager=flux"]], ids=" ".join)
def test_a_size_that_the_manifest_leaves_out_stays_as_others_set_it(with_crds: ControlPlane, apply: list[str]) -> None:
    name = f"sized-{len(apply)}"
    for wanted in (1, 3):
        kubectl(with_crds, *apply, "--filename=-", given=manifest(name, maxReplicas=4))
        assert spec_of(with_crds, name)["replicas"] == wanted
        kubectl(with_crds, "scale", f"elasticjob/{name}", "--replicas=3")


@pytest.mark.parametrize("bound", [{"minReplicas": 2}, {"sizes": {"step": 2}}], ids=str)
def test_a_manifest_for_which_the_default_size_is_none_says_what_to_set(
    with_crds: ControlPlane, bound: dict[str, Any]
) -> None:
    with pytest.raises(Refused, check=lambda it: it.names("spec.replicas", ": set spec.replicas, whose default is 1")):
        with_crds.request("POST", COLLECTION, manifest("bound", **bound))


def test_lists_are_stored_as_they_are_written(with_crds: ControlPlane) -> None:
    """A default within one would be a difference from the manifest that no apply removes."""
    rules = [
        {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    given = manifest("listed", podFailurePolicy={"rules": rules})
    kubectl(with_crds, "apply", "--filename=-", given=given)
    assert spec_of(with_crds, "listed")["podFailurePolicy"] == {"rules": rules}
