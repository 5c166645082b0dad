# SPDX-License-Identifier: Apache-2.0
"""A process of many sidecars, each as in its pod, but at a loopback address of its own and with its pod's token."""

import asyncio
import logging
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from elasticjob_sidecar.api_server.client import KubeApi, connected
from elasticjob_sidecar.api_server.in_cluster import InCluster
from elasticjob_sidecar.app import Ports, Sidecar
from elasticjob_sidecar.config import Config
from rounds.child import serve
from rounds.moments import Moments, note_sidecar
from support.pod_life import new_credentials

READY_SECONDS = 120.0


class Sidecars:
    """Theirs is one event loop in a thread."""

    def __init__(self, authority: Path, host: str, port: str) -> None:
        self._authority, self._host, self._port = authority, host, int(port)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._sidecars: dict[str, Sidecar] = {}

    def start(self, pods: dict[str, dict[str, Any]]) -> None:
        """Pods by name: the sidecar's environment, its loopback address, and the file with its token."""
        self._do(self._start(pods))

    async def _start(self, pods: dict[str, dict[str, Any]]) -> None:
        for name, pod in pods.items():
            server = InCluster(self._host, self._port, Path(pod["token"]), self._authority)
            config = Config.from_env(pod["environment"])
            ports = Ports(loopback=pod["address"], health=0, forwarded=0)
            kube, id = KubeApi(config.namespace, connected(server)), f"{config.batch}.0"
            sidecar = Sidecar(config, id, kube, new_credentials(), ports)
            await sidecar.serve()
            self._running[name] = asyncio.create_task(sidecar.run(asyncio.Event()))
            self._sidecars[name] = sidecar
        async with asyncio.timeout(READY_SECONDS):
            for name in pods:
                while not self._sidecars[name].driver.ready:  # noqa: ASYNC110 - it sets no event
                    await asyncio.sleep(0.01)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


def main() -> None:
    logging.basicConfig(level="ERROR", stream=sys.stderr)
    authority, host, port, *options = sys.argv[1:]
    sidecars, moments = Sidecars(Path(authority), host, port), Moments()
    if options == ["--moments"]:
        note_sidecar(moments)
    commands: dict[str, Any] = {
        "start": sidecars.start,
        "moments": lambda: {"noted": moments.take()},
    }
    serve(commands)


if __name__ == "__main__":
    main()
