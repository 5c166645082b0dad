# SPDX-License-Identifier: Apache-2.0
"""The agent's side of training processes that live through changes of the group.

Each such process connects to a socket of the agent when it has opted in, and says whenever it is between two steps and
waits for a round, and when it saves. `Living` knows what the processes do that were started last, and gives those that
wait their places in the round that the agent has entered.
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

from elasticjob_torch.agent.messages import (
    SOCKET,
    Enter,
    Message,
    Over,
    Saves,
    Stop,
    Waits,
    received,
    send,
    to_variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

_SEND_SECONDS = 5.0


class Living:
    """The processes of one agent that have opted in. ``notify`` is called in any thread when one says what it does."""

    def __init__(self, notify: Callable[[], object] = lambda: None) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._start, self._count = "", 0  # of the processes that were started last
        self._processes: dict[int, tuple[Waits, socket.socket]] = {}  # by local rank: what each has said last
        self._saving: set[int] = set()  # by local rank
        self._round = 0  # that they are in, 0 for none
        self._over = self._cut = 0  # the last round that is over, and the last whose collectives were to be ended
        self._places: Mapping[int, Mapping[str, str]] = {}  # in that round
        self._folder = tempfile.mkdtemp(prefix="elasticjob-live-")
        os.chmod(self._folder, 0o755)  # noqa: S103 - a training process may run as another user
        path = os.path.join(self._folder, "socket")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        os.chmod(path, 0o666)  # noqa: S103 - see above
        self._server.listen()
        threading.Thread(target=_accept, args=(self._server, weakref.ref(self)), daemon=True).start()
        self._end = weakref.finalize(self, _end, self._server, self._folder)

    @property
    def variables(self) -> dict[str, str]:
        """For the environment of the training processes that were started last: their start, and where the socket
        is."""
        return {SOCKET: to_variable(self._start, os.path.join(self._folder, "socket"))}

    def started(self, start: str, count: int) -> None:
        """So many processes are started now, with this id of their start. They are in no round."""
        with self._lock:
            self._start, self._count, self._round, self._places, self._processes = start, count, 0, {}, {}
            self._saving = set()

    def have_opted_in(self) -> bool:
        """Say whether all processes that were started last live through changes."""
        with self._lock:
            return self._all_have_opted_in()

    def wait(self) -> bool:
        """Say whether all processes that were started last wait for the next round."""
        with self._lock:
            return self._all_have_opted_in() and all(self._waits(last) for last, _ in self._processes.values())

    def some_wait(self) -> bool:
        """Say whether any process waits for the next round."""
        with self._lock:
            return any(self._waits(last) for last, _ in self._processes.values())

    def busy(self) -> list[bool]:
        """Return, for each process that has opted in and does not wait, whether it saves."""
        with self._lock:
            return [rank in self._saving for rank, (last, _) in self._processes.items() if not self._waits(last)]

    def enter(self, number: int, places: Mapping[int, Mapping[str, str]]) -> None:
        """Give the processes their places in the round, torch's variables by local rank; later to those that have not
        opted in yet."""
        with self._lock:
            self._round, self._places = number, places
            for last, to in self._processes.values():
                self._answer(last, to)

    def over(self, number: int, *, cut: bool = False) -> None:
        """Tell the processes that the round is over; ``cut``: and to end its collectives. May be called again."""
        with self._lock:
            self._over, self._cut = number, number if cut else self._cut
            for _, to in self._processes.values():
                _send(Over(round=number, cut=cut), to)

    def stop(self, reason: str) -> None:
        """Tell the processes that wait for the next round that they do not live on."""
        with self._lock:
            for last, to in self._processes.values():
                if self._waits(last):
                    _send(Stop(reason=reason), to)

    def close(self) -> None:
        """End the socket. May be called again."""
        self._end()

    def note(self, what: Waits | Saves, by: socket.socket) -> bool:
        """In the thread that reads: a process says what it does. Return False if it is not one of those started
        last."""
        with self._lock:
            if what.start != self._start or not 0 <= what.local_rank < self._count:
                return False
            if isinstance(what, Saves):
                (self._saving.add if what.saving else self._saving.discard)(what.local_rank)
            else:
                self._processes[what.local_rank] = what, by
                self._answer(what, by)
        self._notify()
        return True

    def _all_have_opted_in(self) -> bool:
        return 0 < self._count == len(self._processes)

    def _waits(self, last: Waits) -> bool:
        return last.round >= self._round

    def _answer(self, last: Waits, to: socket.socket) -> None:
        if self._waits(last) or last.local_rank not in self._places:
            return
        _send(Enter(round=self._round, variables=dict(self._places[last.local_rank])), to)
        if self._over >= self._round:
            _send(Over(round=self._round, cut=self._cut >= self._round), to)


def _send(message: Message, to: socket.socket) -> None:
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
                if held is None or not isinstance(message, (Waits, Saves)) or not held.note(message, connection):
                    return
                del held
        except ValueError as error:
            log.warning("a training process is not understood: %s", error)


def _end(server: socket.socket, folder: str) -> None:
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)  # close() alone would not wake the thread
    server.close()
    shutil.rmtree(folder, ignore_errors=True)
