# SPDX-License-Identifier: Apache-2.0
"""One cluster for all processes of a run of tests: started when the first of them asks, ended with the run.

A start takes ten seconds of a processor, and a cluster at rest takes some of each minute. Jobs share the API server
and the operator, as they do in a real cluster, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

from contract.plane import OwnPlane, Plane
from support.waiting import Deadline

START_SECONDS = 300.0  # the control plane's own start has a deadline of 180 s, and its objects another


class OnePlane:
    """In the process that spreads the tests; `port` is where the others ask."""

    def __init__(self) -> None:
        self._plane = OwnPlane()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="the tests' cluster", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # ends the thread's wait
        self._thread.join(START_SECONDS)
        self._server.close()
        self._plane.stop()

    def _serve(self) -> None:
        answer: dict[str, str | int] = {}
        while True:
            try:
                asks, _ = self._server.accept()
            except OSError:
                return
            answer = answer or self._start()
            with asks, contextlib.suppress(OSError):  # who asked is gone
                asks.sendall(json.dumps(answer).encode())

    def _start(self) -> dict[str, str | int]:
        try:
            self._plane.start()
        except RuntimeError as error:
            return {"error": str(error)}
        return {"port": self._plane.port, "logs": str(self._plane.logs)}


def ask(port: int) -> Plane:
    """The run's cluster, from the process that listens at `port`."""
    with socket.create_connection(("127.0.0.1", port), START_SECONDS) as asks:
        try:
            answer = json.loads(asks.makefile().read())
        except TimeoutError as error:
            raise Deadline("the tests' cluster to start", START_SECONDS) from error
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return Plane(answer["port"], Path(answer["logs"]))
