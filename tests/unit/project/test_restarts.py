# SPDX-License-Identifier: Apache-2.0
"""The figures of `make bench-restart`: the first step of a new group, the parts before it, and how they are shown."""

import json
import math
import re
from pathlib import Path

import pytest
from restarts.parts import Restart, new_group, restart, split
from restarts.table import Row, median, table, write

from e2e.trainer_log import TrainerLog

NOON = TrainerLog.parse("2026-11-22T12:00:00Z noon").lines[0].at
STEP = "first step: group 0.100 s, data and checkpoint 0.300 s, step 0.050 s"


def log(*lines: tuple[float, str]) -> TrainerLog:
    """Of lines and the seconds after noon when they were printed."""
    return TrainerLog.parse("".join(f"2026-11-22T12:00:{at:09.6f}Z {text}\n" for at, text in lines))


def survivor(
    rank: int, size: int, *, told: float = 1, stopped: float = 2, agreed: float = 4, step: float = 5
) -> TrainerLog:
    return log(
        (told, "I1122 api.py:961] [default] Detected 1 new nodes from group_rank=0; will restart worker group"),
        (stopped, "I1122 api.py:706] [default] Rendezvous'ing worker group"),
        (agreed, "I1122 api.py:552] [default] Rendezvous complete for workers. Result:"),
        (step, f"rank {rank} of {size}: {STEP}"),
    )


def newcomer(rank: int, size: int, *, joined: float, agreed: float = 4, step: float = 5) -> TrainerLog:
    return log(
        (joined, "I1122 api.py:706] [default] Rendezvous'ing worker group"),
        (agreed, "I1122 api.py:552] [default] Rendezvous complete for workers. Result:"),
        (step, f"rank {rank} of {size}: {STEP}"),
    )


def of(logs: dict[str, TrainerLog], survivors: list[str], cause: float = 0.5) -> Restart:
    group = new_group(logs, len(logs), NOON + cause)
    assert group is not None
    return restart(logs, group, survivors, NOON + cause)


def test_first_step_is_read_with_its_parts() -> None:
    (step,) = log((5, f"rank 2 of 3: {STEP}")).first_steps()
    assert (step.rank, step.world_size, step.at - NOON) == (2, 3, 5)
    assert step.parts == {"group": 0.1, "data and checkpoint": 0.3, "step": 0.05}


def test_of_a_framework_rank_0s_word_that_it_has_started_is_the_first_step() -> None:
    """It trains, too, or the group may have failed at once."""
    lines = [
        (1.0, "I1122 api.py:961] [default] will restart worker group"),
        (1.5, "I1122 api.py:706] [default] Rendezvous'ing worker group"),
        (2.0, "I1122 api.py:552] [default] Rendezvous complete for workers. Result:"),
        (2.1, "elasticjob: training process 0 starts warm: prestarted for 9 s, 1820 modules"),
        (3.0, "started: world_size=2 resuming from step 10"),
    ]
    other = log((0.0, "started: world_size=2 resuming from step 0"), (0.2, "step 5/9 world_size=2 saved"))
    assert new_group({"a": log(*lines), "b": other}, 2, NOON + 0.5) is None
    found = of({"a": log(*lines, (4.0, "step 15/600 world_size=2 saved")), "b": other}, ["a", "b"])
    assert (found.seconds, found.warm) == (2.5, 1)
    assert found.parts == pytest.approx({"told": 0.5, "stopped": 0.5, "agreed": 0.5, "process": 1.0})


def test_processes_are_prestarted_for_one_round() -> None:
    lines = [(1.0, "elasticjob: round 1: rank 0 of 2"), (2.0, "elasticjob: prestarted for the next round: processes 1")]
    assert not log(*lines[:1]).is_prestarted()
    assert log(*lines).is_prestarted()
    assert not log(*lines, (3.0, "elasticjob: round 2: rank 0 of 3")).is_prestarted()


