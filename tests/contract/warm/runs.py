# SPDX-License-Identifier: Apache-2.0
"""Lets `training.observe` train, fresh or warm, and says what its processes saw.

A round ends by a training process that ends as it is told; the next one is formed of the same worker.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.agents import until
from contract.plane import ROOT, rendezvous
from contract.trainers import Trainers
from contract.warm import processes
from contract.warm.changes import apply_before_starts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contract.plane import Job, Plane

HERE = Path(__file__).resolve().parent
SCRIPT = str(HERE / "training/observe.py")
LIBRARY = HERE / "library"
SECONDS = 300.0  # other jobs run beside it
STILL_SECONDS = 1.0
WARM = "ELASTICJOB_WARM_RESTART"
# a machine that does too much must not lose a worker, nor end what a process is about to print
PATIENT = {"rejoinSeconds": 400, "workerLostSeconds": 300, "stopSeconds": 90, "storeReadySeconds": 300}
# what a prestarted process says that is done without its last import
_LEFT_OUT = re.compile(r"not imported early: (what the script imports after |.*, and what comes later)")
# lines on the console that are the agent's, wherever they begin
_AGENTS = re.compile(r"(elasticjob: |[WEI]\d{4} \d\d:|\[W\d|\*{10}|Setting OMP)[^\n]*\n?")


@dataclass(frozen=True)
class Setup:
    """How a job's torchruns are started: with which options and script, where, and whether as people start them."""

    command: Sequence[str] = (SCRIPT,)
    processes: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    real: bool = False  # else one is forked
    packages: str = ""  # a folder of more libraries
    folder: Path = ROOT
    changes: Sequence[str] = ()  # of `changes`, the first of them before the second round, and so on
    workers: int = 1


@dataclass
class Process:
    """A training process: what it saw, the files that it wrote to, and whether it was prestarted before its round."""

    pid: int
    prestarted: bool
    seen: dict[str, Any]
    output: dict[str, str] = field(default_factory=dict)

    @property
    def loaded_at_start(self) -> set[str]:
        return set(self.seen["start"]["modules"])


