# SPDX-License-Identifier: Apache-2.0
"""The operator's process with the chart's memory limit, and what it and the kernel say of it.

With a Docker daemon it is the project's own image in a container, which is killed beyond the limit. Without one it is a
process whose writable memory has that limit, be it touched or not: Python then raises MemoryError.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import aiohttp
import yaml
from rounds.logs import new_log, with_log

from fleet.lease import NAMESPACE
from fleet.objects import IMAGE as SIDECAR
from support import ControlPlane
from support.ports import free_port
from support.programs import DIES_WITH_PARENT
from support.waiting import until

VALUES = Path("charts/elasticjob/values.yaml")
IMAGE = "elasticjob/operator:bench"
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
LOOK_SECONDS, REQUEST_SECONDS, STOP_SECONDS = 0.5, 30.0, 60.0  # a look at the metrics takes its time, too


def chart_limit() -> int:
    """Bytes. Raises ValueError."""
    given = str(yaml.safe_load(VALUES.read_text())["resources"]["limits"]["memory"])
    if not (found := re.fullmatch(r"(\d+)(Ki|Mi|Gi)", given)):
        raise ValueError(f"{VALUES}: resources.limits.memory is {given!r}, and not a number of Ki, Mi or Gi")
    return int(found[1]) * UNITS[found[2]]


def has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0


def build_image() -> None:
    script = f'. hack/cluster/env.sh; build_image --target operator --tag {IMAGE} "$root"'
    subprocess.run(["bash", "-c", script], check=True)


class Started(Protocol):
    """One that runs."""

    pid: int

    def ended(self) -> str:
        """How it has ended; empty while it runs."""

    def stop(self) -> None:
        """By SIGTERM."""


class Process:
    def __init__(
        self, kubeconfig: Path, flags: list[str], log: Path, limit: int | None, samples: Path | None = None
    ) -> None:
        """`samples`: where it writes its stacks."""
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAME": "bench"}
        program = ["elasticjob_operator"] if samples is None else ["fleet.sampled", str(samples)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*DIES_WITH_PARENT, sys.executable, "-m", *program, *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self.pid = self._process.pid
        if limit is not None:
            resource.prlimit(self.pid, resource.RLIMIT_DATA, (limit, limit))

    def ended(self) -> str:
        code = self._process.poll()
        return "" if code is None else f"with code {code}"

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:  # it has told us its figures
            self._process.kill()
            self._process.wait()


class Container:
    def __init__(self, kubeconfig: Path, flags: list[str], log: Path, limit: int) -> None:
        self._name = f"elasticjob-bench-{secrets.token_hex(3)}"
        mount = f"{kubeconfig}:/kubeconfig:ro"
        # the kubeconfig is its owner's to read alone
        command = ["docker", "run", "--detach", "--name", self._name, "--network", "host", "--read-only"]
        command += [
            "--tmpfs",
            "/tmp",
            "--memory",
            str(limit),
            "--memory-swap",
            str(limit),
            "--user",
            f"{os.getuid()}:{os.getgid()}",
        ]
        command += ["--volume", mount, "--env", "KUBECONFIG=/kubeconfig", "--env", "POD_NAME=bench", IMAGE, *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self._log = log
        self.pid = int(self._state()["Pid"])

    def ended(self) -> str:
        state = self._state()
        if state["Running"]:
            return ""
        self._keep_log()
        return "out of memory" if state["OOMKilled"] else f"with code {state['ExitCode']}"

    def stop(self) -> None:
        subprocess.run(["docker", "stop", "--time", f"{STOP_SECONDS:.0f}", self._name], check=True, capture_output=True)
        self._keep_log()
        subprocess.run(["docker", "rm", self._name], check=True, capture_output=True)

    def _state(self) -> dict[str, str]:
        found = subprocess.run(["docker", "inspect", self._name], check=True, capture_output=True)
        return dict(json.loads(found.stdout)[0]["State"])

    def _keep_log(self) -> None:
        with self._log.open("wb") as output:
            subprocess.run(["docker", "logs", self._name], check=True, stdout=output, stderr=subprocess.STDOUT)


class Operator:
    def __init__(
        self, started: Started, port: int, log: Path, http: aiohttp.ClientSession, samples: Path | None = None
    ) -> None:
        self._started, self._port, self._log, self._http = started, port, log, http
        self._samples = samples

    @property
    def pid(self) -> int:
        return self._started.pid

    def mib(self) -> float:
        return self._kernel("VmRSS")

    def peak_mib(self) -> float:
        """Since its term began to be waited for."""
        return self._kernel("VmHWM")

    def _kernel(self, name: str) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024

    @contextlib.asynccontextmanager
    async def sampled(self) -> AsyncIterator[dict[str, int]]:
        """Its stacks until the end of the block, and how often each was found; only then are they there. None of an
        operator that writes no samples."""
        found: dict[str, int] = {}
        if self._samples is None:
            yield found
            return
        self._samples.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        yield found
        os.kill(self.pid, signal.SIGUSR2)
        await until(self._samples.exists, f"the operator's stacks in {self._samples}", REQUEST_SECONDS, LOOK_SECONDS)
        found |= json.loads(self._samples.read_text())

    async def metrics(self) -> dict[str, float]:
        """By name, the sum over all labels."""
        found: dict[str, float] = {}
        for line in (await self._page("metrics")).splitlines():
            if not line.startswith("#"):
                name, _, number = line.rpartition(" ")
                found[name.partition("{")[0]] = found.get(name.partition("{")[0], 0.0) + float(number)
        return found

    async def until(self, what: str, reached: Callable[[dict[str, float]], bool], seconds: float) -> None:
        """Raises TimeoutError, and RuntimeError when it has ended."""
        seen: dict[str, float] = {}
        try:
            async with asyncio.timeout(seconds):
                while not (seen and reached(seen)):
                    if ended := await asyncio.to_thread(self._started.ended):
                        raise RuntimeError(with_log(f"the operator ended {ended}, before {what}", self._log))
                    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                        seen = await self.metrics()
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            known = {name: seen.get(name) for name in ("elasticjob_leader", "elasticjob_jobs", AWAITING)}
            raise TimeoutError(with_log(f"waited {seconds:g} s for {what}; last seen: {known}", self._log)) from None

    async def _page(self, name: str) -> str:
        async with self._http.get(f"http://127.0.0.1:{self._port}/{name}") as answer:
            return await answer.text()


AWAITING = "elasticjob_jobs_awaiting_first_step"


@contextlib.asynccontextmanager
async def running(
    plane: ControlPlane, *, limit: int | None, container: bool, samples: Path | None = None
) -> AsyncIterator[Operator]:
    """Until the end of the block. `samples`: where a process may write its stacks."""
    port, log = free_port(), new_log("operator")
    flags = [f"--sidecar-image={SIDECAR.name}", f"--lease-namespace={NAMESPACE}", f"--health-port={port}"]
    if container and limit is not None:
        started: Started = Container(plane.kubeconfig, flags, log, limit)
    else:
        started = Process(plane.kubeconfig, flags, log, limit, samples)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)) as http:
            yield Operator(started, port, log, http, samples)
    finally:
        await asyncio.to_thread(started.stop)
