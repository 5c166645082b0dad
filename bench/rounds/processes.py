"""The processes of the benchmark: the operator, and as many with handlers or sidecars as so many agents need."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from rounds.api import Api
from rounds.child import Child
from rounds.operators import Operator, at_rest

BUILD = Path("build")
AGENTS_IN_A_PROCESS = 128


@contextlib.contextmanager
def children(module: str, agents: int, *arguments: str) -> Iterator[list[Child]]:
    """As many processes as so many agents or sidecars need."""
    started = [Child(module, *arguments) for _ in range(-(-agents // AGENTS_IN_A_PROCESS))]
    try:
        yield started
    finally:
        for child in started:
            child.kill()


@contextlib.contextmanager
def sidecar_processes(api: Api, agents: int, *options: str) -> Iterator[list[Child]]:
    authority = BUILD / "bench-ca.crt"
    authority.write_text(api.authority)
    with children("rounds.sidecars", agents, str(authority), api.host, api.port, *options) as started:
        yield started


@contextlib.asynccontextmanager
async def operator(api: Api, *module: str) -> AsyncIterator[int]:
    """One that is ready; yields its process id. `module` and its arguments run it in place of its own."""
    async with at_rest(api):
        running = Operator(*module)
        await running.start()
        try:
            await running.ready()
            yield running.pid
        finally:
            await running.stop()
