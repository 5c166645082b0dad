#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`agent.py SCRIPT`: an elastic agent without torch, for tests whose subject is the cluster and not torch.

It does what torchrun does with the plug-in, with the plug-in's own code: joins rounds, serves the round's store as rank
0, starts the script with torchrun's variables, stops it when its round is over, and ends as the script does. A round's
processes meet in that store (group.py). A start takes a fiftieth of the processor time that torch's takes.
"""

import json
import logging
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from group import SUMS

from elasticjob_torch.agent import membership as agent
from elasticjob_torch.agent.membership import AgentMembership
from elasticjob_torch.agent.orphans import leave_mark
from elasticjob_torch.agent.settings import parse_settings
from elasticjob_torch.agent.stalls import StallInspector
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.agent.stopping import hear_signals
from elasticjob_torch.sidecar.errors import Closed, Leaving, NoTrainer, RoundBroken, SidecarError, StageFinished
from elasticjob_torch.wire import LEFT_EXIT_CODE, NO_FAILURE, Failure, FailureKind, Round

LOOK_SECONDS = 0.1  # as torchrun's --monitor-interval
STORE_SECONDS = 300.0
PARTING_SECONDS = 10.0  # for the last answers of the store

log = logging.getLogger("agent")


class Stopped(Exception):
    """A signal told this agent to end."""


class Store(socketserver.ThreadingTCPServer):
    """Takes a line of numbers from each process, and sends all of them the sums; so on until they leave."""

    daemon_threads = True

    def __init__(self, processes: int) -> None:
        super().__init__(("127.0.0.1", 0), Caller)
        self.port: int = self.server_address[1]
        self.all_here = threading.Barrier(processes, action=self._add)
        self.given: list[list[int]] = []
        self.sums: list[int] = []
        self.members: set[object] = set()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def _add(self) -> None:
        self.sums, self.given = [sum(column) for column in zip(*self.given, strict=True)], []

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Caller(socketserver.StreamRequestHandler):
    """One process; or a sidecar that looks whether the store serves, and says nothing."""

    server: Store

    def handle(self) -> None:
        for line in self.rfile:
            self.server.members.add(self)
            self.server.given.append(json.loads(line))
            self.server.all_here.wait()
            self.wfile.write(json.dumps(self.server.sums).encode() + b"\n")

    def finish(self) -> None:
        self.server.members.discard(self)


class Script:
    """The training process of one round."""

    def __init__(self, command: list[str], handed: Round, stop_seconds: float) -> None:
        self.rank, self._stop_seconds = handed.rank, stop_seconds
        self._said = Path(tempfile.mkdtemp(), "error.json")  # where the plug-in leaves the exception that ends it
        environment = {
            "RANK": handed.rank,
            "LOCAL_RANK": 0,
            "GROUP_RANK": handed.rank,
            "WORLD_SIZE": handed.world_size,
            "LOCAL_WORLD_SIZE": 1,
            "GROUP_WORLD_SIZE": handed.world_size,
            "MASTER_ADDR": handed.store.host,
            "MASTER_PORT": handed.store.port,
            "TORCHELASTIC_RUN_ID": handed.run_id,
            "TORCHELASTIC_ERROR_FILE": self._said,
            SUMS: 1,
        }
        changed = {name: str(value) for name, value in environment.items()}
        self._process = subprocess.Popen([sys.executable, *command], env=os.environ | changed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(self._stop_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def failure(self) -> Failure:
        """As the plug-in tells of one."""
        code = self._process.returncode
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        said = json.loads(self._said.read_text())["message"]["message"] if self._said.exists() else ""
        kind = FailureKind.SIGNAL if code < 0 else FailureKind.MESSAGE if said else FailureKind.EXIT_CODE
        detail = f"rank {self.rank}, {how}" + (f": {said}" if said else "")
        return Failure(detail, code if code >= 0 else 128 - code, kind)


def train(membership: AgentMembership, handed: Round, command: list[str], stop_seconds: float) -> Failure | None:
    """One round, from its store to its end; what failed, None after success."""
    store = Store(handed.world_size) if handed.rank == 0 else None
    try:
        if store:
            membership.post_store(handed, store.port)
        else:
            membership.await_store(handed, time.monotonic() + STORE_SECONDS)
        membership.use(handed)
        log.info("round %d: rank %d of %d", handed.number, handed.rank, handed.world_size)
        script, stalls = Script(command, handed, stop_seconds), StallInspector(membership.tell_processes)
        try:
            while script.code is None:
                if membership.notice_change():
                    return NO_FAILURE
                stalls.look(membership.view, [script.pid])
                time.sleep(LOOK_SECONDS)
        finally:
            script.stop()
        if script.code:
            return script.failure()
        membership.finish()
        deadline = time.monotonic() + PARTING_SECONDS
        while store and store.members and time.monotonic() < deadline and not membership.has_ended(handed.number):
            time.sleep(LOOK_SECONDS)
        return None
    finally:
        if store:
            store.close()


def run(membership: AgentMembership, command: list[str], stop_seconds: float) -> int | str:
    """Round after round; returns what to exit with."""
    failure: Failure | None = NO_FAILURE
    while failure is not None:
        try:
            handed = membership.join(failure)
        except StageFinished as error:
            log.info("nothing left to do: %s", error)
            return 0
        except Leaving as error:
            log.info("this worker ends: %s", error)
            return LEFT_EXIT_CODE
        except Closed as error:
            return LEFT_EXIT_CODE if error.outcome == "Complete" else str(error)
        try:
            failure = train(membership, handed, command, stop_seconds)
        except (RoundBroken, NoTrainer) as error:
            log.info("round %d is passed over: %s", handed.number, error)
            membership.give_up(handed)
            failure = NO_FAILURE
    return 0


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="elasticjob: %(message)s")
    hear_signals(lambda number: Stopped(number.name))
    environ = os.environ
    if start := environ.get("STAND_IN_START"):  # a stand-in kubelet's containers have this machine's first process
        agent.start_of_container = lambda: start
    settings = parse_settings(environ["PET_RDZV_ENDPOINT"], environ["PET_RDZV_ID"], {}, environ)
    membership = AgentMembership(settings)
    stopped = False
    try:
        membership.open()
        leave_mark(settings.run_id)
        code = run(membership, sys.argv[1:], settings.stop_timeout or 0)
    except Stopped as signalled:
        stopped, code = True, f"stopped by {signalled}"
    except (CannotRunHere, SidecarError) as error:
        code = f"elasticjob: {error}"
    membership.end(stopped=stopped)
    sys.exit(code)


if __name__ == "__main__":
    main()
