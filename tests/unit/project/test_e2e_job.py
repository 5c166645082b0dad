# SPDX-License-Identifier: Apache-2.0
"""How tests of the cluster and of torch wait for a job."""

from types import SimpleNamespace
from typing import cast

import pytest

from contract import plane
from e2e.job import Job
from support.operator_objects import Object
from support.waiting import Deadline


class JobOfStatus(Job):
    """A job of which only the conditions are known."""

    name = "digits"

    def __init__(self, **status: str) -> None:
        self._conditions = [{"type": type, "status": value} for type, value in status.items()]

    @property
    def status(self) -> Object:
        return {"conditions": self._conditions}

    def summary(self) -> str:
        return "nothing"


@pytest.mark.parametrize(
    ("status", "error"),
    [({}, Deadline), ({"Complete": "False"}, Deadline), ({"Complete": "True"}, AssertionError)],
    ids=["new", "running", "complete"],
)
def test_what_a_job_lacks_that_has_ended_is_no_matter_of_time(status: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"waited 0 s for condition Failed=True .*last seen: nothing"):
        JobOfStatus(**status).wait_for_condition("Failed", seconds=0)


@pytest.mark.parametrize(("phase", "error"), [("Forming", Deadline), ("Closed", AssertionError)])
def test_so_it_is_for_a_job_of_the_contract_tests(phase: str, error: type[Exception]) -> None:
    view = {"version": 1, "job": {"status": {"rendezvous": {"phase": phase}}}, "pods": [], "workers": {}}
    job = plane.Job(cast(plane.Plane, SimpleNamespace(call=lambda *_, **__: view)), "digits")
    with pytest.raises(error, match="waited 0 s for round 2 to be Formed"):
        job.formed(2, seconds=0)
