# SPDX-License-Identifier: Apache-2.0
"""The kinds of lives: the whole, the workers' half under more trouble, also with a spare, the operator's half, which is
quickest, and the whole with what few jobs use."""

import gc
from collections.abc import Callable

from aiohttp import web_app

from simulation.gang_lives import GangLife
from simulation.lives import Life, Verdict
from simulation.programs import WholeLife
from simulation.sidecars import certificates
from simulation.stubs import StubPrograms
from simulation.worker_lives import SpareLife, WorkerLife
from support.pod_life import new_credentials


def _operator_life(seed: int) -> Life:
    return Life(seed, StubPrograms(new_credentials().certificate))


KINDS: dict[str, Callable[[int], Life]] = {
    "whole": WholeLife,
    "workers": WorkerLife,
    "operator": _operator_life,
    "spares": SpareLife,
    "gangs": GangLife,
}


def kind_of(seed: int) -> str:
    """Each seed is of one kind, the next of the next."""
    return list(KINDS)[seed % len(KINDS)]


def live(seed: int) -> Verdict:
    certificates()  # made once, before there is a seed: keys are never the same
    gc.disable()  # what is freed may close a connection, and has to do so at no other moment the next time
    try:
        return KINDS[kind_of(seed)](seed).run()
    finally:
        web_app._cached_build_middleware.cache_clear()  # else aiohttp keeps the last sidecars and their worlds
        gc.enable()
        gc.collect()
