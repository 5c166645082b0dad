# SPDX-License-Identifier: Apache-2.0
"""Real processes live through changes of their group: killed at each point of a step, joined and scaled."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from contract.live.rounds import SECONDS, Job, Worker, until
from contract.live.trainer import POINTS, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZES = (1, 2, 3, 4, 5, 6)  # that divide the batch
CHANGES = int(os.environ.get("ELASTICJOB_LIVE_CHANGES", "12"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    try:
        yield job
    finally:
        job.close()


def check(job: Job) -> None:
    """All ranks had the same parameters at the start of each round, and each step the loss of an uninterrupted run."""
    rows = [row for worker in job.all for row in worker.rows()]
    by_round: dict[str, set[str]] = {}
    for row in rows:
        if "change" in row:
            by_round.setdefault(row["start"], set()).add(row["change"])
    assert {start: digests for start, digests in by_round.items() if len(digests) > 1} == {}
    applied = {row["applied"] for row in rows if "applied" in row}
    assert applied == set(range(1 + max(applied)))
    losses = {(row["step"], row["loss"]) for row in rows if "step" in row}
    assert len({step for step, _ in losses}) >= len(applied) - len(by_round)  # one breaks after the optimizer's step
    expected = uninterrupted(len(applied))
    assert max(abs(loss - expected[step]) for step, loss in losses) <= 1e-12


def no_step_twice(worker: Worker) -> None:
    steps = [row["applied"] for row in worker.rows() if "applied" in row]
    assert len(steps) == len(set(steps))


def finish(job: Job) -> None:
    """Let the training end a few steps later, and all members with success."""
    total = max(row["step"] for worker in job.members for row in worker.rows() if "step" in row) + 20
    (job.folder / "total.new").write_text(str(total))
    (job.folder / "total.new").rename(job.folder / "total")
    until(lambda: not any(worker.process.is_alive() for worker in job.members), job)
    assert [(worker.name, worker.process.exitcode) for worker in job.members] == [
        (worker.name, 0) for worker in job.members
    ], job.members[0].said()
    assert {row["end"] for worker in job.members for row in worker.rows() if "end" in row} == {total}


def begin(job: Job, size: int) -> list[Worker]:
    workers = [job.start() for _ in range(size)]
    assert job.form(workers)
    job.trains()
    return workers


@pytest.mark.parametrize("point", POINTS[:5])
@pytest.mark.parametrize("rank", [0, 2])
def test_others_go_on_when_one_is_killed_in_a_step(job: Job, point: str, rank: int) -> None:
    workers = begin(job, 4)
    victim = workers[rank]
    victim.dies_at(point)
    victim.process.join()
    left = job.settle([one for one in workers if one is not victim])
    job.trains()
    finish(job)
    assert len(left) == 3
    assert all(len({row["pid"] for row in one.rows()}) == 1 for one in left)
    for one in left:
        no_step_twice(one)
    check(job)


@pytest.mark.parametrize("point", ["send", "receive", "formed"])
def test_a_loss_while_a_newcomer_receives_the_state_costs_nobody_the_state(job: Job, point: str) -> None:
    workers = begin(job, 2)
    newcomer = job.start()
    victim = newcomer if point == "receive" else workers[0]
    until(newcomer.living.wait, job)
    victim.dies_at(point)
    assert job.form([*workers, newcomer])
    victim.process.join()
    job.settle([*workers, newcomer])
    job.trains()
    finish(job)
    check(job)


def test_a_loss_in_the_middle_of_a_piece_costs_nobody_the_state(job: Job) -> None:
    """gloo tells its receivers nothing of the connection's end, or of its being cut."""
    (job.folder / "large").touch()
    workers = begin(job, 2)
    newcomer = ready(job)
    workers[0].dies_at("piece")
    assert job.form([*workers, newcomer])
    workers[0].process.join()
    job.settle([workers[1], newcomer])
    job.trains()
    finish(job)
    assert all(len({row["pid"] for row in one.rows()}) == 1 for one in job.members)
    check(job)


def test_a_planned_change_breaks_no_step(job: Job) -> None:
    """Neither one that takes a hundred times as long as any before."""
    workers = begin(job, 2)
    newcomer = ready(job)
    dawdle(job, workers[0])
    assert job.form([*workers, newcomer])
    job.trains()
    dawdle(job, newcomer)
    assert job.form([workers[1], newcomer])
    job.trains()
    assert "the group broke" not in "".join(worker.said() for worker in job.all)
    for one in job.all:
        no_step_twice(one)
    finish(job)
    check(job)


def dawdle(job: Job, worker: Worker) -> None:
    before = len(dawdled(worker))
    worker.dawdles(1.5)
    until(lambda: len(dawdled(worker)) > before, job)


def dawdled(worker: Worker) -> list[int]:
    return [row["dawdles"] for row in worker.rows() if "dawdles" in row]


