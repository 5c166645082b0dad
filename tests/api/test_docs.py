"""The documents' commands and manifests against a real API server, without nodes.

The commands of a page are run in its order, on a control plane of their own that has what its reader has by then. What
a controller or a kubelet would make of them does not happen; what needs that is in tests/e2e/test_docs.py.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support import ControlPlane
from support.doc_pages import ON_A_CLUSTER, PAGES, ROOT, RUN, Block, blocks, manifests
from support.waiting import run

COMMAND_SECONDS = 120
EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))


@pytest.fixture
def fresh() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


# A busy API server can explain what was installed only some seconds later, and nothing tells when: a reader asks again.
PATIENT_KUBECTL = """
if [ "$1" = explain ]; then
  for second in $(seq 30); do {kubectl} "$@" >/dev/null 2>&1 && break; sleep 1; done
fi
exec {kubectl} "$@"
"""


class Shell:
    """A reader's shell, in a copy of what a checkout has of the pages' paths."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._folder = folder
        for name in ("charts", "crds", "examples"):
            shutil.copytree(ROOT / name, folder / name)
        programs = folder / "bin"
        programs.mkdir()
        scripts = {
            "kubectl-elasticjob": f'exec {sys.executable} -m elasticjob_cli "$@"\n',
            "kubectl": PATIENT_KUBECTL.format(kubectl=shutil.which("kubectl")),
        }
        for name, script in scripts.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}")
            (programs / name).chmod(0o755)
        self._environment = os.environ | {
            "KUBECONFIG": str(plane.kubeconfig),
            "HOME": str(folder),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "REGISTRY": "registry.example.com",
        }

    def save(self, block: Block) -> None:
        (self._folder / block.file).write_text(block.text)

    def run(self, text: str) -> str:
        """The output of a block all of whose commands succeed."""
        done = run(["bash", "-euo", "pipefail", "-c", text], COMMAND_SECONDS, cwd=self._folder, env=self._environment)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def given(page: str, shell: Shell) -> None:
    """What the reader of a page has done before."""
    if page in ("moving.md", "operations.md"):
        # kubectl fails on a CRD that the API server has given no conditions yet
        shell.run("kubectl create -f crds; until kubectl wait --for=condition=Established -f crds; do sleep 0.2; done")
    if page == "operations.md":
        shell.run("kubectl apply -k examples/first")


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page(page: str, fresh: ControlPlane, tmp_path: Path) -> None:
    shell = Shell(fresh, tmp_path)
    given(page, shell)
    here = [block for block in blocks(ROOT / "docs" / page, "sh", "yaml") if block.section not in ON_A_CLUSTER]
    for block in here:
        if block.language == "sh" and block.is_run:
            shell.run(block.text)
        elif block.file:
            shell.save(block)
    assert sum(block.language == "sh" and block.is_run for block in here) > 2


@pytest.mark.parametrize("block", manifests(), ids=lambda block: block.name)
def test_a_manifest_of_a_page(block: Block, with_crds: ControlPlane) -> None:
    validate(with_crds, block.text)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_manifest_of_an_example(file: Path, with_crds: ControlPlane) -> None:
    if "Kustomization" in [body["kind"] for body in yaml.safe_load_all(file.read_text())]:
        command = ["kubectl", "kustomize", str(file.parent)]
        validate(with_crds, run(command, check=True).stdout)
    else:
        validate(with_crds, file.read_text())


def test_a_field_that_is_not_there_is_refused(with_crds: ControlPlane) -> None:
    first = next(block.text for block in manifests() if block.page == "quick-start.md")
    with pytest.raises(AssertionError, match=r'"spec\.replica"'):
        validate(with_crds, first.replace("  replicas:", "  replica: 1\n  replicas:"))


def validate(plane: ControlPlane, text: str) -> None:
    """By the server, which refuses fields that it does not know."""
    command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), "apply", "--dry-run=server", "--validate=strict"]
    done = run([*command, "--filename", "-"], input=text)
    assert done.returncode == 0, done.stderr


def test_pages_have_manifests_and_each_is_found() -> None:
    whole = sum(page.read_text().count("```yaml\napiVersion:") for page in PAGES)
    assert len(manifests()) == whole > 4