def test_group_is_new_once_every_rank_has_taken_a_step() -> None:
    before = (0.1, f"rank 1 of 2: {STEP}")
    logs = {"a": log((5, f"rank 0 of 2: {STEP}")), "b": log(before)}
    assert new_group(logs, 2, NOON + 0.5) is None
    logs["b"] = log(before, (5.1, f"rank 1 of 2: {STEP}"))
    group = new_group(logs, 2, NOON + 0.5)
    assert group is not None
    assert {pod: round(step.at - NOON, 3) for pod, step in group.items()} == {"a": 5, "b": 5.1}
    assert new_group(logs, 3, NOON + 0.5) is None


def test_of_a_group_that_failed_before_it_was_whole_nothing_counts() -> None:
    """Pod a took a step as rank 0, and then as rank 1 of a group that became whole."""
    logs = {
        "a": log((3, f"rank 0 of 2: {STEP}"), (9, f"rank 1 of 2: {STEP}")),
        "b": log((9.1, f"rank 0 of 2: {STEP}")),
    }
    group = new_group(logs, 2, NOON)
    assert group is not None
    assert {pod: (step.rank, round(step.at - NOON, 3)) for pod, step in group.items()} == {"a": (1, 9), "b": (0, 9.1)}


def test_parts_end_with_the_last_member_and_add_up() -> None:
    found = of({"a": survivor(0, 2, told=1, stopped=2), "b": survivor(1, 2, told=1.5, stopped=1.8)}, ["a", "b"])
    assert found.seconds == pytest.approx(4.5)
    assert found.from_join is None
    assert found.parts == pytest.approx(
        {
            "told": 1,
            "stopped": 0.5,
            "agreed": 2,
            "process": 0.55,
            "group": 0.1,
            "data and checkpoint": 0.3,
            "step": 0.05,
        }
    )
    assert sum(found.parts.values()) == pytest.approx(found.seconds)


@pytest.mark.parametrize(
    ("joined", "order"),
    [(0.8, ["joined", "told", "stopped", "agreed"]), (3, ["told", "stopped", "joined", "agreed"])],
    ids=["grown", "replaced"],
)
def test_newcomer_joins_before_the_others_are_told_or_after(joined: float, order: list[str]) -> None:
    found = of({"a": survivor(0, 2), "b": newcomer(1, 2, joined=joined)}, ["a"])
    assert list(found.parts)[:4] == order
    assert found.from_join == pytest.approx(5 - joined)
    assert sum(found.parts.values()) == pytest.approx(4.5)


def test_a_newcomer_joins_when_it_has_waited_for_its_processes() -> None:
    waited = log((3.5, "elasticjob: asking for the next round, after 2.7 s"))
    late = TrainerLog(tuple(sorted((*newcomer(1, 2, joined=0.8).lines, *waited.lines))))
    assert of({"a": survivor(0, 2), "b": late}, ["a"]).from_join == pytest.approx(1.5)


def test_what_no_log_shows_is_in_the_next_part() -> None:
    """An agent that died says nothing of being told."""
    found = of({"a": newcomer(0, 2, joined=3), "b": newcomer(1, 2, joined=2)}, ["a", "b"])
    assert list(found.parts) == ["agreed", "process", "group", "data and checkpoint", "step"]
    assert found.parts["agreed"] == pytest.approx(3.5)


def test_what_was_printed_before_the_cause_is_no_part_of_it() -> None:
    earlier = survivor(0, 2, told=0.1, stopped=0.2, agreed=0.3, step=0.4).lines
    logs = {"a": TrainerLog(earlier + survivor(0, 2).lines), "b": survivor(1, 2)}
    assert of(logs, ["a", "b"]).parts["told"] == pytest.approx(0.5)


def test_last_rendezvous_before_the_step_counts() -> None:
    """A group that failed took its time, which is that of agreeing."""
    again = log((1.5, "[default] Rendezvous complete for workers. Result:")).lines
    logs = {"a": TrainerLog(tuple(sorted(survivor(0, 2).lines + again))), "b": survivor(1, 2)}
    assert of(logs, ["a", "b"]).parts["agreed"] == pytest.approx(2)


