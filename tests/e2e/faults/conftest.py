# SPDX-License-Identifier: Apache-2.0
"""Each test of this folder is a row of the table of faults."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from e2e.conftest import runs_on
from e2e.faults.fault import Fault, Row
from e2e.faults.table import PROPERTY
from e2e.history import violations
from e2e.job import Job
from e2e.kube import Namespace
from e2e.scene import new_job, new_namespace

ROW = pytest.StashKey[Row]()
SLACK = 30.0  # a guard must not flake: without --whole, so many seconds more are as good


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A fault that is `warm` befalls two jobs, one whose processes start fresh and a warm one: with --whole, or where
    torchrun runs in a job that the module has already."""
    marker, fixtures = metafunc.definition.get_closest_marker("fault"), metafunc.fixturenames
    shared = "fault_of_two" in fixtures and metafunc.definition.get_closest_marker("torchrun")
    if marker and marker.kwargs.get("warm") and (shared or metafunc.config.getoption("--whole")):
        # agent.py, which stands in for torchrun on a cluster without machines, starts nothing warm
        usual = not metafunc.config.getoption("--stand-in")
        variants = [pytest.param(warm, marks=() if warm is usual else pytest.mark.extended) for warm in (False, True)]
        metafunc.parametrize("warm", variants, ids=["fresh", "warm"])


@pytest.fixture
def warm() -> bool:
    return False


def new_fault(job: Job, request: pytest.FixtureRequest, warm: bool = False) -> Iterator[Fault]:
    marker, whole = request.node.get_closest_marker("fault"), request.config.getoption("--whole")
    row = request.node.stash[ROW] = Row(*marker.args)
    yield Fault(job, row, marker.kwargs.get("told"), slack=0.0 if whole else SLACK, whole=whole, warm=warm)
    row.rounds_after = len(job.rounds())
    assert violations(job) == []


@pytest.fixture
def fault(job: Job, request: pytest.FixtureRequest, warm: bool) -> Iterator[Fault]:
    """A fault of a job of its own."""
    yield from new_fault(job, request, warm)


@pytest.fixture
def begin_with_two(request: pytest.FixtureRequest) -> Callable[..., Fault]:
    """Begins a fault of two workers that train: with --whole in a job of its own, with these settings, else in the
    module's. The test uses the fixture `warm`."""

    def begin(**settings: Any) -> Fault:
        if request.config.getoption("--whole"):
            fault: Fault = request.getfixturevalue("fault")
            fault.start(2, **settings)
        else:
            fault = request.getfixturevalue("shared_fault")
            fault.join()
        return fault

    return begin


@pytest.fixture
def shared_fault(request: pytest.FixtureRequest, warm: bool) -> Iterator[Fault]:
    """One of several faults, one after the other, of a job that none of them may end."""
    yield from new_fault(request.getfixturevalue("warm_module_job" if warm else "module_job"), request, warm)


@pytest.fixture(scope="module")
def warm_module_job(operator: Namespace, module_turn: None, request: pytest.FixtureRequest) -> Iterator[Job]:
    """As `module_job`, and its processes start warm when they can: no fault waits until they are prestarted."""
    with (
        new_namespace(f"{request.node.path.stem.removeprefix('test_')}-warm") as namespace,
        new_job(namespace, "train", *runs_on(request.node)) as made,
    ):
        made.apply(replicas=2, maxReplicas=4, warmRestart="Enabled", **request.module.SHARED_JOB)
        made.wait_for_round(2)
        made.wait_for_training(2)
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if row := item.stash.get(ROW, None):
        report.user_properties.append((PROPERTY, row.as_json()))
    return report
