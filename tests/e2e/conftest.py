"""Fixtures of the cluster tests. They expect what `make install` has made, and make a namespace for each test."""

import re
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e import diagnosis
from e2e.job import Job
from e2e.kube import Namespace, Watch, kubectl, run
from e2e.timings import Timings

HERE = Path(__file__).parent
TIMINGS = pytest.StashKey[Timings]()

_alive: list[Namespace] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "e2e: runs on the local cluster that `make install` prepares")
    config.stash[TIMINGS] = Timings()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster() -> None:
    """The API server answers and has the CRDs."""
    answer = run("kubectl", "get", "--request-timeout=10s", "crd", "elasticjobs.elasticjob.io", "--output=name")
    if answer.code:
        why = answer.errors.strip().splitlines()[-1]
        pytest.exit(f"the local cluster or its CRDs are missing; run `make install` first: {why}", 1)


@pytest.fixture(scope="session")
def operator(cluster: None) -> Namespace:
    """The operator runs; its namespace."""
    name, namespace = "deployment/elasticjob-operator", diagnosis.SYSTEM
    answer = namespace.try_kubectl("rollout", "status", name, "--timeout=60s")
    if answer.code:
        state = namespace.try_kubectl("get", "pods", "--output=wide").output
        pytest.exit(f"the operator is not ready; run `make install` first\n{answer.errors}{state}", 1)
    return namespace


@contextmanager
def new_namespace(title: str) -> Iterator[Namespace]:
    """A namespace with the training script in it, deleted afterwards without waiting for its end."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].rstrip("-")
    namespace = Namespace(f"e2e-{slug}-{secrets.token_hex(2)}")
    kubectl("create", "namespace", namespace.name)
    _alive.append(namespace)
    try:
        namespace.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "train"},
                "data": {"train.py": (HERE / "train.py").read_text()},
            }
        )
        yield namespace
    finally:
        _alive.remove(namespace)
        run("kubectl", "delete", "namespace", namespace.name, "--wait=false")


@contextmanager
def new_job(namespace: Namespace, name: str) -> Iterator[Job]:
    """A job that is watched, but not yet applied."""
    watches = [Watch(namespace, "elasticjobs"), Watch(namespace, "pods")]
    try:
        yield Job(namespace, name, *watches)
    finally:
        for watch in watches:
            watch.close()


@pytest.fixture
def namespace(cluster: None, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with new_namespace(request.node.name.removeprefix("test_")) as made:
        yield made


@pytest.fixture(scope="module")
def module_namespace(cluster: None, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """For tests that leave it as it was."""
    with new_namespace(request.node.path.stem.removeprefix("test_")) as made:
        yield made


@pytest.fixture
def job(operator: Namespace, namespace: Namespace) -> Iterator[Job]:
    with new_job(namespace, "train") as made:
        yield made


@pytest.fixture(scope="module")
def running_job(operator: Namespace, module_namespace: Namespace, timings: Timings) -> Iterator[Job]:
    """A job of two workers that train; for tests that only look."""
    with new_job(module_namespace, "train") as made:
        applied = made.apply(replicas=2, maxReplicas=4)
        timings.note("kubectl apply to first round of 2", made.wait_for_round(2).at - applied)
        made.wait_for_training(2)
        yield made


@pytest.fixture(scope="session")
def timings(request: pytest.FixtureRequest) -> Timings:
    return request.config.stash[TIMINGS]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure's report what the cluster says about it."""
    report = yield
    if report.failed and report.when != "teardown":
        for namespace in _alive:
            report.sections += [(f"{namespace.name}: {title}", text) for title, text in diagnosis.explain(namespace)]
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    lines = config.stash[TIMINGS].lines()
    if lines:
        terminalreporter.section("timings, one column for each time it was measured")
        terminalreporter.write("\n".join(lines) + "\n")
