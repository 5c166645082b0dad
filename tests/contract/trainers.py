# SPDX-License-Identifier: Apache-2.0
"""The container runtime of a job's trainers: a torchrun for each pod, started and stopped as the pod says.

Each torchrun is a process of its own, forked from one that has imported torch: the same code as the command's, without
the seconds that its start takes. With `real` it is started as people do it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from contract.agents import SECONDS, until
from contract.forked import fork_training, forks
from elasticjob_torch.agent import membership
from elasticjob_torch.agent.orphans import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from contract.plane import Job, View

WORKER = Path(__file__).with_name("worker.py")
PR_SET_PDEATHSIG = 1
VIEW_SECONDS = 0.5
LOOK_SECONDS = 0.05
START = "CONTRACT_START"  # which start of its container a torchrun is in
BREAKS = 3  # the exit code of a container that breaks


class Torchrun(Protocol):
    """A torchrun that was started, as `multiprocessing` shows a process."""

    @property
    def pid(self) -> int | None: ...

    @property
    def exitcode(self) -> int | None: ...

    def kill(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


class Trainers:
    """Runs `torchrun OPTIONS SCRIPT` in each pod of `job`, between `start` and `stop`; after its success the one in
    `following`, as a shell does with `&&` between them.

    `directory` is for the scripts' events and orders, see `worker.py`; `ended` holds pod and exit code of each torchrun
    that has ended, in order.
    """

    def __init__(self, job: Job, directory: Path, command: Sequence[str] = (str(WORKER),), **environment: str) -> None:
        self.job, self.directory, self.command = job, directory, list(command)
        self.of_pod: dict[str, list[str]] = {}  # another command for some pods
        self.following: list[str] = []
        self.breaks: set[str] = set()  # pods whose container is to fail once between the two
        self.not_yet: set[str] = set()  # pods whose torchrun is not to be started yet
        self.ended: list[tuple[str, int]] = []
        self.folder = Path.cwd()  # where torchrun is started
        self.prepare: Callable[[], None] | None = None  # what its process does first; to be pickled
        self.forks_training = False  # training processes begin with torch imported: for scripts that import it
        self.real = False  # no process of this job is a fork
        self.environment_of: dict[str, dict[str, str]] = {}  # more variables, by pod
        self._environment = environment
        self._running: dict[str, Torchrun] = {}
        self._started: dict[str, int] = {}  # by the uids of pods: another pod may have the name of one that is gone
        self._follows: set[str] = set()  # pods whose second torchrun runs
        self._stopping = threading.Event()
        self._pods: list[View] = []  # as they were last seen
        self._news = threading.Event()
        self._watching = threading.Thread(target=self._watch, name=f"{job.name} pods", daemon=True)
        self._thread = threading.Thread(target=self._follow, name=f"{job.name} trainers", daemon=True)
        (directory / "events").touch()

    def start(self) -> None:
        self._watching.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._watching.join(SECONDS)
        self._thread.join(SECONDS)
        for process in self._running.values():
            process.kill()
            process.join(SECONDS)

    # --- what a test does

    def order(self, name: str) -> None:
        """Tell the scripts how to end."""
        (self.directory / name).touch()

    def kill(self, pod: str) -> None:
        """Kill a pod's torchrun."""
        self._running[pod].kill()

    def pid(self, pod: str) -> int:
        """Of a pod's torchrun."""
        return self._running[pod].pid or 0

    def events(self) -> list[View]:
        """What the scripts said when they started, in order."""
        return [json.loads(line) for line in (self.directory / "events").read_text().splitlines()]

    def group(self, size: int, after: int = 0, seconds: float = SECONDS) -> list[str]:
        """The pods of a group of `size` in rank order, once all its scripts run, each of those in one pod.

        Only the events from number `after` on count.
        """

        def whole() -> list[str] | None:
            events = self.events()[after:]
            latest = {event["pod"]: event for event in events}
            members = [event for event in latest.values() if event["GROUP_WORLD_SIZE"] == str(size)]
            by_rank = {int(event["GROUP_RANK"]): event["pod"] for event in members}
            if not len(members) == len(by_rank) == size:
                return None
            places = {(event["pod"], event["GROUP_RANK"], event["WORLD_SIZE"]) for event in members}
            now = [event for event in events if (event["pod"], event["GROUP_RANK"], event["WORLD_SIZE"]) in places]
            started = {event["RANK"] for event in now}
            return [by_rank[rank] for rank in range(size)] if len(started) == int(members[0]["WORLD_SIZE"]) else None

        return until(whole, f"a group of {size}", seconds, seen=self.events) or []

    def codes(self, count: int, seconds: float = SECONDS) -> list[int]:
        """The exit codes of the torchruns, once `count` have ended."""
        until(lambda: len(self.ended) >= count, f"{count} torchruns to end", seconds, seen=lambda: self.ended)
        return [code for _, code in self.ended]

    # --- what a kubelet does

    def _watch(self) -> None:
        """Ask for what is new, which the cluster answers when there is something."""
        version = 0
        while not self._stopping.is_set():
            view = self.job.view(version, VIEW_SECONDS)
            version = view["version"]
            self._pods = view["pods"]
            self._news.set()

    def _follow(self) -> None:
        """Do what was last seen of the pods. Their processes' ends are looked for between, without a question to the
        cluster: some jobs that ask it twenty times a second take a fifth of a processor."""
        while not self._stopping.is_set():
            for pod in self._pods:
                self._obey(pod)
            self._reap()
            self._news.wait(LOOK_SECONDS)
            self._news.clear()

    def _obey(self, pod: View) -> None:
        name = pod["name"]
        if pod["deleting"]:
            if name in self._running and pod["runs"]:
                with contextlib.suppress(ProcessLookupError, TypeError):
                    os.kill(self._running[name].pid or 0, signal.SIGTERM)
            elif pod["runs"]:
                self.job.exited(name, 143)
        elif name in self.not_yet:
            return
        elif pod["runs"] and self._started.get(pod["uid"], 0) < pod["starts"] and name not in self._running:
            self._started[pod["uid"]] = pod["starts"]
            self._follows.discard(name)
            self._running[name] = self._run(pod)

    def start_another(self, pod: str) -> Torchrun:
        """Start one more torchrun in a pod, as somebody may by hand."""
        view = self._pod(pod)
        assert view is not None
        return self._run(view, "another")

    def _run(self, pod: View, log_name: str = "trainer") -> Torchrun:
        name = pod["name"]
        command = self.following if name in self._follows else self.of_pod.get(name, self.command)
        environment = {
            **pod["environment"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            START: str(pod["starts"]),
            "CONTRACT": str(self.directory),
            "CONTRACT_POD": name,
            **self._environment,
            **self.environment_of.get(name, {}),
        }
        log = self.job.plane.logs / f"{name}-{log_name}.log"
        return self.start_torchrun(command, environment, log)

    def start_torchrun(self, command: list[str], environment: dict[str, str], log: Path) -> Torchrun:
        if self.real:
            return StartedTorchrun(command, environment, log, self.folder)
        begin = (self.folder, self.prepare, self.forks_training)
        process = forks.Process(target=_torchrun, args=(command, environment, log, *begin))
        process.start()
        return process

    def _reap(self) -> None:
        for name, process in list(self._running.items()):
            if process.exitcode is not None:
                del self._running[name]
                self.ended.append((name, process.exitcode))
                self._go_on(name, process.exitcode)

    def _go_on(self, name: str, code: int) -> None:
        """What the container does after a torchrun: the next, or it ends."""
        goes_on = code == 0 and self.following and name not in self._follows
        if goes_on and name in self.breaks:
            self.breaks.remove(name)
            self.job.exited(name, BREAKS)
        elif goes_on and (pod := self._pod(name)) is not None:
            self._follows.add(name)
            self._running[name] = self._run(pod)
        else:
            self.job.exited(name, code)

    def _pod(self, name: str) -> View | None:
        return next((each for each in self.job.view()["pods"] if each["name"] == name), None)


class StartedTorchrun:
    """A `Torchrun` that is no fork."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, folder: Path) -> None:
        line = [sys.executable, "-m", "torch.distributed.run", *command]
        ours = {name: value for name, value in os.environ.items() if name != MARK}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                line,
                env={**ours, **environment},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        self._process.wait(timeout)


@contextlib.contextmanager
def trainers(
    job: Job,
    directory: Path,
    *arguments: Any,
    forks_training: bool = False,
    of_pod: dict[str, list[str]] | None = None,
    **environment: str,
) -> Iterator[Trainers]:
    """Started, and stopped at the end."""
    runtime = Trainers(job, directory, *arguments, **environment)
    runtime.forks_training, runtime.of_pod = forks_training, of_pod or {}
    runtime.start()
    try:
        yield runtime
    finally:
        runtime.stop()


def _torchrun(
    command: list[str],
    environment: dict[str, str],
    log: Path,
    folder: Path,
    prepare: Callable[[], None] | None,
    forks_training: bool,
) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with log.open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # else a line may be torn by a block's end
    os.chdir(folder)
    if forks_training:
        fork_training()
    os.environ.pop(MARK, None)  # of a handler in the tests' own process
    os.environ.update(environment)
    sys.argv = ["torchrun", *command]
    membership.start_of_container = lambda: environment[START]  # all have this container's first process
    from torch.distributed.run import main

    if prepare is not None:
        prepare()
    try:
        main(command)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        os._exit(ended.code if isinstance(ended.code, int) else 1 if ended.code else 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        os._exit(1)
