# SPDX-License-Identifier: Apache-2.0
"""The quick start as it is written: each command of the page, from no cluster to none, and nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.first_machine import first_machine, remove_cluster
from e2e.job import STARTED_SECONDS
from support.doc_pages import DOCS, blocks
from support.reader import Reader

# a cluster more than the others have: it wants the machine to itself
pytestmark = [pytest.mark.torchrun, pytest.mark.real, pytest.mark.extended, pytest.mark.disruptive]

BLOCK_SECONDS = 10 * STARTED_SECONDS
LOOK = (
    "kubectl get pods,events,persistentvolumeclaims --all-namespaces --output wide; kubectl describe elasticjobs,pods"
)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    remove_cluster()
    yield first_machine(tmp_path)
    remove_cluster()


def test_the_quick_start(reader: Reader) -> None:
    told: dict[str, str] = {}
    page = list(blocks(DOCS / "quick-start.md", "sh"))
    for block in page:
        try:
            said = reader.run(block.text, BLOCK_SECONDS)
        except AssertionError as error:
            if "Get a cluster" in told:
                error.add_note(reader.run(f"({LOOK}) 2>&1 || true", STARTED_SECONDS))
            raise
        told[block.section] = told.get(block.section, "") + said
    assert all(block.is_run for block in page)
    rounds = re.findall(r"round (\d) formed with (\d) workers", told["Look at it"])
    assert {("1", "2"), ("2", "4"), ("3", "3"), ("4", "3")} <= set(rounds)
    for cause in ("scaled from 2 to 4", "scaled from 4 to 3", r"worker 0 lost: its pod (was deleted|is gone)"):
        assert re.search(cause, told["Look at it"])
    (step,) = re.findall(r"started: world_size=3 resuming from step (\d+)", told["The end"])
    assert int(step) > 0, "it went on from its last checkpoint"
