# SPDX-License-Identifier: Apache-2.0
"""Processes of real torchruns live through changes of their job: they keep their pids, and no step is done twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contract.agents import SECONDS, until
from contract.plane import Job, rendezvous
from contract.trainers import Trainers
from contract.warm.processes import children
from elasticjob.indices import read_indices
from elasticjob.members import Members
from elasticjob_torch.agent import busy, going_on

NewJob = Callable[..., Job]
SCRIPT = Path(__file__).parent / "live/script.py"

UPDATE_SECONDS = 12.0  # longer than a sidecar pauses between two tries to write, and a busy operator then takes


@contextlib.contextmanager
def lives(
    job: Job, directory: Path, prepare: Callable[[], None] | None = None, *, first: dict[str, str] | None = None
) -> Iterator[Trainers]:
    """`prepare`: what each torchrun does first. All processes are forks that begin with torch imported, but with
    `first`, the variables that worker 0 alone has: then each is started as people do it, and imports torch."""
    runs = Trainers(job, directory, [str(SCRIPT)], GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    runs.prepare, runs.forks_training, runs.real = prepare, first is None, first is not None
    runs.environment_of = {f"{job.name}-0-0": first or {}}
    runs.start()
    try:
        yield runs
    finally:
        runs.stop()


def expects_news_soon() -> None:
    """In a torchrun: its processes end soon where a group breaks for no reason."""
    going_on.UPDATE_SECONDS = UPDATE_SECONDS


def waits_for_ever() -> None:
    """In a torchrun: its processes have more time to end their step than a test lasts."""
    busy.BUSY_SECONDS = 20 * SECONDS


def waits_shortly() -> None:
    """In a torchrun: its processes have little time to end their step, unless they say that they save."""
    busy.BUSY_SECONDS = 4.0


def pids(runs: Trainers, size: int, after: int = 0) -> dict[str, int]:
    """By pod, once all of a group of `size` are in it; only the events from number `after` on count."""

    def whole() -> dict[str, int]:
        latest = {event["pod"]: event for event in runs.events()[after:]}
        members = {pod: event["pid"] for pod, event in latest.items() if event["size"] == size}
        return members if len(members) == size else {}

    return until(whole, f"a group of {size}; so far {runs.events()}", SECONDS)


def known_to_live(job: Job, size: int) -> None:
    """The operator knows that all members live."""

    def live(view: Any) -> bool:
        found = rendezvous(view)
        members = [member.index for member in Members.read(found.get("participants", ""))]
        known = sorted(read_indices(found.get("live", "")))
        return found.get("phase") == "Formed" and known == sorted(members) and len(known) == size

    job.wait(live, f"{size} members known to live")


def steps(runs: Trainers) -> dict[int, list[int]]:
    """The steps that each process applied, in order, by pid."""
    found: dict[int, list[int]] = {}
    for file in runs.directory.glob("steps-*"):
        for line in file.read_text().splitlines():
            said = json.loads(line)
            found.setdefault(said["pid"], []).append(said["step"])
    return found


def end(job: Job, runs: Trainers, size: int) -> None:
    """All end with success some steps later; nobody has done a step twice, and none is missing."""
    done = steps(runs)
    total = max(max(each) for each in done.values()) + 50
    (runs.directory / "total.new").write_text(str(total))
    (runs.directory / "total.new").rename(runs.directory / "total")
    job.closed("Complete")
    until(lambda: [code for _, code in runs.ended if code == 0], "the torchruns to end", SECONDS)
    done = steps(runs)
    assert all(len(each) == len(set(each)) for each in done.values()), "a step was done twice"
    assert set().union(*done.values()) == set(range(total))


@contextlib.contextmanager
def held(runs: Trainers) -> Iterator[None]:
    """New processes are not ready meanwhile, as one that imports torch is not for seconds."""
    (runs.directory / "hold").touch()
    yield
    (runs.directory / "hold").unlink()


def restart_on_demand(job: Job, runs: Trainers, first: dict[str, int]) -> dict[str, int]:
    seen = len(runs.events())
    job.patch(restartedAt="2026-11-27T00:00:00Z")
    second = pids(runs, 2, seen)
    assert second.keys() == first.keys()
    assert not set(second.values()) & set(first.values())
    return second


def scale_up(job: Job, runs: Trainers, first: dict[str, int]) -> dict[str, int]:
    job.scale(3)
    second = pids(runs, 3)
    assert second.items() >= first.items()
    return second


def delete_a_pod(rank: int, job: Job, runs: Trainers, first: dict[str, int]) -> dict[str, int]:
    """Others train on at once, also without rank 0, which served the store; a replacement comes in."""
    seen = len(runs.events())
    lost = next(event["pod"] for event in reversed(runs.events()) if event["rank"] == rank)
    with held(runs):
        job.delete_pod(lost)
        second = pids(runs, 2, seen)
    assert set(second.items()) == {(pod, pid) for pod, pid in first.items() if pod != lost}
    third = pids(runs, 3, seen)
    assert third.items() >= second.items()
    return third


def kill_a_process(job: Job, runs: Trainers, first: dict[str, int]) -> dict[str, int]:
    """Its agent starts another, which comes in when it is ready; the pod stays, and others keep their processes."""
    ended, lost = list(runs.ended), sorted(first)[1]
    third = replaced(job, runs, first, lost, lambda: os.kill(first[lost], signal.SIGKILL))
    assert runs.ended == ended
    return third


def fail(job: Job, runs: Trainers, first: dict[str, int]) -> dict[str, int]:
    """A script that fails restarts alone."""
    fails = sorted(first)[2]
    return replaced(job, runs, first, fails, lambda: runs.order(f"fail-{fails}"))


def replaced(job: Job, runs: Trainers, first: dict[str, int], lost: str, end: Callable[[], None]) -> dict[str, int]:
    """The pids of three once the process of the pod `lost` is replaced in its pod, after its end; that is counted."""
    seen, counted = len(runs.events()), job.view()["job"]["status"]["restarts"]
    with held(runs):
        end()
        second = pids(runs, 2, seen)
    assert second.items() == {(pod, pid) for pod, pid in first.items() if pod != lost}
    third = pids(runs, 3, seen)
    assert third.items() >= second.items()
    assert third[lost] != first[lost]
    assert job.view()["job"]["status"]["restarts"] == counted + 1
    return third


def scale_down(job: Job, runs: Trainers, first: dict[str, int]) -> dict[str, int]:
    seen = len(runs.events())
    job.scale(2)
    second = pids(runs, 2, seen)
    assert first.items() >= second.items()
    return second


def test_one_change_after_another(new_job: NewJob, tmp_path: Path) -> None:
    """All in one job."""
    job = new_job(replicas=2, minReplicas=1, maxReplicas=4)
    with lives(job, tmp_path) as runs:
        now = pids(runs, 2)
        for change, size in (
            (restart_on_demand, 2),
            (scale_up, 3),
            (partial(delete_a_pod, 0), 3),
            (partial(delete_a_pod, 1), 3),
            (kill_a_process, 3),
            (fail, 3),
            (scale_down, 2),
        ):
            known_to_live(job, len(now))
            now = change(job, runs, now)
            assert len(now) == size
        end(job, runs, 2)


def test_a_killed_process_of_two(new_job: NewJob, tmp_path: Path) -> None:
    """Torch stops the other one of its pod; those of other pods go on."""
    job = new_job(replicas=2, minReplicas=1, nprocPerNode=2)
    with lives(job, tmp_path) as runs:

        def by_rank(after: int, size: int) -> dict[int, int]:
            latest = {event["rank"]: event["pid"] for event in runs.events()[after:] if event["size"] == size}
            return latest if len(latest) == size else {}

        first = until(lambda: by_rank(0, 4), "a group of 4", SECONDS)
        known_to_live(job, 2)
        seen = len(runs.events())
        with held(runs):
            os.kill(first[3], signal.SIGKILL)
            second = until(lambda: by_rank(seen, 2), "a group of 2", SECONDS)
        assert set(second.values()) <= set(first.values())
        third = until(lambda: by_rank(seen, 4), "a group of 4 again", SECONDS)
        assert set(third.values()) >= set(second.values())
        assert len(set(third.values()) - set(first.values())) == 2
        end(job, runs, 4)


def test_processes_keep_their_state_while_the_api_server_is_away(new_job: NewJob, tmp_path: Path) -> None:
    """A process is killed meanwhile, so the group breaks, and no change of it can be told."""
    job = new_job(replicas=3, minReplicas=1)
    with lives(job, tmp_path, expects_news_soon) as runs:
        first = pids(runs, 3)
        known_to_live(job, 3)
        seen = len(runs.events())
        lost = sorted(first)[1]
        seconds = 2 * UPDATE_SECONDS
        away = threading.Thread(target=job.plane.call, args=("api_away",), kwargs={"job": job.name, "seconds": seconds})
        away.start()
        for pod in first:
            until(lambda pod=pod: "cannot watch" in job.plane.log_of(pod), f"{pod} to notice it", SECONDS)
        os.kill(first[lost], signal.SIGKILL)
        away.join()
        last = pids(runs, 3, seen)
        assert {pod: pid for pod, pid in last.items() if pod != lost} == {
            pod: pid for pod, pid in first.items() if pod != lost
        }
        assert last[lost] != first[lost]
        end(job, runs, 3)


def test_processes_keep_their_state_below_the_minimum(new_job: NewJob, tmp_path: Path) -> None:
    job = new_job(replicas=2, minReplicas=2)
    with lives(job, tmp_path, expects_news_soon) as runs:
        first = pids(runs, 2)
        known_to_live(job, 2)
        seen = len(runs.events())
        lost, stays = sorted(first)
        replacement = lost[: -len("0")] + "1"
        runs.not_yet.add(replacement)
        job.delete_pod(lost)
        job.wait(lambda view: rendezvous(view).get("phase") == "Forming", "the round to be over")
        time.sleep(UPDATE_SECONDS + 2)
        assert len(runs.events()) == seen
        runs.not_yet.clear()
        assert pids(runs, 2, seen)[stays] == first[stays]
        end(job, runs, 2)


@pytest.mark.parametrize("order", ["save", "busy"])
def test_a_process_that_says_that_it_saves_is_waited_for(new_job: NewJob, tmp_path: Path, order: str) -> None:
    """And one that does not say it is started anew, so the limit was exceeded."""
    job = new_job(replicas=3, minReplicas=1)
    with lives(job, tmp_path, waits_shortly) as runs:
        first = pids(runs, 3)
        known_to_live(job, 3)
        seen = len(runs.events())
        lost, stays, saves = sorted(first)
        runs.order(f"{order}-{saves}")
        until(lambda: not (tmp_path / f"{order}-{saves}").exists(), "the save to begin", SECONDS)
        with held(runs):
            os.kill(first[lost], signal.SIGKILL)
            pids(runs, 2 if order == "save" else 1, seen)
        last = pids(runs, 3, seen)
        assert last[stays] == first[stays]
        assert (last[saves] == first[saves]) is (order == "save")
        end(job, runs, 3)


@pytest.mark.parametrize("rank", [0, 2], ids=["stays", "leaves"])
def test_a_member_that_falls_silent_in_a_planned_change_is_not_waited_for(
    new_job: NewJob, tmp_path: Path, rank: int
) -> None:
    """As one whose node lost its power: its connections do not end, and others are in a collective with it. They wait
    neither for the limit of a busy process nor, where it was told to leave, for its end."""
    job = new_job(replicas=3, minReplicas=1, rendezvous={"rejoinSeconds": 3600})
    with lives(job, tmp_path, waits_for_ever) as runs:
        first = pids(runs, 3)
        known_to_live(job, 3)
        seen = len(runs.events())
        silent = next(event["pod"] for event in reversed(runs.events()) if event["rank"] == rank)
        os.kill(first[silent], signal.SIGSTOP)
        job.scale(2)
        job.wait(lambda view: rendezvous(view).get("cause") == "Scaled", "the end of the round by plan")
        os.kill(runs.pid(silent), signal.SIGSTOP)
        job.plane.call("freeze", pod=silent)
        stood = time.time()
        try:
            size = 2 if rank == 2 else 1
            assert pids(runs, size, seen).items() <= first.items() - {(silent, first[silent])}
            print(f"the others were in their next group after {runs.events()[-1]['at'] - stood:.1f} s")
            assert job.view()["job"]["status"].get("restarts", 0) == 0
        finally:
            os.kill(first[silent], signal.SIGKILL)
            runs.kill(silent)
            job.plane.call("thaw", pod=silent)
        last = pids(runs, 2, seen)
        assert {pod: pid for pod, pid in last.items() if pod in first} == {
            pod: pid for pod, pid in first.items() if pod in last
        }
        end(job, runs, 2)


def test_a_sidecar_that_restarts_costs_no_process(new_job: NewJob, tmp_path: Path) -> None:
    job = new_job(replicas=2, minReplicas=1)
    with lives(job, tmp_path) as runs:
        first = pids(runs, 2)
        known_to_live(job, 2)
        seen = len(runs.events())
        job.plane.call("kill_sidecar", pod=sorted(first)[1])
        assert pids(runs, 2, seen) == first
        known_to_live(job, 2)
        end(job, runs, 2)


def test_a_prestarted_process_is_the_newcomer(new_job: NewJob, tmp_path: Path) -> None:
    """And one that is started then, in a pod without warm restart."""
    job = new_job(replicas=2, minReplicas=1, warmRestart="Disabled")
    with lives(job, tmp_path, first={"ELASTICJOB_WARM_RESTART": "Enabled"}) as runs:
        first = pids(runs, 2)
        known_to_live(job, 2)
        seen = len(runs.events())
        lost, stays = sorted(first)
        ready = "prestarted for the next round"
        until(lambda: ready in job.plane.log_of(f"{lost}-trainer"), f"processes {ready}", SECONDS)
        prestarted = set(children(runs.pid(lost))) - {first[lost]}
        os.kill(first[lost], signal.SIGKILL)
        second = pids(runs, 2, seen)
        assert second[stays] == first[stays]
        assert second[lost] in prestarted
        known_to_live(job, 2)
        seen = len(runs.events())
        os.kill(second[stays], signal.SIGKILL)
        third = pids(runs, 2, seen)
        assert third[lost] == second[lost]
        assert third[stays] != second[stays]
        end(job, runs, 2)


def test_a_spare_that_waits_has_its_process_ready(new_job: NewJob, tmp_path: Path) -> None:
    """It had joined before the job was known to live, when processes are started once their round is formed."""
    job = new_job(replicas=2, minReplicas=2, spareReplicas=1)
    with lives(job, tmp_path) as runs:
        first = pids(runs, 2)
        known_to_live(job, 2)
        (spare,) = {pod["name"] for pod in job.pods(3)} - first.keys()

        def is_ready(view: Any) -> bool:
            request = view["workers"][spare]["spec"].get("request") or {}
            return request.get("type") == "Join" and bool(request.get("live"))

        job.wait(is_ready, "the spare to have joined with its process")
        waits, seen, lost = children(runs.pid(spare)), len(runs.events()), min(first)
        job.delete_pod(lost)
        second = pids(runs, 2, seen)
        assert second.keys() == {spare, max(first)}
        assert second[max(first)] == first[max(first)]
        assert second[spare] in waits
        assert job.view()["job"]["status"].get("restarts", 0) == 0
        end(job, runs, 2)
