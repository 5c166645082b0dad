"""The processes of the benchmark: the operator, and as many with handlers or sidecars as so many agents need."""

import asyncio
import contextlib
import math
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp

from rounds import floor, ours
from rounds.api import CUSTOM, Api, ApiError
from rounds.child import Child
from rounds.ours import NAMESPACE

BUILD = Path("build")
HANDLERS_IN_A_PROCESS, SIDECARS_IN_A_PROCESS = 64, 32  # a handler loads torch: half a gigabyte for each process
HEALTH_PORT = 18080
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
ROOM_SECONDS = 180.0
CORE = "/api/v1/namespaces"


@contextlib.contextmanager
def _children(module: str, number: int, *arguments: str) -> Iterator[list[Child]]:
    started = [Child(module, *arguments) for _ in range(number)]
    try:
        yield started
    finally:
        for child in started:
            child.kill()


def handler_processes(agents: int) -> contextlib.AbstractContextManager[list[Child]]:
    return _children("rounds.handlers", math.ceil(agents / HANDLERS_IN_A_PROCESS))


@contextlib.contextmanager
def sidecar_processes(api: Api, agents: int, *options: str) -> Iterator[list[Child]]:
    authority = BUILD / "bench-ca.crt"
    authority.write_text(api.authority)
    number = math.ceil(agents / SIDECARS_IN_A_PROCESS)
    with _children("rounds.sidecars", number, str(authority), api.host, api.port, *options) as started:
        yield started


@contextlib.asynccontextmanager
async def operator(api: Api, *module: str) -> AsyncIterator[int]:
    """The operator's own process on this machine, for the benchmark's namespace only; the installed one rests.

    Yields its process id. `module` and its arguments run it in place of its own.
    """
    deployment = "/apis/apps/v1/namespaces/elasticjob-system/deployments/elasticjob-operator/scale"
    installed = (await api.call("GET", deployment))["spec"].get("replicas") or 2  # 0: an earlier run was killed
    await api.patch(deployment, {"spec": {"replicas": 0}})
    await make_room(api)
    await api.call("POST", CORE, {"metadata": {"name": NAMESPACE}})
    flags = [
        "--sidecar-image=none",
        f"--namespaces={NAMESPACE}",
        f"--lease-namespace={NAMESPACE}",
        f"--health-port={HEALTH_PORT}",
        "--log-level=warning",
    ]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *(module or ("elasticjob_operator",)), *flags)
    try:
        await ready(f"http://127.0.0.1:{HEALTH_PORT}/readyz")
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            process.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
        await make_room(api)
        await api.patch(deployment, {"spec": {"replicas": installed}})


def cpu_seconds(pid: int) -> float:
    """What a process of this machine has had of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def make_room(api: Api) -> None:
    """Delete what this run, or one that was killed, has left: a thousand silent workers would keep an operator busy."""
    async with asyncio.timeout(ROOM_SECONDS):
        while left := [name for name in await _namespaces(api) if name.startswith((floor.PREFIX, ours.PREFIX))]:
            for name in left:
                paths = (f"{CUSTOM}/namespaces/{name}/elasticjobs", f"{CORE}/{name}/pods", f"{CORE}/{name}")
                for path in paths:
                    with contextlib.suppress(ApiError):  # gone by now, or going
                        await api.text("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
            await asyncio.sleep(1)


async def _namespaces(api: Api) -> list[str]:
    return [one["metadata"]["name"] for one in (await api.call("GET", CORE))["items"]]


async def ready(url: str) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(READY_SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
