# SPDX-License-Identifier: Apache-2.0
"""Real processes live through changes of their group: killed at each point of a step, joined and scaled."""

from __future__ import annotations

import os
import random
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


def test_a_planned_change_breaks_no_step(job: Job) -> None:
    job.grace = SECONDS  # on a busy machine nobody is cut off who is about to leave
    workers = begin(job, 2)
    newcomer = job.start()
    until(newcomer.living.wait, job)
    assert job.form([*workers, newcomer])
    job.trains()
    assert job.form([workers[1], newcomer])
    job.trains()
    assert "the group broke" not in "".join(worker.said() for worker in job.all)
    for one in job.all:
        no_step_twice(one)
    finish(job)
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
