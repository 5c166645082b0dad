# SPDX-License-Identifier: Apache-2.0
"""The figures of `make bench-c10d-cluster`: read from the script's log, and put together."""

import json
import math
import re
from pathlib import Path

import pytest
from cluster_rounds.table import Figure, Row, median, table, tables, write

from e2e.trainer_log import TrainerLog

LOG = """\
2026-11-21T18:12:12.000Z started: world_size=3 resuming from epoch 0
2026-11-21T18:12:12.400Z epoch 1/60 world_size=3 loss=2.2536 test_accuracy=0.550
2026-11-21T18:12:12.600Z epoch 2/60 world_size=3 loss=2.0515 test_accuracy=0.789
2026-11-21T18:12:19.000Z elasticjob: round 2: rank 0 of 4
2026-11-21T18:12:25.000Z started: world_size=4 resuming from epoch 2
2026-11-21T18:12:26.000Z [rank0]:   File "/app/train.py", line 77, in train_epoch
2026-11-21T18:12:27.500Z started: world_size=3 resuming from epoch 2
2026-11-21T18:12:28.000Z epoch 3/60 world_size=3 loss=1.9000 test_accuracy=0.800
"""
NOON = TrainerLog.parse("2026-11-21T18:12:00Z noon").lines[0].at


def row(*, ours: list[float | None], c10d: list[float | None]) -> Row:
    """Our agents agree after a second, c10d's three seconds before they train."""
    made = Row("scale-up", 180)
    for mine, other in zip(ours, c10d, strict=True):
        made.add("ours", mine and Figure(trained=mine, agreed=1))
        made.add("c10d_default", other and Figure(trained=other, agreed=other - 3))
    return made


def test_groups_are_those_that_rank_0_started_whether_or_not_they_trained() -> None:
    groups = TrainerLog.parse(LOG).groups()
    assert [(one.started - NOON, one.world_size, one.trained) for one in groups] == [
        (12, 3, True),
        (25, 4, False),
        (27.5, 3, True),
    ]
    assert [round(one.first_epoch - NOON, 3) for one in groups] == [12.4, math.inf, 28]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([5.0], 5), ([9.0, 4.0, 5.0], 5), ([5.0, None, 7.0], 7), ([5.0, None, None], math.inf), ([5.0, None], math.inf)],
)
def test_late_run_took_longer_than_any_other(values: list[float | None], expected: float) -> None:
    assert median(values) == expected


def test_table_has_median_range_and_ratio() -> None:
    lines = table([row(ours=[4.0, 5.0, 9.0], c10d=[80.0, 90.0, 100.0])], "trained").splitlines()
    assert re.split("  +", lines[0]) == ["event", "runs", "ours", "c10d default", "c10d default/ours"]
    assert re.split("  +", lines[1]) == ["scale-up", "3", "5.0 s (4.0 to 9.0)", "90.0 s (80.0 to 100.0)", "18.0"]


def test_table_of_the_rendezvous_alone() -> None:
    assert table([row(ours=[4.0], c10d=[8.0])], "agreed").endswith("1.0 s (1.0 to 1.0)  5.0 s (5.0 to 5.0)  5.0")


def test_table_says_what_was_not_reached() -> None:
    some, most = row(ours=[5.0, 5.0, 5.0], c10d=[40.0, 50.0, None]), row(ours=[5.0, 5.0], c10d=[40.0, None])
    assert "50.0 s (40.0 to not in 180)" in table([some], "trained")
    assert table([some], "trained").endswith("10.0")
    assert "not in 180 s (40.0 to not in 180)" in table([most], "trained")
    assert table([most], "trained").endswith("> 36")


def test_table_has_no_ratio_to_a_run_of_ours_that_was_late() -> None:
    assert table([row(ours=[None], c10d=[40.0])], "trained").endswith("-")


def test_file_has_each_run_and_no_ratio_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    write(path, [row(ours=[5.0], c10d=[None])])
    assert json.loads(path.read_text()) == [
        {
            "event": "scale-up",
            "deadline_seconds": 180,
            "ours_seconds": [5.0],
            "c10d_default_seconds": [None],
            "c10d_default_ratio_median": None,
            "ours_agreed_seconds": [1],
            "c10d_default_agreed_seconds": [None],
            "c10d_default_agreed_ratio_median": None,
        }
    ]
    assert row(ours=[None], c10d=[40.0]).as_json()["c10d_default_ratio_median"] is None
    assert row(ours=[4.0], c10d=[8.0]).as_json()["c10d_default_agreed_ratio_median"] == 5


def test_file_keeps_other_events_and_older_runs_until_there_are_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    other = Row("pod-deleted", 180)
    other.add("ours", Figure(4, 1))
    write(path, [row(ours=[5.0], c10d=[6.0]), other])
    write(path, [row(ours=[7.0], c10d=[8.0]), Row("pod-deleted", 180)])
    found = {one["event"]: one["ours_seconds"] for one in json.loads(path.read_text())}
    assert found == {"scale-up": [7], "pod-deleted": [4]}


def test_tables_leave_out_what_an_interrupt_left_without_a_run() -> None:
    assert "pod-deleted" not in tables([row(ours=[5.0], c10d=[6.0]), Row("pod-deleted", 180)])
    assert tables([Row("pod-deleted", 180)]) == "no run was whole"


def test_a_progress_bar_in_the_log() -> None:
    """Its carriage returns part a line in several."""
    log = TrainerLog.parse("2026-11-21T18:12:12.000Z \rWriting: 0%\rWriting: 100%\n2026-11-21T18:12:13.000Z saved\n")
    assert [line.text for line in log.lines] == ["", "saved"]
    assert log.when("saved") == NOON + 13
