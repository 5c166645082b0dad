# SPDX-License-Identifier: Apache-2.0
"""A launcher in a worker with another rendezvous than the job's, by real torch: it must not train alone."""

import sys
from argparse import ArgumentError
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import run
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from contract.plane import Job
from contract.trainers import WORKER, trainers
from elasticjob_operator.objects.pods import RESERVED_ENVIRONMENT

NewJob = Callable[..., Job]
REFUSED = "passes over the job's rendezvous"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--standalone"], "--standalone"),
        (["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], "--rdzv-backend c10d"),
        (["--rdzv-backend=static", "--master-addr=localhost"], "--rdzv-backend static"),
    ],
)
def test_torchrun_ends_with_a_sentence(new_job: NewJob, tmp_path: Path, options: list[str], named: str) -> None:
    job = new_job(replicas=1)
    with trainers(job, tmp_path, [*options, str(WORKER)]) as runs:
        assert runs.codes(1)[0] == 1
        assert f"elasticjob: {named} {REFUSED}" in job.plane.log_of(f"{job.name}-0-0-trainer")
        assert runs.events() == []


def test_a_preparation_before_the_training_is_let_pass(new_job: NewJob, tmp_path: Path) -> None:
    """As `env -u PET_RDZV_BACKEND` does it."""
    job = new_job(replicas=1)
    own = {"PET_RDZV_BACKEND": "", "PET_STANDALONE": "1", "PET_NNODES": "1"}
    with trainers(job, tmp_path, [str(WORKER)], **own) as runs:
        runs.group(1)
        runs.order("finish")
        assert runs.codes(1)[0] == 0


@pytest.mark.parametrize("backend", ["c10d", "etcd", "static"])
def test_elastic_launch_ends_too(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_RDZV_BACKEND", "elasticjob")
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1, rdzv_backend=backend, rdzv_endpoint="localhost:0")
    with pytest.raises(SystemExit, match=f"rdzv_backend '{backend}' .*{REFUSED}"):
        elastic_launch(config, sys.exit)()


def _rendezvous(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str] | None:
    """That which torchrun would use now, None where it refuses its options."""
    used: list[LaunchConfig] = []
    monkeypatch.setattr(run, "elastic_launch", lambda config, entrypoint: lambda *_: used.append(config))
    try:
        run.run(run.get_args_parser().parse_args([str(WORKER)]))
    except (ArgumentError, SystemExit, ValueError, KeyError, OSError, RuntimeError):
        return None
    return used[0].rdzv_backend, used[0].rdzv_endpoint, used[0].run_id


def test_no_variable_turns_torchrun_away_but_those_that_the_operator_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option of torchrun has its variable, and a template may have it from anywhere."""
    ours = {"PET_RDZV_BACKEND": "elasticjob", "PET_RDZV_ENDPOINT": "127.0.0.1:27600", "PET_RDZV_ID": "uid"}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    assert _rendezvous(monkeypatch) == tuple(ours.values())
    options: Any = run.get_args_parser()._actions
    for name in {f"PET_{option.dest.upper()}" for option in options} - RESERVED_ENVIRONMENT:
        for value in ("1", "0", "a", "a=1"):
            with monkeypatch.context() as patch:
                patch.setenv(name, value)
                assert _rendezvous(patch) in (None, tuple(ours.values())), f"{name}={value}"
    with monkeypatch.context() as patch:
        patch.setenv("PET_STANDALONE", "1")
        assert _rendezvous(patch) not in (None, tuple(ours.values()))
