# SPDX-License-Identifier: Apache-2.0
"""What plain torchrun with its c10d rendezvous makes of some of the events of `make faults`: the same table.

    python bench/faults_c10d.py                 all events, in both setups
    python bench/faults_c10d.py -k node-paused  those whose name contains this

c10d_job.py says how the job is set up: as `default`, torchrun shares a store with the training processes, as it does
by itself; as `unshared`, one environment variable keeps it from that.

All moments are what the agents logged. A survivor is told when its agent says that it stops or restarts its worker.
A member is in the new round when its agent says that the rendezvous is complete: next_rendezvous() has returned, which
is where our own table takes it. torch logs no round number, so `rounds` are the rendezvous that one agent completed.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from c10d_job import MAX_NODES, SETUPS, C10dJob, Setup, new_job
from pod_logs import deaths

from e2e.disruption import kill_container, paused_node, worker_nodes
from e2e.faults.fault import Row
from e2e.faults.table import table, write
from e2e.job import STARTED_SECONDS, TRAINER
from e2e.kube import Object, wait_until
from e2e.trainer_log import COMPLETE, TrainerLog
from support.waiting import Deadline

BUILD = Path("build")
TOLD = re.compile(r"will restart worker group|closing signal SIG|RendezvousConnectionError")


@dataclass(slots=True)
class Trial:
    """One event in one job."""

    job: C10dJob
    row: Row
    setup: Setup
    deadline: float
    struck: float = 0.0
    group: str = ""
    survivors: list[str] = field(default_factory=list)

    def start(self, replicas: int) -> list[Object]:
        """Run the job until it trains; return its pods by index, which is their rank."""
        self.job.apply(replicas, self.setup)
        what = f"{replicas} workers that train together"
        self.group = wait_until(what, lambda: self.job.group(replicas), STARTED_SECONDS)
        self.row.rounds_before = self._rounds()
        return self.job.pods()

    def strike(self, *victims: Object) -> None:
        """The event begins now. All but the pods that it befalls are survivors."""
        lost = [pod["metadata"]["name"] for pod in victims]
        self.survivors = [name for pod in self.job.pods() if (name := pod["metadata"]["name"]) not in lost]
        self.struck = time.time()

    def formed(self, members: int) -> None:
        """Wait until a new group of `members` trains, and note what it took, or that it does not."""
        group = None
        try:
            group = wait_until(f"a new group of {members}", lambda: self._new_group(members), self.deadline)
        except Deadline as late:
            self.note(str(late))
        logs = self.job.logs()
        told = [first_told(logs[name], self.struck) for name in self.survivors]
        if all(told):
            self.row.survivors_told_seconds = max(filter(None, told)) - self.struck
        self.row.rounds_after = self._rounds()
        if group:
            self._note_group(group)
        died = [pod for pod in self.job.pods() if pod["metadata"]["name"] in self.survivors and deaths(pod)]
        if died:
            self.note(f"the agents of {len(died)} of {len(self.survivors)} survivors died")

    def note(self, text: str) -> None:
        self.row.detail = f"{self.row.detail}; {text}" if self.row.detail else text

    def broken_since(self, moment: float) -> bool:
        """Whether an agent has left the new group since."""
        return any(first_told(log, moment) for log in self.job.logs().values())

    def _new_group(self, members: int) -> str | None:
        group = self.job.group(members)
        return group if group != self.group else None

    def _note_group(self, group: str) -> None:
        pods, logs = self.job.pods(), self.job.logs().values()
        entered = [complete_before(self.job.log(pod), f"group={group} ") for pod in pods]
        self.row.new_round_seconds = max(entered) - self.struck
        took = [self.job.log(pod).when(f"group={group} ") for pod in pods]
        self.row.first_step_seconds = max(filter(None, took)) - self.struck
        self.row.lost_work_steps = steps_taken_twice(logs)
        self.row.ok = True

    def _rounds(self) -> int:
        return max(sum(COMPLETE in line.text for line in log.lines) for log in self.job.logs().values())


def first_told(log: TrainerLog, since: float) -> float | None:
    return next((line.at for line in log.lines if line.at > since and TOLD.search(line.text)), None)


def complete_before(log: TrainerLog, text: str) -> float:
    """The moment of the last rendezvous before the first line with `text` in it."""
    first = log.when(text)
    assert first is not None
    return max(line.at for line in log.lines if COMPLETE in line.text and line.at < first)


def steps_taken_twice(logs: Iterable[TrainerLog]) -> int:
    taken = {(step.group, step.step) for log in logs for step in log.steps()}
    return len(taken) - len({step for _, step in taken})


def agent_killed(trial: Trial) -> None:
    """Not that of pod 0, which hosts the rendezvous."""
    victim = trial.start(3)[1]
    trial.strike(victim)
    kill_container(victim, TRAINER)
    trial.formed(3)


def pod_deleted_rank0(trial: Trial) -> None:
    victim = trial.start(3)[0]
    trial.strike(victim)
    trial.job.namespace.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
    trial.formed(3)


def node_paused(trial: Trial) -> None:
    """Not that of pod 0, which hosts the rendezvous."""
    pods = trial.start(3)
    node = next(name for name in worker_nodes() if name != pods[0]["spec"]["nodeName"])
    victims = [pod for pod in pods if pod["spec"]["nodeName"] == node]
    assert victims, "the scheduler put all workers on one node"
    trial.job.unreachable.add(node)
    with paused_node(node):
        trial.strike(*victims)
        trial.formed(3)
        woken = time.time()
    time.sleep(5)
    trial.job.read()
    if trial.row.ok and trial.broken_since(woken):
        trial.note("when the node came back, its old worker broke the new group")


def scale_up(trial: Trial) -> None:
    """To the maximum, which needs no last call."""
    trial.start(2)
    trial.strike()
    trial.job.scale(MAX_NODES)
    trial.formed(MAX_NODES)


EVENTS: dict[str, Callable[[Trial], None]] = {
    "agent-killed": agent_killed,
    "pod-deleted-rank0": pod_deleted_rank0,
    "node-paused": node_paused,
    "scale-up": scale_up,
}


def measure(setup: str, event: str, deadline: float) -> Row:
    row = Row(event)
    with ExitStack() as stack:
        job = stack.enter_context(new_job(f"c10d-{setup}-{event}"))
        stack.callback(job.keep, BUILD / "faults-c10d" / f"{setup}-{event}")
        try:
            EVENTS[event](Trial(job, row, SETUPS[setup], deadline))
        except (AssertionError, Deadline) as problem:
            row.ok, row.detail = False, str(problem)
    return row


def save(row: Row, path: Path) -> list[Row]:
    """Write the row into the file, whose other rows stay; return all."""
    before = [Row(**one) for one in json.loads(path.read_text())] if path.exists() else []
    rows = {one.event: one for one in [*before, row]}
    ordered = [rows[event] for event in EVENTS if event in rows]
    write(path, ordered)
    return ordered


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-k", default="", metavar="PART", help="only events with PART in their name")
    parser.add_argument("--setup", choices=SETUPS, action="append", help="default: both")
    parser.add_argument("--deadline", type=float, default=240, metavar="SECONDS", help="for the new group to train")
    options = parser.parse_args()
    for setup in options.setup or SETUPS:
        path = BUILD / ("faults-c10d.json" if setup == "default" else f"faults-c10d-{setup}.json")
        rows: list[Row] = []
        for event in EVENTS:
            if options.k in event:
                rows = save(measure(setup, event, options.deadline), path)
        print(f"\ntorchrun c10d, {setup} ({path})\n" + "\n".join(table(rows)), flush=True)


if __name__ == "__main__":
    main()
