# SPDX-License-Identifier: Apache-2.0
"""How far the training is: whose word counts, how it reads."""

from dataclasses import replace
from typing import Any

import pytest

from elasticjob.api import Progress
from elasticjob.rendezvous import Member, State
from elasticjob_operator.job.progress import progress_of
from elasticjob_operator.job.view import JobView
from support.operator_objects import ID, job, record, view_of
from support.statuses import FORMED

STATE = replace(FORMED, participants=(Member(1, ID), Member(0, "0" * 32)), replacements={1: 2}, leaving=(), finished=())
SHOWN = Progress(step=7, total=9, metrics={"loss": 0.5}, summary="7/9")


def said(index: int, number: int, id: str = ID, **progress: Any) -> dict[str, Any]:
    found = record(index, number, id=id)
    found["status"] |= progress
    return found


def view(*records: dict[str, Any]) -> JobView:
    return view_of(job(), records={one["metadata"]["name"]: one for one in records})


def test_it_is_what_rank_0s_worker_says() -> None:
    seen = view(said(1, 2, step=7, total=9, metrics={"loss": 0.5}), said(0, 0, id="0" * 32, step=3))
    assert progress_of(seen, STATE, None) == SHOWN


@pytest.mark.parametrize(
    "records",
    [
        (),
        (said(1, 2),),  # nothing reported yet
        (said(1, 1, step=3),),  # of a pod that was given up
        (said(1, 2, id="f" * 32, step=3),),  # of another incarnation
        (said(1, 2, step=-1),),
    ],
)
def test_it_stays_while_rank_0_says_nothing(records: tuple[dict[str, Any], ...]) -> None:
    assert progress_of(view(*records), STATE, SHOWN) == SHOWN
    assert progress_of(view(*records), State(clocks=STATE.clocks), None) is None


@pytest.mark.parametrize(
    ("reported", "summary"),
    [({"step": 7}, "7"), ({"step": 0, "total": 9}, "0/9"), ({"total": 9}, ""), ({"metrics": {"loss": 1.0}}, "")],
)
def test_step_and_total_are_one_word(reported: dict[str, Any], summary: str) -> None:
    found = progress_of(view(said(1, 2, **reported)), STATE, None)
    assert found is not None
    assert found.summary == summary
