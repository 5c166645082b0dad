"""Fixtures of the tests on a control plane with stand-in kubelets: one such cluster for each process of a run.

They are the end-to-end tests' own, on another cluster: namespaces, jobs and kubectl are the same.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from e2e import kube
from e2e.job import Job
from e2e.kube import Namespace
from e2e.scene import explain, new_job, new_namespace
from plane.cluster import ProcessCluster
from plane.machines import OfProcesses

LOG_LINES = 80


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    made = ProcessCluster(tmp_path_factory.mktemp("cluster"))
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start()
            patch.setitem(kube.ENVIRONMENT, "KUBECONFIG", str(made.kubeconfig))
            yield made
        finally:
            made.stop()


@pytest.fixture
def namespace(cluster: ProcessCluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with new_namespace(request.node.name.removeprefix("test_")) as made:
        yield made


@pytest.fixture
def job(cluster: ProcessCluster, namespace: Namespace) -> Iterator[Job]:
    with new_job(namespace, "train", None, machines=OfProcesses(cluster)) as made:
        yield made


@pytest.fixture
def other(cluster: ProcessCluster) -> Iterator[Job]:
    """Another job, in a namespace of its own."""
    with new_namespace("other") as namespace, new_job(namespace, "train", None, machines=OfProcesses(cluster)) as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure's report what the cluster says about it."""
    report = yield
    explain(report)
    if report.failed and (cluster := getattr(item, "funcargs", {}).get("cluster")):
        report.sections += [(name, _tail(one.log)) for name, one in cluster.operators.items()]
        if cluster.kubelet.broken:
            report.sections.append(("kubelets", repr(cluster.kubelet.broken)))
    return report


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
