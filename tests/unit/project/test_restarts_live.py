# SPDX-License-Identifier: Apache-2.0
"""The figures of `make bench-restart` for processes that live through changes, and the pages' tables."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from restarts.pages import TABLES, Table, cells, of_file, put, show, with_range
from restarts.parts import Restart
from restarts.steps import BEGINS, DONE, Moment, change, longest_pause, parse, steps_redone
from restarts.table import Row, table, write

from e2e.trainer_log import FirstStep


def steps(process: str, in_round: int, *begun: tuple[int, float], takes: float = 0.1) -> list[Moment]:
    """A process that begins these steps at these moments, and has done each after `takes`."""
    return [
        one
        for step, at in begun
        for one in (
            Moment(at, process, BEGINS, step, in_round),
            Moment(at + takes, process, DONE, step, in_round),
        )
    ]


def broken(process: str, in_round: int, step: int, at: float) -> list[Moment]:
    """It begins a step, and its group breaks."""
    return [Moment(at, process, BEGINS, step, in_round)]


def test_moments_are_read_in_their_order_and_a_line_under_way_is_left_out() -> None:
    found = parse("b-7 12.5 done 3 1\na-7 11.25 begins 3 1\na-7 12.75 do")
    assert found == [Moment(11.25, "a-7", "begins", 3, 1), Moment(12.5, "b-7", "done", 3, 1)]


def test_nobody_took_a_step_until_the_first_of_any() -> None:
    moments = sorted(
        [
            *steps("a", 1, (0, 9.0), (1, 10.0)),
            *steps("b", 1, (0, 9.0)),
            *steps("a", 2, (1, 12.0)),
            *steps("c", 2, (1, 13)),
        ]
    )
    assert longest_pause(moments, 10.5, 13.1) == pytest.approx(2.0)


def test_a_pause_that_was_over_before_the_cause_or_begins_after_the_end_is_not_of_the_change() -> None:
    moments = steps("a", 1, (0, 0.0), (1, 5.0), (2, 6.0), (3, 7.0), (4, 20.0))
    assert longest_pause(moments, 5.5, 7.05) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (steps("a", 2, (5, 12.0), (6, 12.2)), 1),  # nobody had applied step 5
        (steps("a", 2, (6, 12.0), (7, 12.2)), 0),  # somebody had
        (steps("a", 2, (3, 12.0), (4, 12.2), (5, 12.4), (6, 12.6)), 3),  # all begin from an older state
    ],
    ids=["broken", "applied", "older"],
)
def test_steps_done_twice_are_those_that_an_earlier_round_had_begun(after: list[Moment], expected: int) -> None:
    before = [*steps("a", 1, (3, 9.0), (4, 9.2)), *steps("b", 1, (3, 9.0), (4, 9.2))]
    moments = sorted([*before, *broken("a", 1, 5, 9.9), *broken("b", 1, 5, 9.9), *after])
    assert steps_redone(moments, 10.0, 13.0) == expected
    assert steps_redone(moments, 10.0, 12.1) == expected, "the round has begun its first step"


def test_a_step_is_done_twice_by_the_group_not_by_each_of_its_members() -> None:
    again = [*steps("a", 2, (5, 12.0)), *steps("b", 2, (5, 12.0))]
    moments = sorted([*broken("a", 1, 5, 9.9), *broken("b", 1, 5, 9.9), *again])
    assert steps_redone(moments, 10.0, 13.0) == 1


def test_a_step_that_breaks_in_two_rounds_is_done_again_twice() -> None:
    moments = [*broken("a", 1, 5, 9.9), *broken("a", 2, 5, 11.0), *steps("a", 3, (5, 12.0))]
    assert steps_redone(moments, 10.0, 13.0) == 2


def test_change_ends_with_the_last_members_first_step() -> None:
    """Process b is killed; a trains on alone, and then with c, which comes in b's place."""
    moments = sorted(
        [
            *steps("a", 1, (0, 9.0), (1, 9.5)),
            *steps("b", 1, (0, 9.0), (1, 9.5)),
            *broken("a", 1, 2, 10.0),
            *steps("a", 2, (2, 10.5), (3, 11.0), (4, 11.5)),
            *steps("a", 3, (5, 12.0)),
            *steps("c", 3, (5, 12.0)),
        ]
    )
    group = {"a": FirstStep(12.1, 0, 2, {}), "c": FirstStep(12.2, 1, 2, {})}
    found = change(moments, group, 10.0)
    assert (found.steps_redone, found.lived) == (1, 1)
    assert (found.seconds, found.all_seconds) == pytest.approx((1.0, 2.2))


LIVED = Restart(0.25, {}, steps_redone=1, all_seconds=6.5, lived=2)


def rows_of(tmp_path: Path, rows: Iterable[Row]) -> list[dict[str, object]]:
    path = tmp_path / "rows.json"
    write(path, list(rows))
    found: list[dict[str, object]] = json.loads(path.read_text())
    return found


def test_file_has_the_steps_done_twice(tmp_path: Path) -> None:
    assert rows_of(tmp_path, [Row("pod-deleted", "live", 90, [LIVED, None])]) == [
        {
            "cause": "pod-deleted",
            "side": "live",
            "deadline_seconds": 90,
            "seconds": [0.25, None],
            "steps_redone": [1, None],
            "all_seconds": [6.5, None],
            "lived": [2, None],
        }
    ]


def test_table_has_the_most_steps_that_were_done_twice() -> None:
    fewer = replace(LIVED, steps_redone=0)
    shown = re.split("  +", table([Row("drain", "live", 90, [LIVED, fewer])]).splitlines()[1])
    assert shown[:6] == ["drain", "live", "2", "0.25 (0.25 to 0.25)", "1", "6.50"]


PAGE = """\
# Figures

| cause | live | kept by hand |
|---|---|---|
| a pod is deleted | 9.9 | because |
| a node stands still | 8.8 | why not |

The text goes on.
"""


@pytest.fixture
def page(tmp_path: Path) -> Table:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    lines = {"a pod is deleted": "pod-deleted", "a node stands still": "node-lost"}
    return Table(path, "| cause | live | kept by hand |", {"live": ("live", with_range)}, lines)


def test_page_gets_what_was_measured_and_keeps_the_rest(
    page: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("restarts.pages.TABLES", [page])
    late = Restart(0.35, {}, steps_redone=0, all_seconds=7, lived=2)
    found = of_file(rows_of(tmp_path, [Row("pod-deleted", "live", 90, [LIVED, LIVED, late])]))
    put(found)
    assert page.page.read_text() == PAGE.replace("9.9", "0.25 (0.25 to 0.35)")
    assert "0.25 (0.25 to 0.35)" in next(show(found))


def test_page_without_the_table_is_named(page: Table) -> None:
    with pytest.raises(ValueError, match=r"page\.md has no table with the header '\| cause"):
        list(page.filled("# Figures\n", {}))


@pytest.mark.parametrize("table_", TABLES, ids=lambda one: one.header[:40])
def test_pages_have_the_tables_and_all_of_their_lines(table_: Table) -> None:
    shown = [cells(line)[0] for line in table_.filled(table_.page.read_text(), {})]
    assert set(table_.lines) == set(shown[2:])
    assert set(table_.columns) <= set(cells(table_.header))
