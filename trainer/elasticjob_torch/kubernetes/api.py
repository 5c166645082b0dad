# SPDX-License-Identifier: Apache-2.0
"""Calls to the Kubernetes API over HTTPS, with the standard library alone. It knows no kind of object.

A call that fails temporarily (no answer, a busy or restarting server, a token just replaced) is repeated until its
patience is over. Such a call may have taken effect nevertheless: callers make their changes repeatable.

Errors::

    ApiError
    ├── Unavailable     no answer, or an answer that time will change
    ├── Forbidden       403: the service account lacks a permission
    ├── NotFound        404
    ├── Conflict        409: the object has changed, or exists already
    ├── Gone            410: the version asked for is too old
    └── Rejected        any other refusal; the request will never be accepted

A plain timeout cannot tell a slow server from an unreachable one. The kernel can: a slow server's machine still
acknowledges what it receives. So a connection breaks `_REACHED_SECONDS` after the last acknowledgement, while a client
may wait longer for an answer.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from random import SystemRandom
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from elasticjob_torch.kubernetes.access import InClusterConfig
    from elasticjob_torch.kubernetes.clock import SharedClock


ANSWER_SECONDS = 5.0
_REACHED_SECONDS = 10
_QUICK_SECONDS = 1.0  # an answer within this time shows that a new connection is cheap
_MAX_PAUSE_SECONDS = 2.0
_MAX_ANSWER_BYTES = 16 << 20
_PASSING = {401, 408, 429, 500, 502, 503, 504}
_LIFETIME_SECONDS = 60.0  # of a connection; a new one reads the authority again and may reach another server
_PROBES = {
    "TCP_KEEPIDLE": 4,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": _REACHED_SECONDS * 1000,  # for sent data, and with probes also for an idle connection
}
# For the random parts of pauses. Python's shared generator is the script's: a script that seeds it in each process
# alike would make all of them pause alike.
uniform = SystemRandom().uniform


class ApiError(Exception):
    """Base class of the errors of a call."""


class Unavailable(ApiError):
    """The API server did not answer, or asks for a retry later."""


class Forbidden(ApiError):
    """The service account may not do this."""


class NotFound(ApiError):
    """There is no such object."""


class Conflict(ApiError):
    """The object has changed, or exists already."""


class Gone(ApiError):
    """The version asked for is too old."""


class Rejected(ApiError):
    """The API server will never accept this request."""


_KINDS: dict[int, type[ApiError]] = {403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone}


class ApiClient:
    """The API server, as this pod's service account sees it. Threads may share it.

    Args:
        clock: receives the time of each answer.
        answer_seconds: how long an attempt waits for its answer.
    """

    def __init__(self, access: InClusterConfig, clock: SharedClock, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.access = access
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._connection: http.client.HTTPSConnection | None = None
        self._quick = True
        self._renew_at = 0.0

    def clone(self, answer_seconds: float | None = None) -> ApiClient:
        """Return the same client with a connection of its own, whose calls never wait for this one's."""
        return type(self)(self.access, self._clock, answer_seconds or self._answer_seconds)

    def close(self) -> None:
        """Close the connection; a later call makes a new one."""
        with self._lock:
            self._drop()

    def __del__(self) -> None:
        """Close the connection of a client that is dropped, as a store's clone is."""
        self._drop()

    def call(
        self, method: str, path: str, body: Any = None, *, patience: float, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Make the call, and repeat it for ``patience`` seconds while it fails temporarily.

        Raises:
            ApiError: see above.
        """
        payload = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + patience
        pause = 0.1
        while True:
            try:
                return self._attempt(method, path, payload, content_type)
            except Unavailable:
                wait = pause * uniform(0.5, 1.0)
                if time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)

    def watch(self, path: str, seconds: float) -> Generator[dict[str, Any], None, None]:
        """Yield the events of a watch, for at most ``seconds``; ends early if the server ends it.

        Raises:
            ApiError: see above; `Unavailable` also if the connection breaks.
        """
        connection = self._connect()
        try:
            connection.connect()
            sock = connection.sock
            response = self._send(connection, "GET", path, None, "application/json")
            if response.status != 200:
                self._read(response, "GET", path)
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0:
                sock.settimeout(left)
                line = response.readline(_MAX_ANSWER_BYTES)
                if not line:
                    return
                yield _parse(line, path)
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the watch of {path} broke: {_describe(error)}") from error
        finally:
            connection.close()

    def _attempt(self, method: str, path: str, payload: bytes | None, content_type: str) -> dict[str, Any]:
        with self._lock:
            fresh = self._connection is None or (self._quick and time.monotonic() > self._renew_at)
            try:
                if not fresh:
                    try:
                        return self._exchange(method, path, payload, content_type)
                    except ConnectionError:
                        pass  # the server had closed an idle connection
                self._drop()
                self._connection, self._renew_at = self._connect(), time.monotonic() + _LIFETIME_SECONDS
                return self._exchange(method, path, payload, content_type)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                where = f"{self.access.host}:{self.access.port}"
                raise Unavailable(f"the API server at {where} did not answer: {_describe(error)}") from error
            except BaseException as error:
                if not isinstance(error, ApiError):
                    self._drop()  # a signal may have interrupted it midway
                raise

    def _exchange(self, method: str, path: str, payload: bytes | None, content_type: str) -> dict[str, Any]:
        assert self._connection is not None
        began = time.monotonic()
        response = self._send(self._connection, method, path, payload, content_type)
        self._quick = time.monotonic() - began < _QUICK_SECONDS
        if response.status not in _PASSING:  # otherwise the answer may not come from the API server
            self._clock.answered(response.headers.get("Date", ""), time.monotonic() - began)
        return self._read(response, method, path)

    def _connect(self) -> http.client.HTTPSConnection:
        tls = ssl.create_default_context(cafile=str(self.access.authority))
        return _Connection(self.access.host, self.access.port, self._answer_seconds, tls)

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        payload: bytes | None,
        content_type: str,
    ) -> http.client.HTTPResponse:
        headers = {
            "Authorization": f"Bearer {self.access.token()}",
            "Accept": "application/json",
            "User-Agent": "elasticjob-torch",
        }
        if payload is not None:
            headers["Content-Type"] = content_type
        connection.request(method, path, body=payload, headers=headers)
        return connection.getresponse()

    def _read(self, response: http.client.HTTPResponse, method: str, path: str) -> dict[str, Any]:
        payload = _payload(response, self._answer_seconds)
        if response.status < 300:
            return _parse(payload, path)
        raise _error(response.status, f"{method} {path}", payload)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection(http.client.HTTPSConnection):
    """A connection that breaks if the other machine cannot be reached, however long an answer may take."""

    def __init__(self, host: str, port: int, answer_seconds: float, tls: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=answer_seconds, context=tls)
        self._answer_seconds = answer_seconds
        self._tls = tls

    def connect(self) -> None:
        """Connect. Raises OSError."""
        sock = socket.create_connection((self.host, self.port), min(ANSWER_SECONDS, self._answer_seconds))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PROBES.items():
            if hasattr(socket, name):  # Linux has all of them
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        sock.settimeout(self._answer_seconds)
        self.sock = self._tls.wrap_socket(sock, server_hostname=self.host)


def _payload(response: http.client.HTTPResponse, seconds: float) -> bytes:
    """Return an answer's body within ``seconds``. The socket's own timeout starts again with each piece."""
    deadline = time.monotonic() + seconds
    payload = bytearray()
    while piece := response.read1(1 << 16):
        payload += piece
        if len(payload) > _MAX_ANSWER_BYTES or time.monotonic() > deadline:
            raise TimeoutError(f"its answer had not ended after {len(payload)} bytes and {seconds:g} s")
    response.read()  # reads nothing, but marks the connection as reusable
    return bytes(payload)


def error_of_event(event: dict[str, Any], path: str) -> ApiError:
    """Return the error in a watch's event of type ``ERROR``."""
    status = event.get("object", {})
    code = status.get("code", 500) if isinstance(status, dict) else 500
    return _error(code, f"the watch of {path}", json.dumps(status).encode())


def _error(code: int, what: str, payload: bytes) -> ApiError:
    try:
        message = str(json.loads(payload)["message"])
    except (ValueError, KeyError, TypeError):
        message = payload[:200].decode(errors="replace")
    if code in _PASSING:
        return Unavailable(f"the API server answered {what} with {code}: {message}")
    kind = _KINDS.get(code, Rejected)
    return kind(f"the API server refused {what} with {code}: {message}")


def _parse(payload: bytes, path: str) -> dict[str, Any]:
    try:
        body = json.loads(payload)
    except ValueError as error:
        raise Unavailable(f"the API server's answer about {path} is not JSON") from error
    if not isinstance(body, dict):
        raise Unavailable(f"the API server's answer about {path} is not an object")
    return body


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
