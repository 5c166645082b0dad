# SPDX-License-Identifier: Apache-2.0
"""`python -m contract.cluster DIRECTORY`: runs until its standard input ends; logs and secrets go to DIRECTORY.

Prints one line when it is ready: the port where it is told what to do.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from contract.cluster.api import CORE, JOBS, WORKERS, WatchingClient
from contract.cluster.kubelet import Kubelet
from contract.cluster.serve import Commands
from support import ControlPlane
from support.ports import free_port
from support.programs import DIES_WITH_PARENT

CRDS = Path(__file__).parents[3] / "crds"
STOP_SECONDS = 10.0


def main() -> None:
    work = Path(sys.argv[1])
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    with ControlPlane() as plane:
        plane.install_crds(*sorted(CRDS.glob("*.yaml")))
        asyncio.run(run(plane, work))


async def run(plane: ControlPlane, work: Path) -> None:
    token = json.loads(plane.kubeconfig.read_text())["users"][0]["user"]["token"]
    api = WatchingClient(plane.server, str(plane.authority), token)
    cluster = Commands(api, ("127.0.0.1", urlsplit(plane.server).port or 443), plane.kubeconfig)
    cluster.kubelet = Kubelet(api, cluster.api_port, plane.authority, work, cluster.changed)
    operator = await start_operator(plane.kubeconfig, work / "operator.log")
    parts = {
        "the watch of jobs": api.follow(JOBS, cluster.job_seen),
        "the watch of records": api.follow(WORKERS, cluster.worker_seen),
        "the watch of pods": api.follow(f"{CORE}/pods", cluster.kubelet.seen),
        "the operator": operator.wait(),
    }
    tasks = [asyncio.create_task(_guard(cluster, name, part)) for name, part in parts.items()]
    runner = web.AppRunner(cluster.app(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await stdin_ends()
    for task in tasks:
        task.cancel()
    await cluster.kubelet.stop()
    operator.kill()
    await operator.wait()
    cluster.stop()
    await runner.cleanup()
    await api.close()


async def _guard(cluster: Commands, name: str, part: object) -> None:
    """Whatever ends is missed: the next command says so."""
    try:
        ended = await part  # type: ignore[misc]
        cluster.broken = f"{name} ended: {ended}"
    except Exception as error:
        logging.exception("%s broke", name)
        cluster.broken = f"{name} broke: {error!r}"
    cluster.changed()


async def start_operator(kubeconfig: Path, log: Path) -> asyncio.subprocess.Process:
    flags = ["--sidecar-image=none", "--lease-namespace=default", f"--health-port={free_port()}"]
    return await asyncio.create_subprocess_exec(
        *DIES_WITH_PARENT,
        sys.executable,
        "-m",
        "elasticjob_operator",
        *flags,
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log.open("wb"),
        stderr=asyncio.subprocess.STDOUT,
    )


async def stdin_ends() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def readable() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            ended.set()

    loop.add_reader(sys.stdin.fileno(), readable)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()
    loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    main()
