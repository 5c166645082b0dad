# SPDX-License-Identifier: Apache-2.0
"""What each test makes for itself, on whatever cluster: a namespace with the training scripts, and jobs in it."""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e import diagnosis
from e2e.job import TIMES, Job
from e2e.kube import Namespace, Object, Watch, kubectl, run

HERE = Path(__file__).parent
PREFIX = "e2e-"  # of the tests' namespaces

alive: list[Namespace] = []


def explain(report: pytest.TestReport) -> None:
    """Add to a failure's report what the cluster says about it."""
    if report.failed and report.when != "teardown":
        for namespace in alive:
            report.sections += [(f"{namespace.name}: {title}", text) for title, text in diagnosis.explain(namespace)]


def scripts(train: str = "train.py") -> Object:
    """The ConfigMap that is mounted into trainers, `train` its train.py."""
    files = {"train.py": train, "group.py": "group.py", "agent": "agent.py"}
    data = {name: (HERE / file).read_text() for name, file in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "train"}, "data": data}


@contextmanager
def new_namespace(title: str) -> Iterator[Namespace]:
    """A namespace with the training scripts in it, deleted afterwards without waiting for its end."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].rstrip("-")
    namespace = Namespace(f"{PREFIX}{slug}-{secrets.token_hex(2)}")
    kubectl("create", "namespace", namespace.name)
    alive.append(namespace)
    try:
        namespace.apply(scripts())
        yield namespace
    finally:
        alive.remove(namespace)
        run("kubectl", "delete", "namespace", namespace.name, "--wait=false")


@contextmanager
def new_job(
    namespace: Namespace,
    name: str,
    torch: str | None,
    node: str | None = None,
    times: Mapping[str, int] = TIMES,
) -> Iterator[Job]:
    """A job that is watched, but not yet applied."""
    watches = [Watch(namespace, "elasticjobs"), Watch(namespace, "pods")]
    try:
        job = Job(namespace, name, *watches, torch, node, times)
        yield job
        job.forget_checkpoint()
    finally:
        for watch in watches:
            watch.close()
