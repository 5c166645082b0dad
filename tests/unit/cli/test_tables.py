# SPDX-License-Identifier: Apache-2.0
"""Texts and tables in a width: words stay whole, however narrow a terminal is."""

import pytest

from elasticjob_cli.output.tables import Paragraph, Part, Span, lines_of, table
from elasticjob_cli.output.views import history_view, list_view, status_view
from support.cli_jobs import ago, formed, pod

WIDE = 1000
HISTORY = [{"round": 4, "size": 2, "seconds": 3.0, "time": ago(90), "cause": "Scaled", "reason": "scaled from 1 to 2"}]
NODES = [{"node": "gpu-node-17.example.com", "failures": 1, "pod": "digits-4-0", "round": 2, "time": ago(60)}]
SEEN = formed([0, 1], spec={"replicas": 3}, pods=[pod(2)], history=HISTORY, nodeFailures=NODES, phase="Running")
VIEWS: dict[str, list[Part]] = {
    "list": list_view([SEEN, SEEN], everywhere=True, wide=True),
    "status": status_view(SEEN, {}, wide=True),
    "history": history_view(SEEN),
}


@pytest.mark.parametrize("width", [20, 35, 50, 80, 120])
@pytest.mark.parametrize("view", VIEWS)
def test_no_word_is_broken_and_none_is_lost(view: str, width: int) -> None:
    """Where a row becomes a block of lines the words above the columns are repeated."""
    wide, narrow = lines_of(VIEWS[view], WIDE), lines_of(VIEWS[view], width)
    words = {word for line in wide for word in line.split()}
    assert {word for line in narrow for word in line.split()} == words
    longest = max(map(len, words))
    assert all(len(line) <= max(width, longest + 20) for line in narrow)


def test_a_table_is_as_wide_as_its_words_where_there_is_room() -> None:
    made = table(["NAME", ">N", "WHY"], [("a", 10, "it is so"), ("longer", 2, None)])
    assert lines_of([made], WIDE) == ["NAME      N   WHY", "a        10   it is so", "longer    2   -"]


def test_the_widest_column_is_folded_first() -> None:
    made = table(["NAME", ">N", "WHY"], [("a", 10, "it is as it is")])
    assert lines_of([made], 20) == ["NAME    N   WHY", "a      10   it is as", "            it is"]


def test_a_row_that_does_not_fit_is_a_block() -> None:
    made = table(["NAME", "NODE"], [("digits-0-0", "gpu-node-1"), ("digits-1-0", "gpu-node-2")])
    assert lines_of([made], 20) == [
        "NAME   digits-0-0",
        "NODE   gpu-node-1",
        "",
        "NAME   digits-1-0",
        "NODE   gpu-node-2",
    ]


def test_a_table_may_go_without_the_words_above_its_columns() -> None:
    made = table(["A LONG NAME", "B"], [("a", "b")])
    assert lines_of([made], WIDE, headers=False) == ["a   b"]


def test_a_table_without_rows_is_its_columns() -> None:
    assert lines_of([table(["A", "B"], [])], WIDE) == ["A   B"]
    assert lines_of([table(["A", "B"], [])], WIDE, headers=False) == []


def test_a_style_goes_on_over_a_fold() -> None:
    text = Paragraph((Span("a", "bold"), Span(" bb cc dd ", "red"), Span("e")))
    assert lines_of([text], 7, colours=True) == [
        "\x1b[1ma\x1b[0m\x1b[31m bb cc\x1b[0m",
        "\x1b[31mdd \x1b[0me",
    ]
    assert lines_of([text], 7) == ["a bb cc", "dd e"]


def test_a_text_keeps_its_lines() -> None:
    assert lines_of([Paragraph.of("a\n\nb c"), Paragraph.of("")], 2) == ["a", "", "b", "c", ""]
