# SPDX-License-Identifier: Apache-2.0
"""The list of concerns, and what one of them finds for the next."""

import pkgutil
from importlib import import_module
from typing import Any, cast

from elasticjob_operator import actions, job
from elasticjob_operator.actions.access import Access
from elasticjob_operator.actions.gang import Gang
from elasticjob_operator.actions.sidecar_questions import SidecarQuestions
from elasticjob_operator.concerns import concerns_of
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.evictions import Evictions
from elasticjob_operator.job.round_clocks import RoundClocks
from elasticjob_operator.job.stalls import Hang
from elasticjob_operator.job.starts import StartFound
from support.statuses import FORMED, report

NONE = cast(Any, None)


def test_no_concern_is_left_out_of_the_list_or_asked_twice() -> None:
    for package in (actions, job):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    there = [one for one in Concern.__subclasses__() if one.__module__.startswith("elasticjob_operator.")]
    gang, access = Gang(NONE, NONE, NONE, NONE), Access(NONE, NONE, network_policy=False)
    listed = concerns_of(SidecarQuestions(NONE), RoundClocks(0.0), gang, Evictions(watched=True), access)
    assert sorted(type(one).__name__ for one in listed) == sorted(one.__name__ for one in there)


def test_a_fact_takes_the_place_of_the_one_before_and_of_no_other() -> None:
    made = report(FORMED)
    assert made.of(Hang) == Hang()
    after = made.noting(Hang(stalled=2)).noting(StartFound(3)).noting(Hang(stalled=3), now="later")
    assert (after.of(Hang), after.of(StartFound), after.now) == (Hang(stalled=3), StartFound(3), "later")
    assert made.of(Hang) == Hang(), "the report before stays as it was"
