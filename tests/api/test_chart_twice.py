# SPDX-License-Identifier: Apache-2.0
"""A second release of the chart beside a first one, as helm and the API server see them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from api.chart import CHART
from support import ControlPlane
from support.waiting import run

FIRST, SECOND = "first", "second"


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """Of an API server where nothing is installed."""
    with ControlPlane() as plane:
        yield plane.kubeconfig


def helm(kubeconfig: Path, *command: str, namespaces: Sequence[str] = ()) -> str:
    """What helm says, be it a refusal."""
    where = ("--kubeconfig", str(kubeconfig), "--namespace", "default")
    done = run(["helm", *command, *where, "--set-json", f"namespaces={json.dumps(namespaces)}"])
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("first", "tries"),
    [
        ([], [([], "all namespaces"), (["b"], "b")]),
        (["a", "b"], [([], "a, b"), (["b", "c"], "b"), (["c"], "")]),
    ],
    ids=["all", "some"],
)
def test_a_second_release_for_the_same_namespaces_is_refused(
    kubeconfig: Path, first: list[str], tries: list[tuple[list[str], str]]
) -> None:
    for namespace in first:
        run(["kubectl", "--kubeconfig", str(kubeconfig), "create", "namespace", namespace])
    renamed = ("--no-hooks", "--set", f"fullnameOverride=for-{len(first)}")  # its old ClusterRole is no other one's
    assert "STATUS: deployed" in helm(kubeconfig, "upgrade", "--install", FIRST, str(CHART), *renamed, namespaces=first)
    trying = ("install", SECOND, str(CHART), "--dry-run=server", "--skip-crds")
    for second, shared in tries:
        said = helm(kubeconfig, *trying, namespaces=second)
        assert (f"the release first in namespace default looks after {shared} already: " in said) is bool(shared)
        assert ("STATUS: pending-install" in said) is not bool(shared)
        beside = helm(kubeconfig, *trying, "--set", "allowOverlap=true", namespaces=second)
        assert "STATUS: pending-install" in beside


def test_a_release_whose_namespace_is_deleted_is_none(kubeconfig: Path) -> None:
    """Its ClusterRoles stay, and nobody can uninstall it."""
    kubectl = ("kubectl", "--kubeconfig", str(kubeconfig))
    for namespace in ("home", "d"):
        run([*kubectl, "create", "namespace", namespace])
    ours = ["install", "gone", str(CHART), "--kubeconfig", str(kubeconfig), "--namespace", "home", "--no-hooks"]
    assert "STATUS: deployed" in run(["helm", *ours, "--skip-crds", "--set", "namespaces={d}"]).stdout
    trying = ("install", SECOND, str(CHART), "--dry-run=server", "--skip-crds")
    assert "the release gone in namespace home looks after d already: " in helm(kubeconfig, *trying, namespaces=["d"])
    run([*kubectl, "delete", "namespace", "home", "--wait=false"])
    assert "STATUS: pending-install" in helm(kubeconfig, *trying, namespaces=["d"]), "while it ends"
    finalized = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "home"}}'
    run([*kubectl, "replace", "--raw", "/api/v1/namespaces/home/finalize", "--filename", "-"], input=finalized)
    assert run([*kubectl, "get", "namespace", "home"]).returncode, "it is gone"
    assert "STATUS: pending-install" in helm(kubeconfig, *trying, namespaces=["d"])