def test_warm_members_are_counted() -> None:
    said = log((4.2, "elasticjob: training process 0 starts warm: prestarted for 12 s, 1912 modules")).lines
    logs = {"a": TrainerLog(tuple(sorted(survivor(0, 2).lines + said))), "b": survivor(1, 2)}
    assert of(logs, ["a", "b"]).warm == 1


def test_a_part_that_ended_before_the_one_ahead_of_it_took_no_time() -> None:
    assert split(10, {"told": 12, "joined": 11, "agreed": 13}) == {"told": 2, "joined": 0, "agreed": 1}


def row(side: str, *runs: Restart | None, cause: str = "scale-up") -> Row:
    return Row(cause, side, 120, list(runs))


def test_table_has_median_range_join_and_parts() -> None:
    runs = [Restart(seconds, {"told": 0.2, "step": seconds - 0.2}, seconds - 1) for seconds in (2.0, 3.0, 5.0)]
    late = row("c10d_default", None, Restart(90, {"told": 1}, None), cause="scale-down")
    lines = [re.split("  +", line) for line in table([row("warm", *runs), late]).splitlines()]
    assert lines[1] == [
        "scale-up",
        "warm",
        "3",
        "3.00 (2.00 to 5.00)",
        "-",
        "3.00",
        "2.00",
        "0",
        "told 0.20, step 2.80",
    ]
    late_cell = "not in 120 (90.00 to not in 120)"
    assert lines[2] == ["scale-down", "c10d_default", "2", late_cell, "-", "not in 120", "-", "0", "told 1.00"]


def test_table_puts_the_sides_of_a_cause_below_each_other() -> None:
    one = Restart(2, {}, None)
    rows = [row(side, one, cause=cause) for side in ("warm", "fresh") for cause in ("scale-down", "scale-up")]
    shown = [re.split("  +", line)[:2] for line in table([*rows, row("c10d_default")]).splitlines()[1:]]
    assert shown == [["scale-down", "warm"], ["scale-down", "fresh"], ["scale-up", "warm"], ["scale-up", "fresh"]]


def test_nothing_was_measured() -> None:
    assert table([row("warm")]) == "no run was whole"


def test_late_run_took_longer_than_any_other() -> None:
    assert median([None, 5.0, 6.0]) == 6
    assert median([None, 5.0]) == math.inf


def test_file_has_a_list_for_each_part_and_keeps_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    other = row("fresh", Restart(9, {"process": 9}, None), cause="scale-down")
    write(path, [row("warm", Restart(7, {}, None)), other])
    runs = [
        Restart(2, {"told": 0.5, "joined": 0.25, "step": 1.25}, 1.25, warm=4),
        None,
        Restart(3, {"told": 1, "step": 2}, 2),
    ]
    write(path, [row("warm", *runs), row("c10d_default")])
    found = {(one["cause"], one["side"]): one for one in json.loads(path.read_text())}
    assert found["scale-up", "warm"] == {
        "cause": "scale-up",
        "side": "warm",
        "deadline_seconds": 120,
        "seconds": [2, None, 3],
        "from_join_seconds": [1.25, None, 2],
        "started_warm": [4, None, 0],
        "parts": {"told": [0.5, None, 1], "joined": [0.25, None, None], "step": [1.25, None, 2]},
    }
    assert found["scale-down", "fresh"]["seconds"] == [9]
    assert len(found) == 2


def test_row_that_fails_is_said_by_name_and_takes_no_other_with_it(tmp_path: Path) -> None:
    whole = Row("scale-up", "warm", 90, [Restart(2.0, {"told": 1.0})])
    failing = Row("scale-up", "c10d_default", 90, failures=["Failed: waited 120 s for 3 workers"])
    shown = table([whole, failing])
    assert shown.endswith("FAILED: c10d_default scale-up, 1 of 1 runs: Failed: waited 120 s for 3 workers")
    write(tmp_path / "found.json", [whole, failing])
    rows = {row["side"]: row for row in json.loads((tmp_path / "found.json").read_text())}
    assert rows["warm"]["seconds"] == [2.0]
    assert "failures" not in rows["warm"]
    assert rows["c10d_default"]["failures"] == failing.failures
