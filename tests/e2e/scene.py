# SPDX-License-Identifier: Apache-2.0
"""What each test makes for itself, on whatever cluster: a namespace with the training scripts, and jobs in it."""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from e2e import api, diagnosis, disruption
from e2e.job import TIMES, Job
from e2e.kube import Failed, Namespace, Object, Watch, wait_until
from support.waiting import Deadline

HERE = Path(__file__).parent
PREFIX = "e2e-"  # of the tests' namespaces

alive: list[Namespace] = []


def explain(report: pytest.TestReport) -> None:
    """Add to a failure's report what the cluster says about it."""
    if report.failed and report.when != "teardown":
        for namespace in alive:
            report.sections += [(f"{namespace.name}: {title}", text) for title, text in diagnosis.explain(namespace)]


def scripts(train: str = "train.py") -> Object:
    """The ConfigMap that is mounted into trainers, named after `train`, its train.py.

    Each script has one of its own: a pod may get a ConfigMap as it was before its last change.
    """
    files = {"train.py": train, "group.py": "group.py", "agent": "agent.py"}
    data = {name: (HERE / file).read_text() for name, file in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": script_name(train)}, "data": data}


def bring(job: Job, train: str) -> None:
    """Have the pods of `job`, which is not applied yet, run this script."""
    job.namespace.apply(scripts(train))
    job.script = script_name(train)


def script_name(file: str) -> str:
    return Path(file).stem.replace("_", "-")


@contextmanager
def new_namespace(title: str) -> Iterator[Namespace]:
    """A namespace with the training scripts in it, deleted afterwards without waiting for its end."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].rstrip("-")
    namespace = Namespace(f"{PREFIX}{slug}-{secrets.token_hex(2)}")
    api.call("POST", api.resource("namespaces").path(""), {"metadata": {"name": namespace.name}})
    alive.append(namespace)
    try:
        namespace.apply(scripts())
        wait_until("the namespace's account, without which a pod is refused", lambda: has_account(namespace), 30)
        yield namespace
    finally:
        alive.remove(namespace)
        with suppress(Failed, Deadline):  # the test has deleted it, or has failed anyway
            forget(namespace)


def forget(namespace: Namespace) -> None:
    """Have it deleted; or only what runs in it, where the cluster ends with the tests, for the end of a namespace is
    more than a hundred requests."""
    if disruption.machines.outlives_the_tests:
        api.call("DELETE", api.resource("namespaces").path("", namespace.name))
        return
    for kind in ("elasticjobs", "pods"):
        api.call("DELETE", api.resource(kind).path(namespace.name))


def has_account(namespace: Namespace) -> bool:
    """Whether its controller has made the default one."""
    return any(one["metadata"]["name"] == "default" for one in namespace.list("serviceaccounts"))


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
