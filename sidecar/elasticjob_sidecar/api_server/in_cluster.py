# SPDX-License-Identifier: Apache-2.0
"""The API server's address and this pod's identity, as Kubernetes provides them to each container."""

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from time import monotonic as now
from typing import Self

from elasticjob_sidecar.config import HINT, ConfigError

log = logging.getLogger(__name__)

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
SECRETS = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0  # the kubelet replaces a token long before it expires


@dataclass(frozen=True, slots=True)
class InCluster:
    host: str
    port: int
    token: Path = SECRETS / "token"
    authority: Path = SECRETS / "ca.crt"

    @classmethod
    def load(cls, env: Mapping[str, str] = os.environ) -> Self:
        """From the environment and the service account's files. Raises ConfigError."""
        for name in (HOST, PORT):
            if not env.get(name):
                raise _no_access(f"{name} is not set")
        if not env[PORT].isdecimal():
            raise _no_access(f"{PORT} is {env[PORT]!r}, not a number")
        return cls(env[HOST], int(env[PORT]))

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    def tls(self) -> ssl.SSLContext:
        """TLS settings for connections to the API server. Raises ConfigError."""
        try:
            return ssl.create_default_context(cafile=self.authority)
        except OSError as error:  # includes ssl.SSLError, for a file that holds no certificate
            raise _no_access(_unusable(self.authority, error)) from None


class Token:
    """The pod's token, as its file holds it: the kubelet writes a new one there from time to time."""

    def __init__(self, file: Path) -> None:
        """Raises ConfigError."""
        self._file = file
        self._until = 0.0  # then the file is read again
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:
            raise _no_access(_unusable(file, error)) from None

    @property
    def value(self) -> str:
        """The token; the last one read if the file cannot be read."""
        if now() >= self._until:
            try:
                self._value = self._read()
            except (OSError, ValueError) as error:
                log.warning("the last token for the Kubernetes API stays in use: %s", _unusable(self._file, error))
        return self._value

    async def header(self) -> str:
        return f"Bearer {self.value}"

    def answered(self, _: str, status: int) -> None:
        """Note the status of an answer: after a refusal of the token the file is read again."""
        if status == HTTPStatus.UNAUTHORIZED:
            self._until = 0.0

    def _read(self) -> str:
        self._until = now() + TOKEN_SECONDS
        value = self._file.read_text(encoding="ascii").strip()
        if not value:
            raise ValueError("it is empty")
        return value


def _unusable(file: Path, error: OSError | ValueError) -> str:
    why = error.strerror if isinstance(error, OSError) else None
    return f"{file} cannot be used: {why or error}"


def _no_access(why: str) -> ConfigError:
    return ConfigError(f"no access to the Kubernetes API ({why}): {HINT}.")
