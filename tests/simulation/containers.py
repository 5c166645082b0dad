"""A container of a pod: its process, how it ends, and how often it is started again.

The programs that run in a worker's pod are given by `Programs`; to them a pod is a `Sandbox`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from simulation.loop import NOBODY, Process, VirtualLoop
from simulation.network import Network
from simulation.store import Object

KILLED = 137
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 10.0, 300.0


@dataclass
class Plan:
    """What a job's training does, and which of its mistakes.

    `seconds`: of training in one unbroken round until it ends in success; None for a training without an end. The
    rest are chances of each start of a trainer: that it fails within its round, crashes before it joins, is killed,
    hangs, or closes the rendezvous; and `doomed` is a training that fails each time.
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
        """Its variables, those of the downward API among them."""
        known = {
            "metadata.namespace": self.namespace,
            "metadata.name": self.name,
            "metadata.uid": self.uid,
            "status.podIP": self.ip,
            "spec.nodeName": self.node,
        }
        both = [*self.spec.get("initContainers", ()), *self.spec["containers"]]
        found = next(one for one in both if one["name"] == container)
        values = {}
        for one in found.get("env", ()):
            path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            values[one["name"]] = known[path] if path else one.get("value", "")
        return values


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
    """One container, over all its starts. `on_change` is called when its status changes."""

    def __init__(
        self,
        loop: VirtualLoop,
        dice: Random,
        name: str,
        label: str,
        make: Callable[[], Program],
        skew: float,
        on_change: Callable[[], None],
        on_crash: Callable[[str, BaseException], None],
        power: Callable[[], Awaitable[object]],
    ) -> None:
        self.name, self.process, self.restarts = name, Process(loop, f"{label}/{name}", skew=skew), 0
        self.state: Object = {"waiting": {"reason": "PodInitializing"}}
        self.last: Object = {}
        self._loop, self._dice, self._label, self._make, self._skew = loop, dice, label, make, skew
        self._on_change, self._on_crash, self._power = on_change, on_crash, power
        self._program: Program | None = None
        self._ended: asyncio.Future[int] = loop.create_future()
        self._stopping = False

    @property
    def running(self) -> bool:
        return "running" in self.state

    async def keep(self, restarts: Callable[[int], bool]) -> int:
        """Starts it, and again for as long as `restarts` says so of its exit code; returns the last one."""
        backoff = 0.0
        while True:
            await self._power()
            if self._stopping:  # by a kubelet that came back before it
                return KILLED
            code = await self._once()
            ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
            if code == KILLED and self._dice.random() < 0.3:
                ended["reason"] = "OOMKilled"
            self.state, self.last = {"terminated": ended}, {}
            self._on_change()
            if self._stopping or not restarts(code):
                return code
            await asyncio.sleep(self._dice.uniform(0.3, 1.5))
            if backoff:
                self.state, self.last = {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": ended}
                self._on_change()
                await asyncio.sleep(backoff * self._dice.uniform(0.9, 1.1))
            if self._stopping:
                self.state, self.last = {"terminated": ended}, {}
                return code
            self.last = {"terminated": ended}
            self.restarts += 1
            backoff = min(max(FIRST_BACKOFF_SECONDS, 2 * backoff), LONGEST_BACKOFF_SECONDS)

    async def _once(self) -> int:
        self.process = Process(self._loop, f"{self._label}/{self.name}.{self.restarts}", skew=self._skew)
        self._ended = self._loop.create_future()
        work = self.process.start(self._run())
        work.add_done_callback(self._on_end, context=NOBODY)
        self.state = {"running": {}}
        self._on_change()
        return await self._ended

    async def _run(self) -> int:
        self._program = self._make()
        return await self._program.run()

    def _on_end(self, work: "asyncio.Task[int]") -> None:
        if self._ended.done():
            return
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self._on_crash(self.process.name, error)
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

    def status(self) -> Object:
        found: Object = {"name": self.name, "restartCount": self.restarts, "state": self.state}
        found["started"] = found["ready"] = self.running
        return found | ({"lastState": self.last} if self.last else {})
