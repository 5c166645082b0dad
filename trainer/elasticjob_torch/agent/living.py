# SPDX-License-Identifier: Apache-2.0
"""The agent's side of training processes that live through changes of the group.

Each such process connects to a socket of the agent when it has opted in, and says whenever it is between two steps and
waits for a round. `Living` knows which of the processes started last wait, and gives them their places in the round
that the agent has entered.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import struct
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING

from elasticjob_torch.agent.messages import SOCKET, Enter, Message, Over, Stop, Waits, received, send

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

_SEND_SECONDS = 5.0


class Living:
    """The processes of one agent that have opted in. ``news`` is called, in any thread, when one begins to wait."""

    def __init__(self, news: Callable[[], object] = lambda: None) -> None:
        self._news = news
        self._lock = threading.Lock()
        self._start, self._count = "", 0  # of the processes that were started last
        self._processes: dict[int, tuple[Waits, socket.socket]] = {}  # by local rank; what each has said last
        self._busy: set[int] = set()  # those that were given a round since
        self._folder = tempfile.mkdtemp(prefix="elasticjob-live-")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.path.join(self._folder, "socket"))
        self._server.listen()
        threading.Thread(target=_accept, args=(self._server, weakref.ref(self)), daemon=True).start()
        self._end = weakref.finalize(self, _end, self._server, self._folder)

    @property
    def variables(self) -> dict[str, str]:
        """For the environment of training processes: where the socket is."""
        return {SOCKET: os.path.join(self._folder, "socket")}

    def started(self, start: str, count: int) -> None:
        """So many processes are started now, with this id of their start."""
        with self._lock:
            self._start, self._count, self._busy = start, count, set()
            before, self._processes = self._processes, {}
        for _, to in before.values():
            to.close()

    def have_opted_in(self) -> bool:
        """Say whether all processes that were started last live through changes."""
        return 0 < self._count == len(self._processes)

    def wait(self) -> bool:
        """Say whether all processes that were started last wait for a round."""
        return self.have_opted_in() and not self._busy

    def enter(self, number: int, variables: Mapping[int, Mapping[str, str]]) -> None:
        """Give the processes their places in the round: torch's variables, by local rank."""
        with self._lock:
            self._busy |= variables.keys()
        for local_rank, given in variables.items():
            self._send(Enter(round=number, variables=dict(given)), local_rank)

    def over(self, number: int) -> None:
        """Tell the processes that the round is over."""
        for local_rank in list(self._processes):
            self._send(Over(round=number), local_rank)

    def stop(self, reason: str) -> None:
        """Tell the processes that they do not live on."""
        for local_rank in list(self._processes):
            self._send(Stop(reason=reason), local_rank)

    def close(self) -> None:
        """End the socket. May be called again."""
        self._end()

    def said(self, waits: Waits, by: socket.socket) -> bool:
        """In the thread that reads: a process waits. Return False if it is not one of those started last."""
        with self._lock:
            known = waits.start == self._start and 0 <= waits.local_rank < self._count
            if known:
                self._processes[waits.local_rank] = waits, by
                self._busy.discard(waits.local_rank)
        if known:
            self._news()
        return known

    def _send(self, message: Message, local_rank: int) -> None:
        with self._lock:
            _, to = self._processes.get(local_rank, (None, None))
        if to is not None:
            with contextlib.suppress(OSError):  # the process has ended, which torch's agent sees
                send(to, message)


def _accept(server: socket.socket, living: weakref.ref[Living]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # closed
            return
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_SEND_SECONDS), 0))
        threading.Thread(target=_read, args=(connection, living), daemon=True).start()


def _read(connection: socket.socket, living: weakref.ref[Living]) -> None:
    with connection:
        try:
            for message in received(connection):
                held = living()
                if held is None or not isinstance(message, Waits) or not held.said(message, connection):
                    return
                del held
        except ValueError as error:
            log.warning("a training process is not understood: %s", error)


def _end(server: socket.socket, folder: str) -> None:
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)  # close() alone would not wake the thread
    server.close()
    shutil.rmtree(folder, ignore_errors=True)
