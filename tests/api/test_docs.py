# SPDX-License-Identifier: Apache-2.0
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

from support import ControlPlane, image_volume
from support.doc_pages import ON_A_CLUSTER, PAGES, ROOT, RUN, Block, blocks, manifests
from support.reader import Reader
from support.waiting import run

COMMAND_SECONDS = 120
# two ways to install, and from the one to the other: each is run without the sections of the other
WITH_HELM, WITHOUT = ("With Helm", "From Helm to the manifest"), ("Without Helm",)
WAYS = [(page, ()) for page in RUN if page != "installation.md"]
WAYS += [("installation.md", WITHOUT), ("installation.md", WITH_HELM)]
INSTALL = "helm install elasticjob charts/elasticjob --namespace elasticjob-system --create-namespace"
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


COPIED = ("charts", "config", "crds", "examples")


def reader_of(plane: ControlPlane, folder: Path) -> Reader:
    """A reader's shell, in a copy of what a checkout has of the pages' paths."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    programs = {
        "kubectl-elasticjob": f'exec {sys.executable} -m elasticjob_cli "$@"\n',
        "kubectl": PATIENT_KUBECTL.format(kubectl=shutil.which("kubectl")),
    }
    return Reader(folder, os.environ | {"KUBECONFIG": str(plane.kubeconfig), "HOME": str(folder)}, programs)


def given(page: str, reader: Reader) -> None:
    """What the reader of a page has done before."""
    if page in ("moving.md", "operations.md"):
        # kubectl fails on a CRD that the API server has given no conditions yet
        wait = "until kubectl wait --for=condition=Established -f crds; do sleep 0.2; done"
        reader.run(f"kubectl create -f crds; {wait}", COMMAND_SECONDS)
    if page == "operations.md":
        reader.run("kubectl apply -k examples/first", COMMAND_SECONDS)
        reader.run(INSTALL, COMMAND_SECONDS)


@pytest.mark.parametrize(("page", "left_out"), WAYS)
def test_the_commands_of_a_page(page: str, left_out: tuple[str, ...], fresh: ControlPlane, tmp_path: Path) -> None:
    reader = reader_of(fresh, tmp_path)
    given(page, reader)
    here = [block for block in blocks(ROOT / "docs" / page, "sh", "yaml") if block.section not in ON_A_CLUSTER]
    commands = 0
    for block in here:
        if block.file:
            (tmp_path / block.file).parent.mkdir(exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
        elif block.language == "sh" and block.is_run and block.section not in left_out:
            reader.run(block.text, COMMAND_SECONDS)
            commands += 1
    assert commands > 1


@pytest.mark.parametrize("block", manifests(), ids=lambda block: block.name)
def test_a_manifest_of_a_page(block: Block, with_crds: ControlPlane) -> None:
    validate(with_crds, block.text)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_manifest_of_an_example(file: Path, request: pytest.FixtureRequest) -> None:
    of_others = file.parent.name in ("jobset", "trainjob")
    plane: ControlPlane = request.getfixturevalue("with_others_crds" if of_others else "with_crds")
    if "Kustomization" in [body["kind"] for body in yaml.safe_load_all(file.read_text())]:
        validate(plane, kustomized(file.parent))
    else:
        validate(plane, file.read_text())


def test_the_plug_in_as_an_image_volume_of_a_jobset(with_others_crds: ControlPlane, tmp_path: Path) -> None:
    made = image_volume.objects(tmp_path / "jobset")
    validate(with_others_crds, yaml.safe_dump_all(made))
    (job,) = (body for body in made if body["kind"] == "JobSet")
    (replicated,) = job["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    assert "initContainers" not in pod
    assert [volume["name"] for volume in pod["volumes"] if "image" in volume] == ["plugin"]
    (shell, option, script) = pod["containers"][0]["command"]
    empty = run([shell, option, script.replace("/plugin", str(tmp_path))])
    assert empty.returncode == 1
    assert "did not mount the image elasticjob/torch-plugin" in empty.stderr
    assert empty.stderr.endswith("use the init container in place of the image volume\n")


def kustomized(folder: Path) -> str:
    return run(["kubectl", "kustomize", str(folder)], check=True).stdout


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
    kustomizations = "```yaml\napiVersion: kustomize.config.k8s.io"
    texts = [page.read_text() for page in PAGES]
    whole = sum(text.count("```yaml\napiVersion:") - text.count(kustomizations) for text in texts)
    assert len(manifests()) == whole > 4