class Run:
    """One job's life as its last worker sees it; a context manager. `rounds` has that one's processes by local rank."""

    def __init__(self, plane: Plane, directory: Path, setup: Setup, *, warm: bool) -> None:
        directory.mkdir()
        self.directory, self.setup, self.warm = directory, setup, warm
        self.rounds: list[list[Process]] = []
        self.reasons: list[str] = []
        self.prestarted: list[int] = []
        self._ready_before = 0  # lines of rounds before
        self._log = ""
        self.worker = setup.workers - 1
        self._job = plane.job(replicas=setup.workers, nprocPerNode=setup.processes, maxRestarts=20, rendezvous=PATIENT)

    def __enter__(self) -> Run:
        job = self.job = self._job.__enter__()
        self.pod = f"{job.name}-{self.worker}-0"
        self._run_id = job.pods(self.setup.workers, SECONDS)[0]["environment"]["PET_RDZV_ID"]
        command = [f"--log-dir={self.directory}/log", *self.setup.command]
        self.trainers = _Runtime(
            job, self.directory, self.setup, command, **({WARM: "Enabled" if self.warm else "Disabled"})
        )
        self.trainers.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        told = "" if error is None else f"{error}\n{self.job.told()}\n{self.log()}"
        self._log = self.log()
        self.trainers.stop()
        self._job.__exit__(None, None, None)
        if error is not None:
            raise AssertionError(told) from error

    def train(self) -> list[Process]:
        """The next round's processes, once they have seen all."""
        known = {process.pid for round in self.rounds for process in round}
        number = len(self.rounds) + 1

        def all_there() -> list[Any]:
            events = [
                event for event in self.trainers.events() if event["pod"] == self.pod and event["pid"] not in known
            ]
            return events if len(events) == self.setup.processes else []

        events = until(all_there, f"{self.setup.processes} processes in round {number}", SECONDS)
        self.agent = self.trainers.pid(self.pod)
        self.reasons.append(rendezvous(self.job.view())["reason"])
        by_rank = sorted(events, key=lambda event: int(event["LOCAL_RANK"]))
        self.rounds.append([self._look(event["pid"]) for event in by_rank])
        return self.rounds[-1]

    def await_prestarted(self) -> list[int]:
        """The prestarted processes, once the agent says that they are ready, and the same ones stand still.

        That they stand still says little on a machine that has no time for them, and the agent may end one for another.
        """
        before, since = (), time.monotonic()

        def still() -> bool:
            nonlocal before, since
            self.prestarted = self.all_prestarted() if self._ready_lines() > self._ready_before else []
            now = (*self.prestarted, *map(processes.processor_time, self.prestarted))
            if now != before:
                before, since = now, time.monotonic()
            return bool(self.prestarted) and time.monotonic() - since >= STILL_SECONDS

        until(still, f"{self.setup.processes} prestarted processes with their imports, which stand still", SECONDS)
        return self.prestarted

    def all_prestarted(self) -> list[int]:
        """The prestarted processes, if there is one for each that trains, and all are through their imports."""
        training = {process.pid for process in self.rounds[-1]}
        of_agent = processes.children(self.agent)
        line = of_agent.get(self.rounds[-1][0].pid)
        found = [pid for pid, its in of_agent.items() if its == line and pid not in training]
        return found if len(found) == self.setup.processes and all(map(self._has_imported, found)) else []

    def _has_imported(self, pid: int) -> bool:
        return (self.directory / f"imported-{pid}").exists() or _LEFT_OUT.search(self.log()) is not None

    def _ready_lines(self) -> int:
        return self.log().count("elasticjob: prestarted for the next round")

    def thorough(self) -> None:
        """The next round's processes look at their children, too."""
        (self.directory / "thorough").touch()

    def tell(self, end: str) -> None:
        """Let the round end, by the end of its first process."""
        self._ready_before = self._ready_lines()
        order = self.directory / f"end-{self.rounds[-1][0].pid}"
        order.with_suffix(".new").write_text(end)
        order.with_suffix(".new").rename(order)

    def complete(self) -> None:
        """Let all end well."""
        self.trainers.order("finish")
        self.job.closed("Complete", SECONDS)
        self.trainers.codes(self.setup.workers, SECONDS)
        for process in (process for round in self.rounds for process in round):
            self._add_output(process)

    def why_ordinary(self) -> list[str]:
        """What torchrun says of starts that are not warm."""
        return [line for line in self.log().splitlines() if "ordinary" in line]

    def log(self) -> str:
        """What torchrun wrote, and its processes where that is not redirected."""
        return self._log or (self.job.plane.logs / f"{self.pod}-trainer.log").read_text(errors="replace")

    def console(self) -> Counter[str]:
        """How often each letter is in what the training processes wrote to `log`.

        All else is chance: a process writes a line in pieces, and torch's readers put a header before each that they
        find, so that a piece of another process or of the agent may come between.
        """
        written = _AGENTS.sub("", self.plain(self.log()))
        return Counter(re.sub(r"\[default\d\]:|\s", "", written))

    def plain(self, text: str) -> str:
        """Without what differs between two jobs: pids, names, ports, folders."""
        for pattern, name in (
            (rf"\b{self.agent}:\d+:", "AGENT:"),
            (rf"\b(pid: |parent ){self.agent}\b", r"\1AGENT"),
            (re.escape(str(self.directory)), "DIRECTORY"),
            (rf"{self._run_id}_\w{{8}}", "RUN"),
            (self._run_id, "RUN"),
            (rf"\b{self.job.name}\b", "JOB"),
            (r"\b127\.[1-9]\d+(\.\d+){2}(:\d+)?", "ADDRESS"),
            (r'(MASTER_PORT": ")\d+', r"\1PORT"),
            (r"\b\w{12}:(\S*/elasticjob-live-)\w+", r"\1LIVE"),
            (r" at 0x[0-9a-f]+", ""),
            (r"\b(socket|pipe):\[\d+\]", r"\1"),
        ):
            text = re.sub(pattern, name, text)
        return text

    def _look(self, pid: int) -> Process:
        text = (self.directory / f"seen-{pid}").read_text()
        files = json.loads(text)["start"]["descriptors"]
        return Process(
            pid, pid in self.prestarted, json.loads(self.plain(text)), {name: files[name][0] for name in ("1", "2")}
        )

    def _add_output(self, process: Process) -> None:
        for name, file in process.output.items():
            ours = Path(file).is_relative_to(self.directory)
            process.output[name] = self.plain(Path(file).read_text(errors="replace")) if ours else ""


class _Runtime(Trainers):
    """Trainers in a folder of their own, forked or started as people start torchrun."""

    def __init__(self, job: Job, directory: Path, setup: Setup, command: Sequence[str], **environment: str) -> None:
        paths = [str(LIBRARY), os.environ.get("PYTHONPATH", ""), setup.packages]
        path = os.pathsep.join(filter(None, paths))
        given = {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", **setup.environment, **environment}
        super().__init__(job, directory, command, **given)
        self.folder, self.real = setup.folder, setup.real
        if not setup.real:
            self.prepare = partial(_begin, setup.changes)


def _begin(changes: Sequence[str]) -> None:
    """As Python begins, which in a fork it has done already."""
    runpy.run_path(str(ROOT / "trainer/sitecustomize.py"))
    if changes:
        apply_before_starts(changes)
