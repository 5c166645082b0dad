# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the cluster tests. They expect what `make install` has made, and make a namespace for each test."""

import os
import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from e2e import diagnosis, disruption, kube, schedule
from e2e.disruption import CHECKPOINTS, CONTROL_PLANE, NODE
from e2e.faults.table import FaultTable
from e2e.hiccups import is_the_machines
from e2e.job import NEWEST_TORCH, STARTED_SECONDS, TIMES, Job
from e2e.kube import Namespace, run
from e2e.kueue import kueue
from e2e.leftovers import sweep
from e2e.scene import HERE, PREFIX, explain, new_job, new_namespace
from plane.cluster import ProcessCluster
from support.second_run import run_again


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: only real kubelets and containers, or others' controllers, can show it")
    config.addinivalue_line("markers", "extended: of what `make e2e` leaves to `make e2e-all`")
    config.addinivalue_line("markers", "fault(event, told=None, warm=False): a row of the table, see faults/fault.py")
    config.addinivalue_line("markers", "torchrun: its jobs run torchrun and torch in place of agent.py")
    schedule.configure(config)
    path = config.getoption("--faults-json")
    config.pluginmanager.register(FaultTable(Path(path) if path else None))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stand-in", action="store_true", help="on a cluster without machines, see tests/plane")
    parser.addoption("--whole", action="store_true", help="faults of full length, told in time")
    parser.addoption("--faults-json", metavar="FILE", help="write the table of faults to FILE")
    parser.addoption("--record-durations", action="store_true", help="write durations.json anew")
    parser.addoption("--seconds", type=int, default=600, help="how long soak.py goes on")
    parser.addoption("--seed", type=int, default=0, help="of soak.py's choices")
    parser.addoption("--older-chart", metavar="FILE", help="of the version that upgrade.py begins with")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    shared = not (here and here[0].config.getoption("--stand-in"))
    if not shared:
        real = [item for item in here if item.get_closest_marker("real")]
        here[0].config.hook.pytest_deselected(items=real)
        here = [item for item in here if item not in real]
    schedule.group(here, shared=shared)
    others = [item for item in items if HERE not in item.path.parents]
    items[:] = others + schedule.longest_first(here, shared=shared)


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if not hasattr(config, "workerinput") and not config.option.collectonly and not config.getoption("--stand-in"):
        sweep(PREFIX)


@pytest.fixture(scope="session")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the locks that say which process may do what to the cluster."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module")
def module_turn(request: pytest.FixtureRequest, turns: Path) -> Iterator[None]:
    """For tests that share a job, or harm the cluster one after the other: none gets in between that must not."""
    if request.config.getoption("--stand-in"):
        yield
        return
    with schedule.turn(request.node, turns):
        yield


@pytest.fixture(autouse=True)
def own_turn(request: pytest.FixtureRequest, turns: Path) -> Iterator[None]:
    """A test runs while none does that would disturb it."""
    if request.config.getoption("--stand-in"):  # it has a cluster of its own
        made: ProcessCluster = request.getfixturevalue("stand_in")
        with nullcontext() if request.node.get_closest_marker("disruptive") else made.late_operators():
            yield
        assert made.take_broken() is None, "what a stand-in kubelet cannot do is in its log"
        return
    if schedule.shares_its_turn(request.node):
        request.getfixturevalue("module_turn")
        yield
        return
    with schedule.turn(request.node, turns):
        yield


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A cluster without machines, of this process alone."""
    made = ProcessCluster(tmp_path_factory.mktemp("cluster"))
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start()
            patch.setitem(kube.ENVIRONMENT, "KUBECONFIG", str(made.kubeconfig))
            patch.setattr(disruption, "machines", made)
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> None:
    """The API server answers and has the CRDs."""
    if request.config.getoption("--stand-in"):
        request.getfixturevalue("stand_in")
        return
    answer = run("kubectl", "get", "--request-timeout=10s", "crd", "elasticjobs.elasticjob.io", "--output=name")
    if answer.code:
        why = answer.errors.strip().splitlines()[-1]
        pytest.exit(f"the local cluster or its CRDs are missing; run `make install` first: {why}", 1)


@pytest.fixture(scope="session")
def operator(cluster: None) -> Namespace:
    """The operator runs; its namespace."""
    name, namespace = "deployment/elasticjob-operator", diagnosis.SYSTEM
    answer = namespace.try_kubectl("rollout", "status", name, "--timeout=150s")
    if answer.code:
        state = namespace.try_kubectl("get", "pods", "--output=wide").output
        pytest.exit(f"the operator is not ready; run `make install` first\n{answer.errors}{state}", 1)
    return namespace


@pytest.fixture
def namespace(cluster: None, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with new_namespace(request.node.name.removeprefix("test_")) as made:
        yield made


@pytest.fixture(scope="module")
def module_namespace(cluster: None, module_turn: None, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """For tests that leave it as it was."""
    with new_namespace(request.node.path.stem.removeprefix("test_")) as made:
        yield made


def runs_on(node: pytest.Item | pytest.Collector) -> tuple[str | None, str | None, Mapping[str, int]]:
    """The torch of a test's or a module's jobs, the node, since those without torch are out of the way of node faults,
    and the times: defaults where they are measured, and of silence where a node falls silent."""
    disruptive, whole = node.get_closest_marker("disruptive"), node.config.getoption("--whole")
    silent = node.get_closest_marker("fault") and disruptive and disruptive.args == ("nodes",)
    times = {} if whole else {"lastCallSeconds": STARTED_SECONDS} if silent else TIMES
    if node.config.getoption("--stand-in"):
        return None, None, times
    if whole or node.get_closest_marker("torchrun"):
        return NEWEST_TORCH, None, times
    return None, None if disruptive else CONTROL_PLANE, times


@pytest.fixture
def job(operator: Namespace, namespace: Namespace, request: pytest.FixtureRequest) -> Iterator[Job]:
    with new_job(namespace, "train", *runs_on(request.node)) as made:
        yield made


@pytest.fixture
def other(operator: Namespace, request: pytest.FixtureRequest) -> Iterator[Job]:
    """Another job, in a namespace of its own."""
    with new_namespace("other") as namespace, new_job(namespace, "train", *runs_on(request.node)) as made:
        yield made


@pytest.fixture(scope="module")
def queues(operator: Namespace, module_namespace: Namespace) -> Iterator[None]:
    """Kueue runs."""
    with kueue(module_namespace):
        yield


@pytest.fixture
def directory(job: Job) -> Iterator[None]:
    """For an example: what it saves, in a directory named as its namespace, goes with it."""
    yield
    run("docker", "exec", NODE, "rm", "-rf", f"{CHECKPOINTS}/{job.namespace.name}")


@pytest.fixture(scope="module")
def module_job(operator: Namespace, module_namespace: Namespace, request: pytest.FixtureRequest) -> Iterator[Job]:
    """A job of two workers that train, for all tests of a module, whose SHARED_JOB says more of it unless --whole."""
    with new_job(module_namespace, "train", *runs_on(request.node)) as made:
        whole = request.config.getoption("--whole")
        made.apply(replicas=2, maxReplicas=4, **({} if whole else getattr(request.module, "SHARED_JOB", {})))
        made.wait_for_round(2)
        made.wait_for_training(2)
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure's report what the cluster says about it; a test's time begins with its turn."""
    report = yield
    if report.when == "setup":
        report.duration -= schedule.take_waited()
    explain(report)
    if report.failed and (broken := getattr(disruption.machines, "broken", None)):
        report.sections.append(("kubelets", "".join(traceback.format_exception(broken))))
    if is_the_machines(report):
        run_again(item, report)
    return report
