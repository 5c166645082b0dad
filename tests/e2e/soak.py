# SPDX-License-Identifier: Apache-2.0
"""A day of faults in ten minutes: `make soak SECONDS=600`. Workers are scaled, killed and deleted at random, the job is
annotated and labelled, and its script reports all the time.

Worker 0 and the operators are left alone, so that a growth of their memory would show. Afterwards the recorded
statuses are judged by the state machine's invariants.
"""

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from e2e.disruption import kill_container, signal_worker_process
from e2e.history import violations
from e2e.job import SIDECAR, TRAINER, Job
from e2e.kube import Namespace, Object
from e2e.operator import CONTAINER, leader

CALM_EVERY = 8  # actions
PAUSE_SECONDS = (0.5, 6.0)
GROWTH = 1.15  # of the median of the last quarter over that of the second
MAX_REPLICAS = 4
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
    job: Job
    choice: random.Random
    target: int
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

    def report(self) -> Iterator[str]:
        sizes = Counter(len(one.members) for one in self.job.rounds())
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


def growth(series: list[float]) -> float:
    """Of the last quarter over the second: a process needs the first to warm up."""
    quarter = max(1, len(series) // 4)
    return statistics.median(series[-quarter:]) / statistics.median(series[quarter : 2 * quarter] or series[:1])


@pytest.mark.torchrun
def test_soak(job: Job, operator: Namespace, request: pytest.FixtureRequest) -> None:
    seconds, seed = request.config.getoption("--seconds"), request.config.getoption("--seed")
    print(f"\nseed {seed}, {seconds} s")
    job.apply(replicas=3, maxReplicas=MAX_REPLICAS, maxRestarts=1_000_000)
    job.wait_for_round(3)
    job.wait_for_training(3)
    protected = job.pod(0)["metadata"]["name"]
    memory = {
        "the leading operator": Process(operator, leader(operator)["metadata"]["name"], CONTAINER),
        "worker 0's sidecar": Process(job.namespace, protected, SIDECAR),
    }
    soak = Soak(job, random.Random(seed), 3, memory)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(CALM_EVERY):
            soak.act()
            time.sleep(soak.choice.uniform(*PAUSE_SECONDS))
        soak.calm()
        print(f"{max(0, end - time.monotonic()):5.0f} s left, {len(job.rounds())} rounds", flush=True)
    print("\n".join(soak.report()), flush=True)

    assert violations(job) == []
    assert job.pod(0)["metadata"]["name"] == protected, "worker 0 was left alone"
    assert job.status["restarts"] <= sum(soak.done[name] for name in KILLS), "nothing else counts as a failure"
    assert job.status["progress"]["step"] > 0
    for name, series in soak.resident.items():
        assert growth(series) < GROWTH, f"memory of {name} grows: {series}"
