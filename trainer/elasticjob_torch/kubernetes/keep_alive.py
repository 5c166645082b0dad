# SPDX-License-Identifier: Apache-2.0
"""Writes a node's heartbeats, in a thread that waits neither for this process nor for other nodes' writes."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from contextlib import closing
from typing import TYPE_CHECKING

from elasticjob_torch.kubernetes.api import ApiError, NotFound
from elasticjob_torch.kubernetes.clock import now
from elasticjob_torch.kubernetes.heartbeats import KEPT, key_of, write_times

if TYPE_CHECKING:
    from datetime import datetime

    from elasticjob_torch.kubernetes.clock import SharedClock
    from elasticjob_torch.kubernetes.config_map import ConfigMap

log = logging.getLogger(__name__)

# Longer than the minute after which an API server ends a request itself (--request-timeout). Giving up earlier would
# cost a slow server another handshake, and this node its turn, while others write on over their existing connections.
WRITE_SECONDS = 120.0


class KeepAlive:
    """The heartbeats of one node, from `start` to `stop`, or until this object is dropped.

    Args:
        config_map: where they are written, over a connection of their own.
        node: its name in the ConfigMap.
        interval: seconds from the start of one write to the start of the next.
    """

    def __init__(self, config_map: ConfigMap, clock: SharedClock, node: str, interval: float) -> None:
        self._heartbeats = Heartbeats(config_map, clock, node)
        self._interval = interval
        self._running: weakref.finalize[..., KeepAlive] | None = None

    def start(self) -> None:
        """Write heartbeats from now on, if not yet begun."""
        if self._running is not None and self._running.alive:
            return
        stopped = threading.Event()
        arguments = (self._heartbeats, self._interval, stopped)  # not this object: the thread ends when it is dropped
        threading.Thread(target=_write_all, args=arguments, name="elasticjob-keep-alive", daemon=True).start()
        self._running = weakref.finalize(self, stopped.set)

    def stop(self) -> None:
        """Stop writing. Returns at once."""
        if self._running is not None:
            self._running()


class Heartbeats:
    """The heartbeats that a node has written."""

    def __init__(self, config_map: ConfigMap, clock: SharedClock, node: str) -> None:
        self.config_map = config_map
        self._clock = clock
        self._key = key_of(node)
        self._written: list[datetime] = []

    def write(self) -> None:
        """Write one more. A failed write does not count: other nodes cannot see it."""
        times = [*self._written, self._clock.to_server(now())][-KEPT:]
        try:
            self.config_map.patch(data={self._key: write_times(times)}, patience=0)
        except ApiError as error:
            if not self._written and isinstance(error, NotFound):
                return  # the run begins; the first node that joins makes the ConfigMap
            log.warning("a heartbeat was not written: %s", error)
        else:
            self._written = times


def _write_all(heartbeats: Heartbeats, interval: float, stopped: threading.Event) -> None:
    with closing(heartbeats.config_map):
        due = time.monotonic()
        while not stopped.wait(max(due - time.monotonic(), 0)):
            due = time.monotonic() + interval  # no second one at once after a late one: both would say the same
            heartbeats.write()
