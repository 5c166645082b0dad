# SPDX-License-Identifier: Apache-2.0
"""Cuts a group's connections, so that its blocked collectives end.

Only the neighbours of a lost member get an error. The other members would wait for the group's timeout, and gloo has no
call that ends their waits. A group's connections are found by difference: they are the sockets that appeared while the
group formed and that lead to a member. Connections that the script made are never cut.

A cut ends reading first. gloo then closes the connection, which ends all waits for it and tells its other end. Until
then the connection can still be written to: gloo reports no error for a send that fails, and a collective that begins
to send just then would wait for ever.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_FOLDER = "/proc/self/fd"
# A connection from which gloo reads nothing more stays open (`collectives`). Its other end is told after this time.
_SENDS_SECONDS = 1.0


class Links:
    """The connections of one group. `cut` may be called from any thread."""

    def __init__(self) -> None:
        self._before = frozenset(_sockets())
        self._peers: frozenset[str] = frozenset()
        self._all: frozenset[tuple[int, str]] | None = None
        self._cut = self._left = False
        self._lock = threading.Lock()
        self._end_of_writing: threading.Timer | None = None
        self._ends: list[Callable[[], object]] = []

    def expect(self, peers: Collection[str]) -> None:
        """While the group forms, what leads to one of these addresses is its own."""
        self._peers = frozenset(map(_plain, peers))

    def own_addresses(self) -> frozenset[str]:
        """Return this process's addresses on connections that came since this object was made."""
        return frozenset(own for _, own, _ in self._new())

    def ends_with(self, end: Callable[[], object]) -> None:
        """The group has what does not end with its connections: ``end`` ends it."""
        self._ends.append(end)

    def formed(self) -> None:
        """The group is formed, among processes with the addresses that were expected last."""
        self._all = self._found()

    def have_formed(self) -> bool:
        """Say whether all members are in the group."""
        return self._all is not None

    def cut(self) -> None:
        """End the group's collectives, and those of its other members that wait for this one."""
        self._cut = True
        try:
            with self._lock:
                self._shut_down()
        finally:
            for end in self._ends:
                end()

    def leave(self) -> None:
        """The group is left: what comes from now on is another's."""
        with self._lock:
            self._left = True

    def _shut_down(self) -> None:
        if self._left:
            return
        if self._all is None:  # the script does not send yet
            _shut_down_each(self._found(), socket.SHUT_RDWR)
        elif self._end_of_writing is None:
            _shut_down_each(self._all, socket.SHUT_RD)
            self._end_of_writing = threading.Timer(_SENDS_SECONDS, _shut_down_each, (self._all, socket.SHUT_WR))
            self._end_of_writing.daemon = True
            with contextlib.suppress(RuntimeError):  # Python ends, and starts no more threads
                self._end_of_writing.start()

    def were_cut(self) -> bool:
        """Say whether `cut` was called."""
        return self._cut

    def are_broken(self) -> bool:
        """Say whether a connection was cut here, is closed, or is at its end."""
        return self._cut or any(_is_at_end(descriptor, name) for descriptor, name in self._all or ())

    def _found(self) -> frozenset[tuple[int, str]]:
        return frozenset(one for one, _, peer in self._new() if peer in self._peers)

    def _new(self) -> Iterator[tuple[tuple[int, str], str, str]]:
        """Yield the descriptor and name, own address and peer's address of each connection since the beginning."""
        for descriptor, name in frozenset(_sockets()) - self._before:
            with _same(descriptor, name) as link:
                if link is not None and link.family in (socket.AF_INET, socket.AF_INET6):
                    with contextlib.suppress(OSError):  # a listener has no peer: on its end gloo ends the process
                        peer = _plain(link.getpeername()[0])
                        yield (descriptor, name), _plain(link.getsockname()[0]), peer


def _shut_down_each(links: Collection[tuple[int, str]], how: int) -> None:
    for descriptor, name in links:
        with _same(descriptor, name) as link:
            if link is not None:
                with contextlib.suppress(OSError):  # its other end is gone
                    link.shutdown(how)


def _plain(address: str) -> str:
    """Return an IPv4 address as such: torch's store connects to it by IPv6, as ``::ffff:127.0.0.1``."""
    return address.removeprefix("::ffff:")


def _sockets() -> Iterator[tuple[int, str]]:
    """Yield descriptor and name of this process's sockets; the name is never used twice. None without /proc."""
    try:
        descriptors = os.listdir(_FOLDER)
    except OSError:
        return
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            name = os.readlink(f"{_FOLDER}/{descriptor}")
            if name.startswith("socket:"):
                yield int(descriptor), name


@contextlib.contextmanager
def _same(descriptor: int, name: str) -> Iterator[socket.socket | None]:
    """Give a second descriptor of that socket; None if the number has become another file's."""
    copy = None
    with contextlib.suppress(OSError):  # it is closed
        # no copy of a file is made: the end of a copy would end the locks that this process has on the file
        if os.readlink(f"{_FOLDER}/{descriptor}") == name:
            copy = os.dup(descriptor)
    if copy is None:
        yield None
        return
    if os.readlink(f"{_FOLDER}/{copy}") != name:  # it became another's in between
        os.close(copy)
        yield None
        return
    with socket.socket(fileno=copy) as link:
        yield link


def _is_at_end(descriptor: int, name: str) -> bool:
    with _same(descriptor, name) as link:
        if link is None:
            return True
        try:
            return link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
