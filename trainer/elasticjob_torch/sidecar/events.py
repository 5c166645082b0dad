# SPDX-License-Identifier: Apache-2.0
"""The event stream from the sidecar, which a thread holds open for the process's whole life.

It has two uses. The open connection shows the sidecar that this process lives: if the process is killed, the kernel
closes the connection within milliseconds. And the stream keeps the newest view of the rendezvous in memory, where the
agent reads it ten times a second, and a script at each step, without a lock, a call or a wait.

A forked child would keep the connection open after the agent's death, so it is closed there. Children that exec
(training processes) never inherit it. While the stream is down, the last view stands; a sidecar that stays away is
logged once a minute.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from elasticjob_torch import wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from elasticjob_torch.sidecar.address import Address

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 1.0
_LOG_SECONDS = 60.0


class Lines:
    """Assembles the lines of a stream into events."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def take(self, raw: bytes) -> str | None:
        """Return the data of the event that this line ends, if it ends one; comments and other fields are ignored."""
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            text = line[len("data:") :]
            self._data.append(text[1:] if text.startswith(" ") else text)
        if line or not self._data:
            return None
        event, self._data = "\n".join(self._data), []
        return event


class Reopening:
    """When a stream is reopened, and when its absence is logged. `now`: seconds of one clock."""

    def __init__(self, now: float) -> None:
        self._heard = self._logged = now
        self._pause = _FIRST_PAUSE_SECONDS

    def ended(self, was_open: bool, why: str, now: float) -> float:
        """The stream ended, or did not open; return the seconds until the next try."""
        if was_open:
            self._heard, self._logged, self._pause = now, now, _FIRST_PAUSE_SECONDS
        if now - self._logged >= _LOG_SECONDS:
            log.warning("no events from the sidecar for %.0f s, trying on: %s", now - self._heard, why)
            self._logged = now
        pause, self._pause = self._pause, min(self._pause * 2, _MAX_PAUSE_SECONDS)
        return pause


class Stream(ABC):
    """Follows a stream of events until `stop`, through restarts of the sidecar.

    Attributes:
        connected: set while the stream is open.
        superseded: True once the sidecar has said that a newer process has replaced this one.
        taken: the sidecar's sentence once it has said that another process has the place, and lives; empty before.
    """

    def __init__(self, address: Address) -> None:
        self.connected = threading.Event()
        self.superseded = False
        self.taken = ""
        self._address = address
        self._socket: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elasticjob-events", daemon=True)
        _streams.add(self)

    @abstractmethod
    def target(self) -> str:
        """Return the request's target; called for each connection."""

    @abstractmethod
    def take(self, data: Any) -> None:
        """Process an event. Raises ValueError if it is invalid."""

    def start(self) -> None:
        """Open the stream; returns at once."""
        self._thread.start()

    def let_go(self) -> None:
        """End the stream for good; returns at once."""
        self._stopping.set()
        _shut(self._socket)

    def stop(self) -> None:
        """End the stream for good; returns when it has ended, within a second."""
        self.let_go()
        if self._thread.is_alive():
            self._thread.join(timeout=1)

    def close_in_child(self) -> None:
        """Drop the connection in a forked child, where the thread does not exist."""
        held, self._socket = self._socket, None
        if held is not None:
            # close() alone would keep the descriptor while the response refers to the socket
            os.close(held.detach())

    def opens(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until the stream is open; return whether it is."""
        return self.connected.wait(seconds)

    def refused(self, status: int, payload: bytes) -> str:
        """The sidecar answered with an error; return it in words."""
        self.superseded = _names_superseded(payload)
        self.taken = _message_of(payload, wire.Code.TRAINER_LIVES)
        return f"it answered {status}"

    @property
    def is_barred(self) -> bool:
        """Say whether the sidecar will never let this stream open again."""
        return self.superseded or bool(self.taken)

    def read(self, event: str) -> None:
        """Process an event's data, valid or not."""
        try:
            self.take(json.loads(event))
        except (ValueError, RecursionError) as error:
            log.warning("ignored an event that makes no sense: %s", error)

    def _run(self) -> None:
        reopening = Reopening(time.monotonic())
        while not self._stopping.is_set():
            try:
                why = self._follow()
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = str(error) or type(error).__name__
            was_open = self.connected.is_set()
            self.connected.clear()
            if self.is_barred:
                return
            self._stopping.wait(reopening.ended(was_open, why, time.monotonic()))

    def _follow(self) -> str:
        """Read one connection to its end; return why it ended."""
        connection = self._address.connection(wire.SILENCE_SECONDS)
        try:
            connection.connect()
            self._socket = connection.sock
            if self._stopping.is_set():
                return "it is being stopped"
            headers = {"Accept": "text/event-stream"}
            connection.request("GET", self.target(), headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                return self.refused(response.status, response.read(4096))
            self.connected.set()
            self._read(response)
            return "it closed the stream"
        finally:
            self._socket = None
            connection.close()

    def _read(self, response: http.client.HTTPResponse) -> None:
        lines = Lines()
        for line in iter(response.readline, b""):
            event = lines.take(line)
            if event is not None:
                self.read(event)


class EventStream(Stream):
    """The agent's stream, which shows the sidecar that it lives.

    Attributes:
        view: the newest view, or None before the first. Replaced as a whole, so reading needs no lock.
        handed, stage: the last round handed to this trainer and its stage, sent to the sidecar at a reconnect.

    Args:
        seen: called in the stream's thread after each change of what is known.
        container, script: by these the sidecar tells the torchruns of a container apart; see the wire.
    """

    def __init__(
        self,
        address: Address,
        trainer: str,
        seen: Callable[[], object] = lambda: None,
        container: str = "",
        script: str = "",
    ) -> None:
        super().__init__(address)
        self._seen = seen
        self.view: wire.View | None = None
        self._has_view = False  # the view has come on the present connection
        self.handed = self.stage = 0
        self._pid = os.getpid()
        self._me = {"trainer": trainer, "container": container, "script": script}

    @property
    def present_view(self) -> wire.View | None:
        """The view that the open stream has told; None while it is down, and until it has told one."""
        return self.view if self.connected.is_set() and self._has_view else None

    def target(self) -> str:
        self._has_view = False
        asked = wire.Events(pid=self._pid, round=self.handed, stage=self.stage, **self._me)
        return f"{wire.EVENTS.path}?{urlencode(asked.to_query())}"

    def take(self, data: Any) -> None:
        self.view = wire.View.from_json(data)
        self._has_view = True
        self._seen()

    def refused(self, status: int, payload: bytes) -> str:
        why = super().refused(status, payload)
        self._seen()
        return why


def _names_superseded(payload: bytes) -> bool:
    return bool(_message_of(payload, wire.Code.SUPERSEDED))


def _message_of(payload: bytes, code: wire.Code) -> str:
    """Return the message of an error with this code; empty if there is none."""
    try:
        error = json.loads(payload)["error"]
        return str(error.get("message") or code) if error["code"] == code else ""
    except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _shut(held: socket.socket | None) -> None:
    """Wake the thread that reads the socket; closing it would not."""
    if held is not None:
        with contextlib.suppress(OSError):  # it had ended by itself
            held.shutdown(SHUT_RDWR)


_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for stream in list(_streams):
        stream.close_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
