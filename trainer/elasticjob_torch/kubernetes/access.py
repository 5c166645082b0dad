# SPDX-License-Identifier: Apache-2.0
"""A pod's access to the API server: address, certificate authority and token, from the places where the kubelet puts
them.

Files are read for each use, because the kubelet replaces them while the pod runs.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class NotInAPod(Exception):
    """This process has no access to an API server; the message says what is missing."""


@dataclass(frozen=True)
class InClusterConfig:
    """The address of the API server, and the directory of the service account."""

    host: str
    port: int
    directory: Path = SERVICE_ACCOUNT

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    def token(self) -> str:
        """Return the service account's current token. Raises OSError."""
        return (self.directory / "token").read_text().strip()

    def namespace(self) -> str:
        """Return the pod's namespace. Raises OSError."""
        return (self.directory / "namespace").read_text().strip()

    def own_address(self) -> str:
        """Return this pod's address in the cluster. Nothing is sent. Raises OSError."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((self.host, self.port))
            return str(probe.getsockname()[0])


def find_access(environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> InClusterConfig:
    """Return this pod's access.

    Raises:
        NotInAPod: a variable or file is missing.
    """
    host, port = environ.get(_HOST, ""), environ.get(_PORT, "")
    if not host or not port.isdigit():
        raise NotInAPod(f"{_HOST} and {_PORT} are not set; this backend works in pods only")
    for name in ("ca.crt", "token"):
        if not (directory / name).is_file():
            raise NotInAPod(
                f"there is no {directory / name}; set spec.serviceAccountName of the pod "
                "and do not set automountServiceAccountToken: false"
            )
    return InClusterConfig(host, int(port), directory)
