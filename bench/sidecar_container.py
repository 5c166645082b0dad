# SPDX-License-Identifier: Apache-2.0
"""What one sidecar takes in its container: memory and CPU as the kernel counts them, and how soon it is ready.

    python bench/sidecar_container.py [--workers 3] [--seconds 20]

A real ElasticJob trains on the local cluster. All moments are of the nodes' one clock: a container's process started
when its kernel says so (to 10 ms, a little before the runtime calls the container started), and is ready when its log
has both halves of /readyz: its record is written and its job was seen. The kubelet itself asks only every 5 seconds.

First starts are those of the whole job, sidecars and trainers at once on the machine's cores; then each sidecar is
killed, and starts again alone, in a group that trains. Writes build/bench-sidecar.json.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from e2e.disruption import container_status, kill_container
from e2e.job import NEWEST_TORCH, SIDECAR, Job, restarts
from e2e.kube import Object, succeed, wait_until
from e2e.scene import new_job, new_namespace
from e2e.trainer_log import TrainerLog

BUILD = Path("build")
READY_LINES = ("ElasticWorker", "job is at")
READY_SECONDS = 60
SETTLE_SECONDS = 10.0
TICKS = 100  # a second, in /proc: the same on every Linux machine
MIB = 1 << 20


@dataclass(slots=True)
class Start:
    kind: Literal["with its job", "alone"]
    pod: str
    seconds: float


@dataclass(slots=True)
class Memory:
    """MiB: VmRSS is the process's, with pages of files that others share; the others are its control group's."""

    pod: str
    rss: float
    anonymous: float
    control_group: float
    cpu_milliseconds: float  # in a second


class Process:
    """A container's first process, looked at from its node."""

    def __init__(self, pod: Object) -> None:
        container = container_status(pod, SIDECAR)["containerID"].removeprefix("containerd://")
        self._node = pod["spec"]["nodeName"]
        tasks = self._run("ctr", "--namespace", "k8s.io", "task", "list")
        self._pid = next(line.split()[1] for line in tasks.splitlines() if line.startswith(container))

    def started(self) -> float:
        """Seconds since the epoch."""
        uptime, now = self._run("sh", "-c", "cat /proc/uptime; date +%s.%N").splitlines()
        return float(now) - float(uptime.split()[0]) + int(self._stat()[19]) / TICKS

    def cpu_seconds(self) -> float:
        return (int(self._stat()[11]) + int(self._stat()[12])) / TICKS

    def rss(self) -> float:
        lines = self._read(f"/proc/{self._pid}/status").splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024

    def control_group(self) -> tuple[float, float]:
        """What the container's control group holds in all, and of it anonymous memory; of version 1 or 2."""
        groups = [line.split(":", 2) for line in self._read(f"/proc/{self._pid}/cgroup").splitlines()]
        places = {controllers: path for _, controllers, path in groups}
        if "memory" in places:
            folder, usage, key = f"/sys/fs/cgroup/memory{places['memory']}", "memory.usage_in_bytes", "total_rss"
        else:
            folder, usage, key = f"/sys/fs/cgroup{places['']}", "memory.current", "anon"
        lines = (line.split() for line in self._read(f"{folder}/memory.stat").splitlines())
        anonymous = next(int(number) for name, number in lines if name == key)
        return int(self._read(f"{folder}/{usage}")) / MIB, anonymous / MIB

    def _stat(self) -> list[str]:
        """The fields from the third on."""
        return self._read(f"/proc/{self._pid}/stat").rpartition(")")[2].split()

    def _read(self, path: str) -> str:
        return self._run("cat", path)

    def _run(self, *command: str) -> str:
        return succeed("docker", "exec", self._node, *command)


def start_of(job: Job, pod: Object, kind: Literal["with its job", "alone"]) -> Start:
    """How long the container that runs now took to be ready."""
    name = pod["metadata"]["name"]

    def ready() -> float | None:
        log = TrainerLog.read(job.namespace, name, SIDECAR)
        moments = [log.when(text) for text in READY_LINES]
        return max(filter(None, moments)) if all(moments) else None

    at = wait_until(f"the sidecar of {name} to be ready", ready, READY_SECONDS)
    return Start(kind, name, at - Process(pod).started())


def restart(job: Job, index: int) -> Start:
    """Kill the sidecar of worker `index`: its container starts again in place."""
    before = job.pods()[index]
    kill_container(before, SIDECAR)

    def again() -> bool:
        pod = job.pods()[index]
        running = "running" in container_status(pod, SIDECAR)["state"]
        return running and restarts(pod, SIDECAR) > restarts(before, SIDECAR)

    wait_until(f"the sidecar of worker {index} to start again", again, READY_SECONDS)
    return start_of(job, job.pods()[index], "alone")


def memories(pods: Sequence[Object], seconds: float) -> list[Memory]:
    """After a window of so many seconds in which nothing happened but training."""
    processes = {pod["metadata"]["name"]: Process(pod) for pod in pods}
    time.sleep(SETTLE_SECONDS)
    before = {name: (time.monotonic(), process.cpu_seconds()) for name, process in processes.items()}
    time.sleep(seconds)
    found = []
    for name, process in processes.items():
        at, spent = before[name]
        cores = (process.cpu_seconds() - spent) / (time.monotonic() - at)
        in_all, anonymous = process.control_group()
        found.append(Memory(name, process.rss(), anonymous, in_all, 1000 * cores))
    return found


def measure(workers: int, seconds: float) -> tuple[list[Start], list[Memory]]:
    with new_namespace("bench-sidecar") as namespace, new_job(namespace, "train", NEWEST_TORCH) as job:
        job.apply(replicas=workers, maxReplicas=workers)
        job.wait_for_round(workers)
        training = job.wait_for_training(workers)
        starts = [start_of(job, pod, "with its job") for pod in job.member_pods()]
        sizes = memories(job.member_pods(), seconds)
        for index in range(workers):
            starts.append(restart(job, index))
            training = job.wait_for_training(workers, other_than=training)
    return starts, sizes


def table(starts: Sequence[Start], sizes: Sequence[Memory]) -> str:
    lines = ["ready after start, s"]
    for kind in ("with its job", "alone"):
        seconds = [one.seconds for one in starts if one.kind == kind]
        middle = statistics.median(seconds)
        lines.append(f"  {kind:<14}{middle:.2f} ({min(seconds):.2f}-{max(seconds):.2f})")
    lines.append(f"{'sidecar of':<14}{'RSS MiB':>9}{'anonymous':>11}{'its group':>11}{'CPU ms/s':>10}")
    for one in sizes:
        figures = f"{one.rss:>9.1f}{one.anonymous:>11.1f}{one.control_group:>11.1f}{one.cpu_milliseconds:>10.1f}"
        lines.append(f"  {one.pod:<12}{figures}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="for which the CPU time is taken")
    options = parser.parse_args()
    starts, sizes = measure(options.workers, options.seconds)
    BUILD.mkdir(exist_ok=True)
    found = {"starts": [asdict(one) for one in starts], "memory": [asdict(one) for one in sizes]}
    (BUILD / "bench-sidecar.json").write_text(json.dumps(found, indent=1))
    print(table(starts, sizes))


if __name__ == "__main__":
    main()
