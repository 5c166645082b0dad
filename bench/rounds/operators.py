# SPDX-License-Identifier: Apache-2.0
"""The operator's own process, for the benchmark's namespace only, while the installed one rests.

It is the installed one's service account, whose requests have a priority level of their own in the API server: as the
administrator it would wait behind the requests of the benchmark.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from rounds import floor, ours
from rounds.api import CUSTOM, Api
from rounds.ours import NAMESPACE
from support import credentials
from support.api_client import ApiError
from support.ports import free_port

SYSTEM, ACCOUNT = "elasticjob-system", "elasticjob-operator"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/elasticjob-operator/scale"
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.02
ROOM_SECONDS = 180.0
CORE = "/api/v1/namespaces"
TOKEN_SECONDS = 4 * 3600


class Operator:
    """A process of `module`, with the options of this benchmark."""

    def __init__(self, kubeconfig: Path, *module: str) -> None:
        self._kubeconfig = kubeconfig
        self._module = module or ("elasticjob_operator",)
        self._port = 0
        self._started: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _process(self) -> asyncio.subprocess.Process:
        assert self._started is not None, "start() comes first"
        return self._started

    async def start(self) -> None:
        """Returns before it is ready."""
        self._port = free_port()  # or another benchmark's operator might answer for this one
        flags = [
            "--sidecar-image=none",
            f"--namespaces={NAMESPACE}",
            f"--lease-namespace={NAMESPACE}",
            f"--health-port={self._port}",
            "--log-level=warning",
        ]
        command = [sys.executable, "-m", *self._module, *flags]
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        self._started = await asyncio.create_subprocess_exec(*command, env=environment)

    async def ready(self) -> None:
        """Wait until it says so to a kubelet."""
        url, deadline = f"http://127.0.0.1:{self._port}/readyz", asyncio.get_running_loop().time() + READY_SECONDS
        async with aiohttp.ClientSession() as http:
            while asyncio.get_running_loop().time() < deadline:
                if self._process.returncode is not None:
                    raise RuntimeError(f"the operator ended with code {self._process.returncode} before it was ready")
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(url) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(LOOK_SECONDS)
        raise TimeoutError(f"the operator was not ready within {READY_SECONDS:g} s")

    async def stop(self) -> None:
        """SIGTERM, on which it gives its Lease up; nothing where it does not run."""
        if self._started is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await self._process.wait()


@contextlib.asynccontextmanager
async def at_rest(api: Api) -> AsyncIterator[None]:
    """The installed operator has no pods, and the benchmark's namespace is there; both undone afterwards."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or what is made here would be left
    installed = (await api.call("GET", DEPLOYMENT))["spec"].get("replicas") or 2  # 0: an earlier run was killed
    await api.patch(DEPLOYMENT, {"spec": {"replicas": 0}})
    await make_room(api)
    await api.call("POST", CORE, {"metadata": {"name": NAMESPACE}})
    try:
        yield
    finally:
        await make_room(api)
        await api.patch(DEPLOYMENT, {"spec": {"replicas": installed}})


async def write_kubeconfig(api: Api, path: Path) -> None:
    """The service account's, which may do all in the benchmark's namespace, where the installed role has no Lease."""
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]}
    await api.call("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings", binding)
    request = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    answer = await api.call("POST", f"{CORE}/{SYSTEM}/serviceaccounts/{ACCOUNT}/token", request)
    credentials.write_private(path, credentials.kubeconfig(api.server, api.authority, answer["status"]["token"]))


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
