# SPDX-License-Identifier: Apache-2.0
"""When a formed round trains, and until when its processes only start."""

from dataclasses import replace
from typing import Any

import pytest

from elasticjob.api import ElasticJobStatus, Progress
from elasticjob_operator.job.starts import LONGEST_SECONDS, UNKNOWN, StartFound, start_of
from support.operator_objects import job, record, view_of
from support.statuses import FORMED, report, status

AT = "2026-01-02T03:%s:00Z"


def formed(**more: Any) -> ElasticJobStatus:
    """Round 3 has just been formed."""
    return status(FORMED, formed_after=1.0, now=AT % "00").model_copy(update=more)


def look(
    before: ElasticJobStatus, minute: str = "01", known: StartFound = UNKNOWN, **said: Any
) -> tuple[StartFound, ElasticJobStatus]:
    """What is found at that time, and the status that says it."""
    of_rank_0 = record(1, 2, id="b")
    of_rank_0["status"] |= said
    view = view_of(job(), records={"digits-1-2": of_rank_0})
    found = start_of(report(FORMED, before, view=view, now=AT % minute), known)
    return found, status(FORMED, before, facts=[found])


def test_a_round_that_is_formed_starts() -> None:
    found, after = look(formed(), connected=2, stepped=2)
    assert (found.starting, found.again) == (True, LONGEST_SECONDS - 60)
    assert (after.starting, after.history[-1].started) == (True, None)


@pytest.mark.parametrize(
    ("said", "how"),
    [({"connected": 3}, "all its processes are in its group"), ({"stepped": 3}, "its first step is done")],
)
def test_it_trains_when_that_is_told(said: dict[str, int], how: str) -> None:
    found, after = look(formed(), **said)
    assert (after.starting, after.history[-1].started) == (False, 60)
    (event,) = found.events
    assert (event.reason, event.message) == ("TrainingStarted", f"round 3 trains, 60 s after it was formed: {how}")
    assert look(after, "02", found, **said) == (StartFound(3), after), "nothing more comes of it"


def test_where_scripts_report_steps_the_first_one_counts() -> None:
    before = formed(progress=Progress(step=7))
    assert look(before, connected=3)[0].starting
    assert not look(before, connected=3, stepped=3)[0].starting


def test_what_was_found_stays_until_it_is_written_and_is_announced_once() -> None:
    found, _ = look(formed(), connected=3)
    later, after = look(formed(), "02", found, connected=3)
    assert (after.history[-1].started, later.events) == (60, ())


def test_where_nothing_tells_it_counts_as_training_after_a_while() -> None:
    found, after = look(formed(), "10")
    assert (found.events, after.starting, after.history[-1].started) == ((), False, None)
    assert look(after, "11", connected=3)[1] == after, "and a new leader sees no start in it"


def test_a_round_that_ended_starts_no_more() -> None:
    found, _ = look(formed())
    ended = status(replace(FORMED, phase="Forming", round=4), formed(), facts=[found])
    assert not ended.starting
