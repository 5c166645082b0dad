# SPDX-License-Identifier: Apache-2.0
"""A day of faults in ten minutes: `make soak SECONDS=600`. Two jobs train; processes of one live through changes.

Workers are scaled, killed and deleted at random, the jobs are annotated and labelled, and their scripts report all the
time. Workers 0 and the operators are left alone, so that a growth of their memory would show; the training process of
the live job's worker 0 lives through all changes. Afterwards the recorded statuses are judged by the state machine's
invariants.
"""

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from e2e.disruption import kill_container, signal_worker_process
from e2e.history import violations
from e2e.job import SIDECAR, TRAINER, Job
from e2e.kube import Namespace, Object
from e2e.operator import CONTAINER, leader
from e2e.resources import GROWTH, Held, growth, leaks, read
from e2e.scene import bring
from support.waiting import settled

CALM_EVERY = 8  # actions
PAUSE_SECONDS = (0.5, 6.0)
MAX_REPLICAS = 3  # of each job
NOTES = ("annotate", "label")  # of the job, which is nothing to its rounds
KILLS = ("kill agent", "kill process")  # what counts as a failure of the training


class Process(NamedTuple):
    """A container's first process, by where it runs."""

    namespace: Namespace
    pod: str
    container: str

    def resident_mib(self) -> float:
        """VmRSS, as the kernel counts it."""
        status = self.namespace.kubectl("exec", self.pod, "--container", self.container, "--", "cat", "/proc/1/status")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


@dataclass(slots=True)
class Soak:
    """What is done to one job, and what comes of it."""

    title: str
    job: Job
    choice: random.Random
    target: int
    protected: str  # worker 0's pod, which is left alone
    memory: dict[str, Process]
    done: Counter[str] = field(default_factory=Counter)
    calm_seconds: list[float] = field(default_factory=list)
    resident: dict[str, list[float]] = field(default_factory=dict)

    def act(self) -> None:
        """One random thing that a user, a kernel or a cluster may do."""
        actions: dict[str, Callable[[Object], object]] = {
            "delete": self.job.delete_pod,
            "force-delete": self._force_delete,
            "kill agent": lambda pod: kill_container(pod, TRAINER),
            "kill sidecar": lambda pod: kill_container(pod, SIDECAR),
            "kill process": lambda pod: signal_worker_process(pod, TRAINER),
        }
        name = self.choice.choice(["scale", "scale", *NOTES, *actions])
        if name == "scale":
            self.target = self.choice.randint(1, MAX_REPLICAS)
            self.job.scale(self.target)
        elif name in NOTES:
            self.job.namespace.kubectl(name, "elasticjob", self.job.name, f"soak=n{self.done.total()}", "--overwrite")
        elif victims := [pod for index, pod in sorted(self.job.pods().items()) if index != 0 and runs(pod)]:
            try:
                actions[name](self.choice.choice(victims))
            except AssertionError:
                name += ", too late"  # it went meanwhile
        self.done[name] += 1

    def calm(self) -> None:
        """Left alone, the group forms at the target's size and trains."""
        began = time.monotonic()
        self.job.wait_for_training(self.target, seconds=120)
        self.calm_seconds.append(time.monotonic() - began)
        for name, process in self.memory.items():
            self.resident.setdefault(name, []).append(process.resident_mib())

    def held(self) -> list[Held]:
        """By the training processes of worker 0, round by round; nothing if they do not tell."""
        return read(line.text for line in self.job.log(self.job.pod(0)).lines)

    def report(self) -> Iterator[str]:
        sizes = Counter(len(one.members) for one in self.job.rounds())
        yield f"{self.title}:"
        yield f"{sum(self.done.values())} actions: " + ", ".join(f"{n} {name}" for name, n in sorted(self.done.items()))
        yield f"{len(self.job.rounds())} rounds formed; by size: {dict(sorted(sizes.items()))}"
        calm = self.calm_seconds
        middle = statistics.median(calm)
        yield f"left alone {len(calm)} times: trained at full size after {middle:.1f} s, at most {max(calm):.1f} s"
        for name, series in self.resident.items():
            yield f"MiB of {name}: " + " ".join(f"{one:.0f}" for one in series)

    def _force_delete(self, pod: Object) -> None:
        self.job.namespace.kubectl(
            "delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0", "--wait=false"
        )


def runs(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def started(title: str, job: Job, choice: random.Random, **settings: Any) -> Soak:
    """The job trains with all of its workers."""
    job.apply(replicas=MAX_REPLICAS, maxReplicas=MAX_REPLICAS, maxRestarts=1_000_000, **settings)
    job.wait_for_round(MAX_REPLICAS)
    job.wait_for_training(MAX_REPLICAS)
    protected = job.pod(0)["metadata"]["name"]
    return Soak(
        title, job, choice, MAX_REPLICAS, protected, {"worker 0's sidecar": Process(job.namespace, protected, SIDECAR)}
    )


def check(soak: Soak) -> None:
    assert violations(soak.job) == []
    assert soak.job.pod(0)["metadata"]["name"] == soak.protected, "worker 0 was left alone"
    assert soak.job.restarts <= sum(soak.done[name] for name in KILLS), "nothing else counts as a failure"
    assert settled(soak.job.status["progress"]["step"], "it only grows") > 0
    for name, series in soak.resident.items():
        assert growth(series) < GROWTH, f"memory of {name} grows: {series}"


@pytest.mark.torchrun
def test_soak(job: Job, other: Job, operator: Namespace, request: pytest.FixtureRequest) -> None:
    seconds, seed = request.config.getoption("--seconds"), request.config.getoption("--seed")
    print(f"\nseed {seed}, {seconds} s")
    choice = random.Random(seed)
    restarting = started("the job whose processes restart", job, choice)
    restarting.memory["the leading operator"] = Process(operator, leader(operator)["metadata"]["name"], CONTAINER)
    bring(other, "live_train.py")
    live = started("the job whose processes live through changes", other, choice, minReplicas=1)
    soaks = [restarting, live]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(CALM_EVERY):
            choice.choice(soaks).act()
            time.sleep(choice.uniform(*PAUSE_SECONDS))
        for soak in soaks:
            soak.calm()
        rounds = " and ".join(str(len(soak.job.rounds())) for soak in soaks)
        print(f"{max(0, end - time.monotonic()):5.0f} s left, {rounds} rounds", flush=True)
    held = live.held()
    print("\n".join([*restarting.report(), *live.report(), *map(str, held)]), flush=True)

    for soak in soaks:
        check(soak)
    assert len({one.pid for one in held}) == 1, "the process of worker 0 lives through all changes"
    assert len(held) > 1, "nothing changed that it could live through"
    assert list(leaks(held)) == []
