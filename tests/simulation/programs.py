# SPDX-License-Identifier: Apache-2.0
"""The real sidecar and the plug-in's agents in the pods of a world."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from simulation import sidecars
from simulation.containers import Sandbox
from simulation.lives import Life, Verdict
from simulation.loop import PROCESS
from simulation.pipes import Internet
from simulation.sidecars import SidecarProgram
from simulation.trainers import TrainerProgram
from simulation.views import Views
from simulation.world import World


class RealPrograms:
    """What a `World` starts in its pods. `views` judges what trainers are told; it is to `see` each change of the
    store."""

    def __init__(self) -> None:
        self.views = Views()
        self._internet: Internet | None = None

    def sidecar(self, pod: Sandbox) -> SidecarProgram:
        return SidecarProgram(pod, self._connected(pod))

    def trainer(self, pod: Sandbox) -> TrainerProgram:
        return TrainerProgram(pod, self._connected(pod), self.views)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Meanwhile the product's sidecar opens no socket."""
        errors = _Errors(self.views)
        server = logging.getLogger("aiohttp.server")
        server.addHandler(errors)
        server.propagate = False
        try:
            with sidecars.stand_ins():
                yield
        finally:
            server.removeHandler(errors)
            server.propagate = True

    def _connected(self, pod: Sandbox) -> Internet:
        if self._internet is None:
            self._internet = Internet(pod.loop, pod.dice)
        return self._internet


class _Errors(logging.Handler):
    """What the trainer API's handlers raise, and nobody expects."""

    def __init__(self, views: Views) -> None:
        super().__init__(logging.ERROR)
        self._views = views

    def emit(self, record: logging.LogRecord) -> None:
        if asyncio._get_running_loop() is not None:  # else what was under way at the end is being closed
            error = record.exc_info[1] if record.exc_info else None
            self._views.complain(f"the trainer API: {record.getMessage()}: {error!r}")


class _Said(logging.Handler):
    """What the plug-in logs is in the history."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        self._world.say(process.name if process else "", record.levelname.lower(), record.getMessage())


class WholeLife(Life):
    """The life of one seed, with the real sidecars and what trainers are told of it."""

    def __init__(self, seed: int) -> None:
        self._programs = RealPrograms()
        super().__init__(seed, self._programs)
        world, views = self.world, self._programs.views
        views.complain = self.judge.complain
        world.server.store.observers.append(lambda change: views.see(change, world.loop.time()))

    def run(self) -> Verdict:
        plugin, said = logging.getLogger("elasticjob_torch"), _Said(self.world)
        plugin.addHandler(said)
        plugin.propagate = False
        try:
            with self._programs.in_place():
                return super().run()
        finally:
            plugin.removeHandler(said)
            plugin.propagate = True

    async def _quiet(self) -> None:
        self._programs.views.calm_since = self.world.loop.time()
        await super()._quiet()
