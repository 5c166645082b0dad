# SPDX-License-Identifier: Apache-2.0
"""Stands for operator and agents of a job whose processes live: starts and ends processes, and forms rounds of them."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from contract.forked import forks
from contract.live import trainer
from elasticjob_torch.agent.living import Living

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 60.0


class Worker:
    """One process below an agent of its own."""

    def __init__(self, folder: Path, name: str, pace: float) -> None:
        self.name, self.folder = name, folder
        self.living = Living()
        self.living.started(name, 1)
        environment = {
            **self.living.variables,
            "LOCAL_RANK": "0",
            "ELASTICJOB_ENDPOINT": "127.0.0.1:1",
        }
        self.process = forks.Process(target=trainer.main, args=(str(folder), name, pace, environment))
        self.process.start()
        self._rows: list[dict[str, Any]] = []
        self._read = 0  # bytes of its file

    def rows(self) -> list[dict[str, Any]]:
        """What it has written. Only what is new is read: the tests ask some hundred times a second."""
        file = self.folder / f"{self.name}.jsonl"
        if file.exists():
            with file.open("rb") as written:
                written.seek(self._read)
                new = written.read()
            lines = new[: new.rfind(b"\n") + 1]
            self._read += len(lines)
            self._rows += map(json.loads, lines.splitlines())
        return self._rows

    def said(self) -> str:
        file = self.folder / f"{self.name}.out"
        return file.read_text()[-10000:] if file.exists() else ""

    def dies_at(self, point: str) -> None:
        self._order("dies", point)

    def dawdles(self, seconds: float) -> None:
        """Its next step takes so long."""
        self._order("dawdles", str(seconds))

    def _order(self, what: str, how: str) -> None:
        new = self.folder / f"{self.name}.new"
        new.write_text(how)
        new.rename(self.folder / f"{self.name}.{what}")


class Job:
    """The workers, and the rounds that they are in."""

    def __init__(self, folder: Path, pace: float = 0.003) -> None:
        self.folder, self.pace, self.number = folder, pace, 0
        self.all: list[Worker] = []
        self.members: list[Worker] = []
        self.store: dist.TCPStore | None = None

    def start(self) -> Worker:
        """Start a process, which waits once it is ready."""
        worker = Worker(self.folder, f"w{len(self.all)}", self.pace)
        self.all.append(worker)
        return worker

    def form(self, members: list[Worker], *, lost: Worker | None = None) -> bool:
        """End the round, and form the next of those members once all of them wait; False if one of them ends before.

        The store is served anew for each round, as another member may serve it. ``lost``: a member that is known to be
        lost though its process has not ended.
        """
        cut = lost is not None or any(not one.process.is_alive() for one in self.members)
        for worker in self.members:
            worker.living.over(self.number)
            if cut:
                worker.living.over(self.number, cut=True)
        until(lambda: all(one.living.wait() or not one.process.is_alive() for one in members), self)
        if not all(one.living.wait() for one in members) or not all(one.process.is_alive() for one in members):
            return False
        self.number += 1
        self.members = list(members)
        self.store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=SECONDS)
        )
        for rank, worker in enumerate(members):
            given = {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(members)),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.store.port),
                "TORCHELASTIC_RESTART_COUNT": str(self.number - 1),
            }
            worker.living.enter(self.number, {0: given})
        return True

    def settle(self, members: list[Worker]) -> list[Worker]:
        """Form rounds of those of the members that live, until one has all of them; return them."""
        while True:
            living = [one for one in members if one.process.is_alive()]
            if self.form(living):
                return living

    def trains(self) -> None:
        """Wait until every member has taken a step in this round, or has ended."""
        start = str(self.number - 1)

        def has(worker: Worker) -> bool:
            rows = worker.rows()
            begins = [number for number, row in enumerate(rows) if row.get("start") == start]
            return not worker.process.is_alive() or any("step" in row for row in rows[begins[0] if begins else 10**9 :])

        until(lambda: all(has(worker) for worker in self.members), self)

    def lost(self) -> list[Worker]:
        return [one for one in self.members if not one.process.is_alive()]

    def print_stacks(self) -> None:
        """Have the members write where they are to what they have said."""
        for worker in self.members:
            if worker.process.is_alive():
                os.kill(worker.process.pid or 0, signal.SIGUSR1)
        time.sleep(1)  # they do not say when they have written

    def close(self) -> None:
        for worker in self.all:
            worker.process.kill()
            worker.process.join()
            worker.living.close()


def until(met: Callable[[], bool], job: Job) -> None:
    deadline = time.monotonic() + SECONDS
    while not met():
        if time.monotonic() > deadline:
            job.print_stacks()
            raise TimeoutError("\n".join(f"{one.name}: {one.process.exitcode} {one.said()}" for one in job.members))
        time.sleep(0.003)
