# SPDX-License-Identifier: Apache-2.0
"""One watch of one client: from a version on, everything that happens, until it ends."""

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

from simulation.loop import NOBODY
from simulation.store import Change, Matcher, Store, at_version

GONE = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "too old resource version",
    "reason": "Expired",
    "code": 410,
}


class Watch:
    """`lag`: seconds that each event may take to be told, at most; events keep their order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        dice: Random,
        plural: str,
        namespace: str | None,
        matches: Matcher,
        since: int,
        seconds: float,
        bookmarks: bool,
        lag: Callable[[], float],
        forget: Callable[["Watch"], None],
    ) -> None:
        self._loop, self._store, self._dice = loop, store, dice
        self._plural, self._namespace, self._matches = plural, namespace, matches
        self._since, self._seconds, self._bookmarks, self.lag = since, seconds, bookmarks, lag
        self._forget = forget
        self._send: Callable[[bytes], Any] = lambda line: None
        self._end: Callable[[str], Any] = lambda how: None
        self._timers: list[Any] = []
        self.stopped, self._started = False, False

    def start(self, send: Callable[[bytes], Any], end: Callable[[str], Any]) -> None:
        """What happened since it was asked for comes first."""
        self._send, self._end = send, end
        if self.stopped:
            return
        self._started = True
        if self._since < self._store.compacted:
            self._send(_line("ERROR", json.dumps(GONE).encode()))
            self.finish()
            return
        for change in self._store.since(self._since):
            self.tell(change)
        if self._bookmarks:
            left = max(0.0, self._seconds - self._dice.uniform(0.5, 2))
            self._timers.append(self._loop.call_later(left, self.bookmark, context=NOBODY))
        self._timers.append(self._loop.call_later(self._seconds, self.finish, context=NOBODY))

    def tell(self, change: Change) -> None:
        """As an object that begins to match is added, and one that ceases to is deleted."""
        if self.stopped or not self._started or change.plural != self._plural or change.version <= self._since:
            return
        if self._namespace is not None and change.body["metadata"]["namespace"] != self._namespace:
            return
        was = change.old is not None and self._matches(change.old)
        fits = change.new is not None and self._matches(change.new)
        if not (was or fits):
            return
        self._since = change.version
        type = "MODIFIED" if was and fits else "ADDED" if fits else "DELETED"
        raw = change.raw
        if type == "DELETED" and change.new is not None:
            assert change.old is not None
            raw = json.dumps(at_version(change.old, change.version)).encode()
        self._send(_line(type, raw))

    def bookmark(self) -> None:
        if not self.stopped:
            version = {"kind": "", "apiVersion": "", "metadata": {"resourceVersion": str(self._store.version)}}
            self._since = self._store.version
            self._send(_line("BOOKMARK", json.dumps(version).encode()))

    def finish(self, how: str = "closed") -> None:
        """The server ends it."""
        if not self.stopped:
            self.stop()
            self._end(how)

    def stop(self) -> None:
        self.stopped = True
        for timer in self._timers:
            timer.cancel()
        self._forget(self)


def _line(type: str, raw: bytes) -> bytes:
    return b'{"type": "%s", "object": %s}\n' % (type.encode(), raw)
