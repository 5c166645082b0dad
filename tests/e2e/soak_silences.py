# SPDX-License-Identifier: Apache-2.0
"""Silences that are nobody's loss: `make soak-silences SECONDS=3600`.

Sidecars and operators stand still for up to three seconds, links between two pods are cut, and now and then the API
server is away for a minute, with more of both meanwhile. All workers live on, so whoever is taken for lost is a false
loss: the first round has to be the last one, and its training has to go on.
"""

import random
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from e2e.disruption import cut_link, paused_api, stop_container
from e2e.history import violations
from e2e.job import SIDECAR, TRAINING_SECONDS, Job
from e2e.kube import Failed, Namespace, Object
from e2e.operator import CONTAINER
from support.waiting import settled

WORKERS = 4
LONGEST_STOP = 3.0
CUT_SECONDS = (1.0, 30.0)
SHORT_CUT_SECONDS = 12.0  # the most while the API server is away
ASKED_SECONDS = 5.0  # after which a cut link has made its first suspicion and question, which leave no room for a stop
AWAY_SECONDS = 60.0
PAUSE_SECONDS = (0.5, 8.0)
WEIGHTS = {"stop": 60, "cut": 40, "away": 2}
PROGRESS_SECONDS = 120
SHOWN = 8  # the last of them, when somebody was lost


@dataclass(slots=True)
class Silences:
    job: Job
    choice: random.Random
    workers: list[Object]  # their pods, which stay
    operators: list[Object]
    done: Counter[str] = field(default_factory=Counter)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=SHOWN))
    longest: float = 0.0  # of the stops, in seconds

    def act(self) -> None:
        [name] = self.choice.choices(list(WEIGHTS), list(WEIGHTS.values()))
        {"stop": self.stop, "cut": self.cut, "away": self.be_away}[name]()

    def stop(self) -> None:
        """Some containers, perhaps all, begin to stand still at the same time."""
        containers = [(pod, SIDECAR) for pod in self.workers] + [(pod, CONTAINER) for pod in self.operators]
        stopped = self.choice.sample(containers, self.choice.randint(1, len(containers)))
        each = [self.choice.uniform(0.1, LONGEST_STOP) for _ in stopped]
        with ThreadPoolExecutor(len(stopped)) as threads:
            took = list(threads.map(lambda one, seconds: stop_container(*one, seconds), stopped, each))
        self.longest = max(self.longest, *took)
        names = ", ".join(
            f"{pod['metadata']['name']} {seconds:.2f} s" for (pod, _), seconds in zip(stopped, took, strict=True)
        )
        self.note("stop", names)

    def cut(self, longest: float = CUT_SECONDS[1]) -> None:
        """No packet passes between two workers' pods. Meanwhile the suspicion stands, and others stand still."""
        one, other = self.choice.sample(self.workers, 2)
        seconds = self.choice.uniform(CUT_SECONDS[0], longest)
        with cut_link(one, other):
            end = time.monotonic() + seconds
            time.sleep(min(seconds, ASKED_SECONDS))
            while time.monotonic() < end - LONGEST_STOP:
                self.stop()
        self.note("cut", f"{one['metadata']['name']}, {other['metadata']['name']} {seconds:.1f} s")

    def be_away(self) -> None:
        """The API server; a worker that is suspected meanwhile can be asked only afterwards."""
        with paused_api():
            end = time.monotonic() + AWAY_SECONDS
            while time.monotonic() < end:
                self.choice.choice([self.stop, lambda: self.cut(SHORT_CUT_SECONDS)])()
        self.note("away", "")

    def before_a_loss(self) -> str:
        return "\n".join(["somebody was lost, or left, after:", *self.last])

    def note(self, name: str, detail: str) -> None:
        """One is over."""
        self.done[name] += 1
        self.last.append(f"{time.strftime('%H:%M:%S', time.gmtime())} {name} {detail}")


@pytest.mark.torchrun
@pytest.mark.disruptive("nodes")
def test_nobody_is_taken_for_lost(job: Job, operator: Namespace, request: pytest.FixtureRequest) -> None:
    seconds, seed = request.config.getoption("--seconds"), request.config.getoption("--seed")
    print(f"\nseed {seed}, {seconds} s")
    job.apply(replicas=WORKERS)
    formed = job.wait_for_round(WORKERS)
    before = job.wait_for_training(WORKERS)
    silences = Silences(job, random.Random(seed), job.member_pods(), operator.list("pods"))
    end = time.monotonic() + seconds
    tells_at = time.monotonic() + PROGRESS_SECONDS
    while time.monotonic() < end:
        try:
            silences.act()
        except Failed:  # a lost worker's container cannot be stopped: that it was lost says more
            assert job.rounds() == [formed], silences.before_a_loss()
            raise
        time.sleep(silences.choice.uniform(*PAUSE_SECONDS))
        if time.monotonic() >= tells_at:
            tells_at += PROGRESS_SECONDS
            print(f"{max(0, end - time.monotonic()):5.0f} s left; {told(silences)}", flush=True)
        assert job.rounds() == [formed], silences.before_a_loss()
    job.until("steps of the same group", lambda: has_trained(job, before.step), TRAINING_SECONDS)
    print(told(silences), flush=True)

    assert job.rounds() == [formed], "nobody was lost, and nobody left"
    assert violations(job) == []
    assert job.restarts == 0
    assert pings(job) > 0, "nobody was even suspected"


def has_trained(job: Job, step: int) -> bool:
    return job.wait_for_training(WORKERS).step > step


def pings(job: Job) -> int:
    return int(settled(job.rendezvous, "the number only grows").get("ping", {}).get("number", 0))


def told(silences: Silences) -> str:
    done = ", ".join(f"{n} {name}" for name, n in sorted(silences.done.items()))
    longest = f"the longest stop {silences.longest:.2f} s"
    return f"{done}; {longest}; {pings(silences.job)} pings, {len(silences.job.rounds())} round"
