# SPDX-License-Identifier: Apache-2.0
"""The address of the sidecar's API: a port of the pod's loopback or, where loopback is the node's, a socket in a folder
that only the pod's containers have."""

from __future__ import annotations

import http.client
import socket
from typing import NamedTuple

UNIX = "unix:"


class Address(NamedTuple):
    """Either `host` and `port`, or `path`."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"{UNIX}{self.path}" if self.path else f"{self.host}:{self.port}"

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection that is not yet made."""
        if self.path:
            return _UnixConnection(self.path, timeout)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            held.settimeout(self.timeout)
            held.connect(self._path)
        except BaseException:
            held.close()
            raise
        self.sock = held
