# SPDX-License-Identifier: Apache-2.0
"""A container of a pod in virtual time: its process, and how it ends.

The programs that run in a worker's pod are given by `Programs`; to them a pod is a `Sandbox`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from simulation.loop import NOBODY, Process, VirtualLoop
from simulation.network import Network
from simulation.store import Object
from support import kubelet
from support.kubelet import KILLED
from support.pod_life import environment

if TYPE_CHECKING:
    from simulation.pods import PodRun


@dataclass
class Plan:
    """What a job's training does, and which of its mistakes.

    `seconds`: of training in one unbroken round until it ends in success; None for a training without an end. `stages`:
    how many such trainings each container runs one after the other, and `uploads` seconds at most pass after each. The
    rest are chances of each start of a trainer: that it fails within its round, crashes before it joins, is killed,
    hangs, or closes the rendezvous, and that its container fails after a success; and `doomed` is a training that fails
    each time. `live`: the chance that the processes of a trainer live through changes of the group. `busy`: the chance
    that they are busy when one comes.
    """

    seconds: float | None = 30.0
    fails: float = 0.0
    crashes: float = 0.0
    killed: float = 0.0
    hangs: float = 0.0
    closes: float = 0.0
    doomed: bool = False
    sidecar_crashes: float = 0.0
    saves: float = 0.0
    stages: int = 1
    uploads: float = 0.0
    upload_fails: float = 0.0
    live: float = 0.0
    busy: float = 0.0
    spread: float = 0.0  # seconds that one member may take longer than another to its end


@dataclass(eq=False)
class Sandbox:
    """A pod on its node, as the programs in it see it. Its files outlive its containers, and nothing outlives it."""

    loop: VirtualLoop
    dice: Random
    network: Network  # to the API server; all containers of the pod share it
    namespace: str
    name: str
    uid: str
    ip: str
    node: str
    spec: Object
    plan: Plan
    files: dict[str, Any] = field(default_factory=dict)
    ports: dict[int, Any] = field(default_factory=dict)  # who listens on loopback, for the other containers
    addresses: dict[str, Any] = field(default_factory=dict)  # who listens on which address and port of the cluster
    facts: dict[str, Any] = field(default_factory=dict)  # of the job, shared by its pods: what the training has reached
    say: Callable[[str, str], None] = lambda what, detail: None  # one line of the history

    def env(self, container: str) -> dict[str, str]:
        both = [*self.spec.get("initContainers", ()), *self.spec["containers"]]
        found = next(one for one in both if one["name"] == container)
        meta = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        return environment(found, {"metadata": meta}, self.ip, self.node)


class Program(Protocol):
    """What runs in a container. An exception out of `run` is a crash with exit code 1."""

    async def run(self) -> int:
        """Its exit code."""
        ...

    def terminate(self) -> None:
        """SIGTERM."""
        ...


class Programs(Protocol):
    def sidecar(self, pod: Sandbox) -> Program: ...
    def trainer(self, pod: Sandbox) -> Program: ...


class Sleeper:
    """Any other container: it ends with `code` after `seconds`, or at SIGTERM."""

    def __init__(self, seconds: float, code: int = 0) -> None:
        self._seconds, self._code = seconds, code
        self._stop = asyncio.Event()

    async def run(self) -> int:
        try:
            async with asyncio.timeout(self._seconds):
                await self._stop.wait()
        except TimeoutError:
            return self._code
        return 143

    def terminate(self) -> None:
        self._stop.set()


class Container:
    """The process of one container, over all its starts, as `support.kubelet` has them begin and end."""

    def __init__(self, run: "PodRun", name: str, make: Callable[[], Program]) -> None:
        self.name, self.process = name, Process(run.nodes.loop, f"{run.place[1]}/{name}", skew=run.node.skew)
        self._run_of, self._make = run, make
        self._program: Program | None = None
        self._ended: asyncio.Future[int] = run.nodes.loop.create_future()
        self._stopping = False

    @property
    def _told(self) -> kubelet.Container:
        return self._run_of.pod.containers[self.name]

    @property
    def running(self) -> bool:
        return self._told.runs

    async def keep(self) -> int:
        """Starts it, and again for as long as the kubelet does; returns the last exit code."""
        run, dice = self._run_of, self._run_of.nodes.dice
        while True:
            await run.power.wait()
            if self._stopping:  # by a kubelet that came back before it
                return KILLED
            code = await self._once()
            killed_for_memory = code == KILLED and dice.random() < 0.3
            run.note(kubelet.ended, self.name, run.now, code, "OOMKilled" if killed_for_memory else "")
            wait = kubelet.next_start(run.pod, self.name)
            if self._stopping or wait is None:
                return code
            await asyncio.sleep(dice.uniform(0.3, 1.5))
            if wait:
                run.note(kubelet.backs_off, self.name)
                await asyncio.sleep(wait * dice.uniform(0.9, 1.1))
            if self._stopping:
                run.pod = kubelet.gives_up(run.pod, self.name)  # told with what comes next
                return code

    async def _once(self) -> int:
        run, starts = self._run_of, self._told.starts
        self.process = Process(run.nodes.loop, f"{run.place[1]}/{self.name}.{starts}", skew=run.node.skew)
        self._ended = run.nodes.loop.create_future()
        work = self.process.start(self._run())
        work.add_done_callback(self._on_end, context=NOBODY)
        run.note(kubelet.started, self.name, run.now)
        return await self._ended

    async def _run(self) -> int:
        self._program = self._make()
        return await self._program.run()

    def _on_end(self, work: "asyncio.Task[int]") -> None:
        if self._ended.done():
            return
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self._run_of.nodes.on_crash(self.process.name, error)
        code = 1 if error is not None or work.cancelled() else work.result()
        self._over(code)

    def _over(self, code: int) -> None:
        self.process.kill()
        if not self._ended.done():
            self._ended.set_result(code)

    def terminate(self) -> None:
        """SIGTERM; it is not started again."""
        self._stopping = True
        if self.running and self._program is not None:
            self.process.call(self._program.terminate)

    def kill(self, *, for_good: bool = False) -> None:
        """SIGKILL, by the kernel or the kubelet."""
        self._stopping = self._stopping or for_good
        if self.running:
            self._over(KILLED)
