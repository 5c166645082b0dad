# SPDX-License-Identifier: Apache-2.0
"""The threads behind a script's calls: one holds a stream of events from the sidecar, one sends.

Both are daemon threads, made when they are first needed. The script's own thread only reads and writes memory.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from elasticjob_torch import wire
from elasticjob_torch.sidecar.client import SidecarClient
from elasticjob_torch.sidecar.errors import SidecarError, SidecarUnavailable
from elasticjob_torch.sidecar.events import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from elasticjob_torch.sidecar.address import Address

log = logging.getLogger(__name__)

FIRST_SECONDS = 1.0
REPORT_SECONDS = 1.0
EXIT_SECONDS = 2.0
# Within this time all sidecars of the job, and all their scripts, have heard of a planned end.
HEARD_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0  # for a restart of the sidecar


class ReportedProgress(NamedTuple):
    """All values reported so far."""

    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = {}
    waits: float | None = None


class ScriptStream(Stream):
    """A script's event stream. `saves`: this process wants to save before a planned end."""

    def __init__(self, address: Address, name: str) -> None:
        super().__init__(address)
        self.view: wire.ScriptView | None = None
        self.ending_since = 0.0  # when `view.ending` became known, by the monotonic clock
        self.saves = False
        self.has_view = threading.Event()
        self._name = name

    def target(self) -> str:
        asked = wire.Watch(script=self._name, saves=self.saves)
        return f"{wire.WATCH.path}?{urlencode(asked.to_query())}"

    def take(self, data: Any) -> None:
        before, view = self.view, wire.ScriptView.from_json(data)
        if before is None or not before.ending:
            self.ending_since = time.monotonic()  # set before the view, which another thread reads
        self.view = view
        self.has_view.set()


class ScriptClient:
    """A script's side of the sidecar's API."""

    def __init__(self, address: Address, local_rank: int) -> None:
        name = uuid.uuid4().hex
        self._stream = ScriptStream(address, name)
        self._sender = Sender(address, name, local_rank, self._stream.connected)
        self._lock = threading.Lock()
        self._watching = False
        self._late = False  # the last True was returned after all ranks had heard of the end

    def first_view(self) -> wire.ScriptView | None:
        """Return the newest view; only the first call waits for one."""
        if not self._watching and self._watch(saves=False):
            self._stream.has_view.wait(FIRST_SECONDS)
        return self._stream.view

    def wants_restart(self) -> bool:
        """Say whether the script should save now. A call after the save tells the sidecar of it."""
        if not self._stream.saves and not self._watch(saves=True):
            self._sender.saved(0)
        view = self._stream.view
        if view is None or not view.ending:
            self._late = False
            return False
        if self._late:
            self._sender.saved(view.round)
        # A rank that heard of it earlier may be a step ahead of rank 0, whose save must not be cut short.
        self._late = time.monotonic() - self._stream.ending_since >= HEARD_SECONDS
        return True

    def report(self, progress: ReportedProgress) -> None:
        self._sender.report(progress)

    def close(self) -> None:
        """Send the rest, within two seconds."""
        self._sender.close(EXIT_SECONDS)

    def _watch(self, *, saves: bool) -> bool:
        """Open the stream; return False if it was opened before."""
        with self._lock:
            self._stream.saves = self._stream.saves or saves
            if self._watching:
                return False
            self._watching = True
            self._stream.start()
            return True


class Sender:
    """Sends the newest values, from a thread of its own."""

    def __init__(self, address: Address, name: str, local_rank: int, connected: threading.Event) -> None:
        self._client = SidecarClient(address, name, _PATIENCE_SECONDS)
        self._name = name
        self._local_rank = local_rank
        self._connected = connected
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._saved: int | None = None
        self._saved_last: int | None = None
        self._progress: ReportedProgress | None = None
        self._due = 0.0
        self._closing = False
        self._complained = False

    def saved(self, round_number: int) -> None:
        """The script wants to save, and has saved for the end of that round; 0 for none. Sent at once."""
        if round_number != self._saved_last:
            with self._condition:
                self._saved = self._saved_last = round_number
                self._wake()

    def report(self, progress: ReportedProgress) -> None:
        """Send a report at once, or a second after the last one."""
        with self._condition:
            is_first, self._progress = self._progress is None, progress
            if is_first:  # otherwise the thread already waits to send
                self._wake()

    def close(self, seconds: float) -> None:
        """Send the rest, and wait for that at most ``seconds``."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(seconds)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="elasticjob-report", daemon=True)
            self._thread.start()
        self._condition.notify()

    def _run(self) -> None:
        closing = False
        while not closing:
            saved, progress, closing = self._next()
            # this process's end tells the same
            if saved is not None and not closing and self._connected.wait(_PATIENCE_SECONDS):
                self._post(wire.SAVED, wire.Saved(script=self._name, round=saved), _PATIENCE_SECONDS)
            if progress is not None and not self._send(progress):
                with self._condition:
                    self._progress = self._progress or progress

    def _next(self) -> tuple[int | None, ReportedProgress | None, bool]:
        """Wait until there is something to send, or the end."""
        with self._condition:
            while not (self._closing or self._saved is not None or self._left() == 0):
                self._condition.wait(self._left())
            saved, self._saved, progress = self._saved, None, None
            if self._closing or self._left() == 0:
                progress, self._progress = self._progress, None
                self._due = time.monotonic() + REPORT_SECONDS
            return saved, progress, self._closing

    def _left(self) -> float | None:
        """Return the seconds until the report may be sent, None without a report."""
        return None if self._progress is None else max(0.0, self._due - time.monotonic())

    def _send(self, progress: ReportedProgress) -> bool:
        report = wire.ProgressReport(local_rank=self._local_rank, **progress._asdict())
        return self._post(wire.PROGRESS, report, 0)

    def _post(self, call: wire.Call, body: wire.Message, patience: float) -> bool:
        """Return False if a retry makes sense."""
        try:
            self._client.post(call, body, patience)
        except SidecarUnavailable as error:
            self._complain(call.path, error)
            return False
        except SidecarError as error:
            self._complain(call.path, error)
        return True

    def _complain(self, path: str, error: SidecarError) -> None:
        if not self._complained:
            log.warning("the sidecar does not take %s; this is said once: %s", path, error)
        self._complained = True
