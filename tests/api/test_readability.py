# SPDX-License-Identifier: Apache-2.0
"""What kubectl shows of a job of a thousand workers: an answer that fits a screen, whatever has happened to it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from elasticjob.api import API_VERSION, Condition, ElasticJobStatus, Progress, RendezvousStatus, RoundRecord
from elasticjob.members import Member
from support import ControlPlane
from support.waiting import in_time, run

JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
SIZE, SCREEN_LINES, SCREEN_COLUMNS, ANSWER_SECONDS = 1000, 130, 160, 60
NOW = "2026-01-02T03:04:05Z"

# made at once; since then every hundredth was replaced, each at another time
WORKERS = tuple(Member(index, f"{0 if index % 100 else index:08x}.0") for index in range(SIZE))
STATUS = ElasticJobStatus(
    observed_generation=1,
    phase="Running",
    conditions=tuple(
        Condition(type=type, status="True", reason="Formed", message="round 30 of 1000", last_transition_time=NOW)
        for type in ("TemplateValid", "Rendezvoused", "Suspended", "WorkersValid")
    ),
    replicas=SIZE,
    ready_replicas=SIZE,
    rendezvous=RendezvousStatus(
        round=30,
        phase="Formed",
        world_size=SIZE,
        participants=WORKERS,
        leaving=WORKERS[:500],
        finished=WORKERS[500:],
        reason="worker 7 lost: its pod was deleted",
    ),
    progress=Progress(step=7, total=9, metrics={"loss": 0.5}, summary="7/9"),
    replacements={worker.index: 3 for worker in WORKERS[::100]},
    history=tuple(
        RoundRecord(round=number, size=SIZE, cause="PodDeleted", reason="worker 7 lost", seconds=1.5, time=NOW)
        for number in range(26, 31)
    ),
)


@pytest.fixture(scope="module")
def job(with_crds: ControlPlane) -> Iterator[str]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "train:1", "command": ["torchrun", "train.py"]}]}}
    spec = {"replicas": SIZE, "template": template}
    metadata = {"name": "large"}
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": metadata, "spec": spec}
    stored = with_crds.request("POST", JOBS, made)
    with_crds.request("PUT", f"{JOBS}/large/status", {**stored, "status": STATUS.dump()})
    yield "large"
    with_crds.request("DELETE", f"{JOBS}/large")


def kubectl(plane: ControlPlane, *words: str) -> str:
    command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), *words]
    return run(command, check=True).stdout


def test_a_thousand_workers_fit_a_screen(control_plane: ControlPlane, job: str) -> None:
    with in_time("both answers of kubectl", ANSWER_SECONDS):
        listed = kubectl(control_plane, "get", "ej", job).splitlines()
        described = kubectl(control_plane, "describe", "ej", job).splitlines()
    assert (len(listed), max(map(len, listed)) < SCREEN_COLUMNS) == (2, True)
    assert sum(1 + len(line) // SCREEN_COLUMNS for line in described) < SCREEN_LINES, "\n".join(described)


def test_what_is_stored_is_what_the_operator_reads(control_plane: ControlPlane, job: str) -> None:
    stored = json.loads(kubectl(control_plane, "get", "ej", job, "-o", "json"))
    assert ElasticJobStatus.parse(stored["status"]) == STATUS
