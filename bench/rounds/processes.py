# SPDX-License-Identifier: Apache-2.0
"""The processes of the benchmark: the operator, and as many with handlers or sidecars as so many agents need."""

import contextlib
import math
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from rounds.api import Api
from rounds.child import Child, starter
from rounds.operators import Operator, at_rest, write_kubeconfig

BUILD = Path("build")
# how many are in a process, and how many processes there are at most: one that has handlers takes a quarter of a
# gigabyte for torch, and one with sidecars a tenth
HANDLERS, SIDECARS = (64, 16), (32, 32)
HANDLERS_NICE = 19  # an agent calls when no sidecar has work: thousands that wait together would all be too late


@contextlib.contextmanager
def _children(module: str, number: int, *arguments: str, nice: int = 0) -> Iterator[list[Child]]:
    started = [Child(module, *arguments, nice=nice) for _ in range(number)]
    try:
        for child in started:
            child.tell("ready")
        for child in started:  # or importing torch so many times would go on while they form a round
            child.answer()
        yield started
    finally:
        for child in started:
            child.kill()


def _number(agents: int, in_a_process: int, most: int) -> int:
    return min(most, math.ceil(agents / in_a_process))


def handler_processes(agents: int) -> contextlib.AbstractContextManager[list[Child]]:
    return _children("rounds.handlers", _number(agents, *HANDLERS), nice=HANDLERS_NICE)


@contextlib.contextmanager
def sidecar_processes(api: Api, agents: int, *options: str) -> Iterator[list[Child]]:
    authority = BUILD / "bench-ca.crt"
    authority.write_text(api.authority)
    number = _number(agents, *SIDECARS)
    with _children("rounds.sidecars", number, str(authority), api.host, api.port, *options) as started:
        yield started


@contextlib.asynccontextmanager
async def operator(api: Api, *module: str) -> AsyncIterator[int]:
    """One that is ready; yields its process id. `module` and its arguments run it in place of its own."""
    starter()  # which waits for a first connection, and the floor of a large job takes longer than it waits
    async with at_rest(api):
        kubeconfig = BUILD / "bench-operator.kubeconfig"
        await write_kubeconfig(api, kubeconfig)
        running = Operator(kubeconfig, *module)
        await running.start()
        try:
            await running.ready()
            yield running.pid
        finally:
            await running.stop()
            kubeconfig.unlink()


def cpu_seconds(pid: int) -> float:
    """What a process of this machine has had of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
