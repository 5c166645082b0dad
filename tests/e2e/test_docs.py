"""The commands of the quick start that need pods: its own job, scaled, hurt and looked at as the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.example_job import Example
from e2e.job import STARTED_SECONDS, Job
from e2e.kube import ENVIRONMENT
from support.doc_pages import DOCS, ON_A_CLUSTER, blocks

pytestmark = [pytest.mark.torchrun, pytest.mark.patient, pytest.mark.real, pytest.mark.extended]

BLOCK_SECONDS = 4 * STARTED_SECONDS


@pytest.fixture
def shell(job: Job, tmp_path: Path) -> dict[str, str]:
    """The environment of a reader's shell, whose kubectl has the namespace as its own, and the plug-in."""
    plugin = tmp_path / "kubectl-elasticjob"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m elasticjob_cli "$@"\n')
    plugin.chmod(0o755)
    config = tmp_path / "kubeconfig"
    config.write_bytes(Path(ENVIRONMENT["KUBECONFIG"]).read_bytes())
    config.chmod(0o600)
    environment = ENVIRONMENT | {"KUBECONFIG": str(config), "PATH": f"{tmp_path}{os.pathsep}{ENVIRONMENT['PATH']}"}
    run(environment, f"kubectl config set-context --current --namespace={job.namespace.name}")
    return environment


def run(environment: dict[str, str], text: str) -> str:
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=BLOCK_SECONDS)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.usefixtures("directory")
def test_the_quick_start(job: Job, shell: dict[str, str]) -> None:
    example = Example(job, "first", STEPS="400")
    job.wait_for_round(2, seconds=STARTED_SECONDS)
    before = example.wait_for_training(2)
    told: dict[str, str] = {}
    for block in blocks(DOCS / "quick-start.md", "sh"):
        if block.section in ON_A_CLUSTER and block.is_run:
            if block.section == "Look at it":
                assert example.wait_for_training(3).began >= before.taken - 1, "it went on from its last checkpoint"
            text = block.text.replace("elasticjob/first", f"elasticjob/{job.name}").replace(" first", f" {job.name}")
            told[block.section] = told.get(block.section, "") + run(shell, text)
    assert list(told) == list(ON_A_CLUSTER)
    assert [(one.number, len(one.members)) for one in job.rounds()] == [(1, 2), (2, 4), (3, 3), (4, 3)]
    assert "round 4 formed with 3 workers" in told["Look at it"]
    lost = r"worker 0 lost: its pod (was deleted|is gone)"  # gone, where a new leader has not seen its deletion
    for cause in ("scaled from 2 to 4", "scaled from 4 to 3", lost):
        assert re.search(cause, told["Look at it"])
