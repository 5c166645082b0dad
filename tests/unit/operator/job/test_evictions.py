# SPDX-License-Identifier: Apache-2.0
"""How long pods are kept from eviction, and how many of them: never fewer than can be ready."""

from typing import Any

import pytest

from elasticjob.spec import DrainSpec
from elasticjob_operator.job.evictions import SETTLE_SECONDS, Budget, Evictions, MinAvailable, budget_of, still_there
from support.operator_objects import job, pod, view_of
from support.statuses import FORMED, report

GOING = "2026-01-02T03:04:05Z"


def test_the_grace_counts_from_when_the_first_was_seen_that_is_still_there() -> None:
    spec = DrainSpec(grace_seconds=10)
    since = still_there({}, [(0, 0), (1, 0)], 5.0)
    assert since == {(0, 0): 5.0, (1, 0): 5.0}
    since = still_there(since, [(0, 0)], 9.0)
    assert since == {(0, 0): 5.0}
    assert [budget_of(spec, since, now, watched=True) for now in (14.9, 15.0)] == [Budget.CLOSED, Budget.OPEN]
    assert budget_of(spec, {}, 99.0, watched=True) is Budget.CLOSED


def test_after_a_take_over_it_falls_from_the_budgets_own_number_after_a_while() -> None:
    least = MinAvailable().following(1, 10.0).resumed(3, 10.0)
    assert least.settles_in(1, 10.0) == SETTLE_SECONDS
    seen = [least.following(1, now).pods for now in (10.0, 9.9 + SETTLE_SECONDS, 10.0 + SETTLE_SECONDS)]
    assert seen == [3, 3, 1]
    assert least.resumed(0, 20.0) == least.resumed(3, 20.0) == least, "it is no news"


@pytest.mark.parametrize(
    ("spec", "watched", "idle"),
    [
        (DrainSpec(grace_seconds=0), True, False),
        (DrainSpec(taints=()), True, False),
        (DrainSpec(), False, False),
        (DrainSpec(), True, True),
    ],
)
def test_there_is_no_budget_where_no_drain_would_be_seen_or_nobody_is_to_wait(
    spec: DrainSpec, watched: bool, idle: bool
) -> None:
    assert budget_of(spec, {}, 0.0, watched=watched, idle=idle) is Budget.NONE


def test_it_grows_at_once_and_falls_when_fewer_have_been_there_for_a_while() -> None:
    least = MinAvailable()
    seen = []
    for now, there in ((0.0, 2), (1.0, 3), (2.0, 2), (SETTLE_SECONDS, 2), (1.0 + SETTLE_SECONDS, 2)):
        least = least.following(there, now)
        seen.append(least.pods)
    assert seen == [2, 3, 3, 3, 2]


def test_the_wait_begins_anew_when_as_many_were_there_again() -> None:
    """As of a job whose pods go and come: nothing is written for each."""
    least = MinAvailable().following(3, 0.0).following(2, 1.0).following(3, 50.0)
    assert least.following(2, SETTLE_SECONDS).pods == 3
    assert least.settles_in(2, 70.0) == pytest.approx(50.0 + SETTLE_SECONDS - 70.0)
    assert least.settles_in(3, 70.0) is None


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"phase": "Pending"}, True),
        ({"phase": "Succeeded"}, False),
        ({"phase": "Failed"}, False),
        ({"deletionTimestamp": GOING}, False),
        ({"ownerReferences": []}, True),
        ({"uid": "an earlier job's"}, False),
    ],
)
def test_what_can_be_ready_counts_whoever_owns_it_and_no_other_jobs(changes: dict[str, Any], counts: bool) -> None:
    body = pod(0, phase=changes.get("phase", "Running"))
    body["metadata"] |= {key: value for key, value in changes.items() if key not in ("phase", "uid")}
    of = job()
    of["metadata"] |= {"uid": changes["uid"]} if "uid" in changes else {}
    evictions = Evictions(watched=True)
    evictions.follow(report(FORMED, job=of, view=view_of(of, {"digits-0-0": body})), 1, 0.0)
    assert evictions.min_available.pods == 1 + counts
