"""Each test of this folder is a row of the table of faults."""

from collections.abc import Generator, Iterator

import pytest

from e2e.faults.fault import Fault, Row
from e2e.faults.table import PROPERTY
from e2e.history import violations
from e2e.job import Job

ROW = pytest.StashKey[Row]()
SLACK = 30.0  # a guard must not flake: without --whole, so many seconds more are as good


def new_fault(job: Job, request: pytest.FixtureRequest) -> Iterator[Fault]:
    marker, whole = request.node.get_closest_marker("fault"), request.config.getoption("--whole")
    row = request.node.stash[ROW] = Row(*marker.args)
    yield Fault(job, row, marker.kwargs.get("told"), slack=0.0 if whole else SLACK, whole=whole)
    row.rounds_after = len(job.rounds())
    assert violations(job) == []


@pytest.fixture
def fault(job: Job, request: pytest.FixtureRequest) -> Iterator[Fault]:
    """A fault of a job of its own."""
    yield from new_fault(job, request)


@pytest.fixture
def shared_fault(module_job: Job, request: pytest.FixtureRequest) -> Iterator[Fault]:
    """One of several faults, one after the other, of a job that none of them may end."""
    yield from new_fault(module_job, request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if row := item.stash.get(ROW, None):
        report.user_properties.append((PROPERTY, row.as_json()))
    return report
