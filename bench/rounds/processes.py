"""The processes of the benchmark: the operator, and as many with handlers or sidecars as so many agents need."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp

from rounds import floor
from rounds.api import Api, ApiError
from rounds.child import Child
from rounds.ours import NAMESPACE

BUILD = Path("build")
AGENTS_IN_A_PROCESS = 128
HEALTH_PORT = 18080
READY_SECONDS = 60.0
STOP_SECONDS = 30.0


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
    """The operator's own process on this machine, for the benchmark's namespace only; the installed one rests.

    Yields its process id. `module` and its arguments run it in place of its own.
    """
    deployment = "/apis/apps/v1/namespaces/elasticjob-system/deployments/elasticjob-operator/scale"
    installed = (await api.call("GET", deployment))["spec"].get("replicas") or 2  # 0: an earlier run was killed
    await api.patch(deployment, {"spec": {"replicas": 0}})
    try:
        await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    except ApiError as error:
        if error.status != 409:
            raise
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
        process.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
        await api.patch(deployment, {"spec": {"replicas": installed}})
        for namespace in (NAMESPACE, floor.NAMESPACE):
            await api.text("DELETE", f"/api/v1/namespaces/{namespace}")


async def ready(url: str) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(READY_SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