def test_a_planned_change_breaks_no_save_that_all_members_do_together(job: Job) -> None:
    (job.folder / "saves").touch()
    workers = begin(job, 2)
    until(lambda: bool(saves(workers[0])), job)
    newcomer = ready(job)
    assert job.form([*workers, newcomer])
    job.trains()
    until(lambda: bool(saves(newcomer)), job)
    assert "the group broke" not in "".join(worker.said() for worker in job.all)
    finish(job)
    assert saves(workers[0]) == saves(workers[1])
    assert not any("unsaved" in row for worker in job.all for row in worker.rows())
    check(job)


def saves(worker: Worker) -> set[int]:
    return {row["saved"] for row in worker.rows() if "saved" in row}


def test_a_script_that_catches_the_error_of_such_a_save_trains_on_when_a_member_is_lost(job: Job) -> None:
    (job.folder / "saves").touch()
    workers = begin(job, 3)
    until(lambda: all(map(saves, workers)), job)
    workers[1].dies_at("save")
    workers[1].process.join()
    left = job.settle([workers[0], workers[2]])
    job.trains()
    until(lambda: len(saves(left[0])) > len(saves(workers[1])), job)
    assert all(len([row for row in one.rows() if "unsaved" in row]) == 1 for one in left)
    finish(job)
    assert all(len({row["pid"] for row in one.rows()}) == 1 for one in left)
    check(job)


def test_others_go_on_without_a_member_that_stands_still(job: Job) -> None:
    """As a node that lost its power: its connections do not end."""
    workers = begin(job, 4)
    os.kill(workers[1].process.pid or 0, signal.SIGSTOP)
    left = [one for one in workers if one is not workers[1]]
    assert job.form(left, lost=workers[1])
    job.trains()
    finish(job)
    for one in left:
        no_step_twice(one)
    check(job)


def test_a_group_that_fails_to_form_twice_ends_its_processes(job: Job) -> None:
    """A member is lost each time, and as many come again."""
    (stays,) = begin(job, 1)
    for number in (2, 3):
        lost = ready(job)
        lost.dies_at("receive")
        assert job.form([stays, lost])
        lost.process.join()
        # A failure counts only if the process notices it before it hears that the round is over.
        until(lambda number=number: f"round {number} did not form" in stays.said(), job)
    assert job.form([stays, ready(job)])
    stays.process.join(SECONDS)
    assert stays.process.exitcode == 1
    assert "NoNextRound: the groups of rounds 2 and 3 failed to form; this process ends" in stays.said()


def ready(job: Job) -> Worker:
    newcomer = job.start()
    until(newcomer.living.wait, job)
    return newcomer


def test_members_that_are_lost_while_a_group_forms_cost_the_others_nothing(job: Job) -> None:
    (stays,) = begin(job, 1)
    newcomers = [ready(job) for _ in range(3)]
    while newcomers:
        newcomers[-1].dies_at("receive")
        assert job.form([stays, *newcomers])
        newcomers.pop().process.join()
    assert job.form([stays])
    job.trains()
    finish(job)
    check(job)


def test_members_that_are_lost_before_they_reach_the_group_cost_the_others_nothing(job: Job) -> None:
    """However many times as many come again."""
    (stays,) = begin(job, 1)
    for _ in range(3):
        lost = ready(job)
        os.kill(lost.process.pid or 0, signal.SIGSTOP)
        assert job.form([stays, lost])
        lost.process.kill()
        lost.process.join()
    assert job.form([stays, ready(job)])
    job.trains()
    finish(job)
    assert len({row["pid"] for row in stays.rows()}) == 1
    check(job)


def test_random_changes(job: Job) -> None:
    chance = random.Random(7)
    begin(job, 3)
    seconds = []
    for number in range(CHANGES):
        members = list(job.members)
        kinds = [*(["kill"] * 2 if len(members) > 1 else []), *(["join"] * 4 if len(members) < SIZES[-1] else [])]
        kind = chance.choice([*kinds, *(["leave"] if len(members) > 1 else [])])
        came = []
        if kind == "join":
            came = [job.start()]
            until(lambda came=came: came[0].living.wait(), job)
        time.sleep(chance.uniform(0, 0.03))
        began = time.time()
        if kind == "kill":
            victim = chance.choice(members)
            if chance.random() < 0.5:
                victim.dies_at(chance.choice(POINTS[:5]))
                until(lambda victim=victim: not victim.process.is_alive(), job)
                began = time.time()
            else:
                victim.process.kill()
                victim.process.join()
            job.store = None if members[0] is victim else job.store
            members.remove(victim)
        elif kind == "leave":
            members.remove(chance.choice(members))
        job.settle([*members, *came])
        job.trains()
        seconds.append(time.time() - began)
        for worker in job.all:
            if worker not in job.members and worker.process.is_alive():
                worker.process.kill()
        print(number, kind, len(job.members), f"{seconds[-1]:.3f} s", flush=True)
    print(
        f"{CHANGES} changes, until all had taken a step: median {sorted(seconds)[len(seconds) // 2]:.3f} s, longest",
        max(seconds),
    )
    finish(job)
    check(job)
