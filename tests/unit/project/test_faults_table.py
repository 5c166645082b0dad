# SPDX-License-Identifier: Apache-2.0
"""The table of `make faults`, in which a fault of a fresh and of a warm job is one row."""

from dataclasses import replace

import pytest

from e2e.faults import readme
from e2e.faults.fault import Row
from e2e.faults.table import merged, table

FRESH = Row("pod-deleted", survivors_told_seconds=0.2, new_round_seconds=4, first_step_seconds=9, ok=True)
WARM = Row("pod-deleted", survivors_told_seconds=0.3, new_round_seconds=5, first_step_warm_seconds=6, ok=True)


def test_one_row_has_both_figures() -> None:
    (row,) = merged([FRESH, WARM])
    assert (row.first_step_seconds, row.first_step_warm_seconds, row.new_round_seconds) == (9, 6, 4)
    assert row.ok
    assert "0.20 s     4.00 s      9.00 s   6.00 s" in list(table([row]))[1]


def test_row_is_right_if_both_are() -> None:
    failed = Row("pod-deleted", ok=False)
    assert [row.ok for row in merged([FRESH, failed])] == [False]
    assert [row.ok for row in merged([failed, FRESH])] == [False]


def test_rows_of_other_events_stay_apart() -> None:
    other = Row("scale-up", first_step_seconds=3)
    assert merged([FRESH, other]) == [FRESH, other]


ALL = [Row(event, ok=True, detail="another operator led after 0.6 s") for event in readme.ROWS]


def with_row(row: Row) -> list[dict[str, object]]:
    return [(row if one.event == row.event else one).as_json() for one in ALL]


def test_readme_has_the_seconds_to_the_first_step_fresh_and_warm() -> None:
    deleted = replace(FRESH, first_step_warm_seconds=6)
    printed = list(readme.lines(with_row(deleted)))
    assert "| 0.2 s | 9.0 s | 6.0 s |" in next(line for line in printed if line.startswith("| a pod is deleted |"))
    assert "| training goes on; another operator led after 0.6 s |  |  |  |" in "".join(printed)
    assert len(printed) == 2 + len(readme.ROWS)


@pytest.mark.parametrize("row", [FRESH, WARM, replace(FRESH, first_step_warm_seconds=6, ok=False)])
def test_readme_takes_no_half_or_failed_row(row: Row) -> None:
    with pytest.raises(ValueError, match=r"failed in .* or only fresh or warm: pod-deleted$"):
        list(readme.lines(with_row(row)))


def test_readme_takes_no_row_that_it_has_no_words_for() -> None:
    with pytest.raises(ValueError, match=r"readme\.py: something-new$"):
        list(readme.lines([row.as_json() for row in [*ALL, Row("something-new")]]))
