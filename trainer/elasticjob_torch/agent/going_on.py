# SPDX-License-Identifier: Apache-2.0
"""Decides when an agent's training processes go on into the next round, and when new ones get ready before they join.

Torch's agent knows one way to enter a round: stop the processes, join, start new ones. Here are the two others. Where
all processes have opted in and wait between two steps, the agent joins while they run. And where a job lives through
changes, a newcomer's processes are started before it joins, in a world of their own, so that nobody waits for them.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from elasticjob_torch import wire
from elasticjob_torch.agent.busy import Patience
from elasticjob_torch.agent.living import Living
from elasticjob_torch.agent.processes import read_stat
from elasticjob_torch.agent.stacks import ask_for_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

# Until a newcomer's processes are ready; then it joins without, and they are started anew in the round.
READY_SECONDS = 600.0
# Between an error of the group and news of a change, while these would come: without, the processes end.
UPDATE_SECONDS = 30.0
# Between two tries to tell the sidecar that all processes have opted in.
TELL_SECONDS = 1.0


class GoingOn:
    """The processes of one agent, as far as they live through changes.

    Args:
        notify: called, in any thread, when a process says what it does.
        tell_live: tells the sidecar that all processes of a round have opted in, and returns whether it need not be
            told again; called in a thread of its own.
        patience: how long processes may be busy after their round is over.
    """

    def __init__(
        self,
        notify: Callable[[], object],
        tell_live: Callable[[int], bool],
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._notify, self._tell_live, self._clock = notify, tell_live, clock
        self._living: Living | None = None  # made with the first processes
        self._round = 0  # that the processes are in, 0 for none
        self._reported_live = (0, 0)  # the last round of which the sidecar knows that; how often it was away before
        self._times_away = 0
        self._telling: threading.Thread | None = None
        self._tells_after = 0.0
        self._is_over = self._is_cut = False
        self._patience = patience
        self._late = ""  # why processes that are busy are not waited for any longer
        self._waiting_since: float | None = None
        self._alone_since: float | None = None  # the processes were started in a world of their own
        self._has_been_alone = False
        self._pids: tuple[int, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Say whether the processes were started in a world of their own, and have not been in a round."""
        return self._alone_since is not None

    def begins_alone(self, view: wire.View | None) -> bool:
        """Say whether processes are to get ready before this agent joins; if so, they are from now on alone."""
        failed, self._alone_since = self.is_alone, None
        if failed or view is None or not view.live or _has_no_next(view):
            return False
        self._alone_since, self._has_been_alone = self._clock(), True
        return True

    def would_begin_alone(self, view: wire.View | None) -> bool:
        """Say whether an agent that waits in its join is better off getting its processes ready first: one that joined
        before the job was known to live through changes, as a spare does."""
        stands = view is not None and view.live and view.phase == wire.Phase.FORMED and not _has_no_next(view)
        return stands and not self._has_been_alone

    def started(self, start: str, processes: Mapping[int, Mapping[str, str]], number: int) -> dict[str, str]:
        """Processes are started: with this id of their start, torch's variables by local rank, and in this round;
        return variables for them. Without a socket they cannot opt in, and restart at each change."""
        if self._living is None:
            try:
                self._living = Living(self._notify)
            except OSError as error:  # no folder for temporary files, or its path is too long for a socket
                log.info("training processes cannot live through changes here: %s", error)
                return {}
        self._living.started(start, len(processes))
        self._round = 0
        if not self.is_alone:
            self.entered(number, processes)
        return self._living.variables

    def entered(self, number: int, places: Mapping[int, Mapping[str, str]]) -> None:
        """The processes are in this round, with these variables by local rank."""
        self._round, self._alone_since = number, None
        self._is_over = self._is_cut = False
        self._late, self._waiting_since = "", None
        if self._living is not None:
            self._living.enter(number, places)

    def look(self, view: wire.View | None, over: bool, pids: Iterable[int]) -> None:
        """Note the present view (None while it may be out of date), whether the processes' round is over, and their
        pids. Returns at once."""
        self._pids = tuple(pids)
        living = self._living
        if living is None or not self._round:
            return
        now = self._clock()
        if over:
            self._await_boundary(living, view, now)
            return
        self._tell(living, view, now)
        if not (living.some_wait() and self._stands(view)):
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since > UPDATE_SECONDS:
            self._waiting_since = now
            living.stop(
                f"a connection was closed in round {self._round}, and no change of the group followed within "
                f"{UPDATE_SECONDS:g} s"
            )

    def count(self, waiting: int, view: wire.View | None) -> int:
        """Return how many nodes to report as waiting, where torch would count ``waiting``: 0 while the processes go on
        by themselves, else torch stops them."""
        if self.is_alone:
            late = self._clock() - (self._alone_since or 0.0) > READY_SECONDS
            return 1 if late or (view is not None and (_has_no_next(view) or view.restart)) else 0
        if not waiting or not self._may_live(view):
            return waiting
        return waiting if self._late else 0

    def go_on(self, over: bool, view: wire.View | None) -> bool:
        """Say whether the agent joins now, with the processes that run. ``over``: their round is."""
        living = self._living
        if living is None or not living.wait():
            return False
        return self.is_alone or (over and self._may_live(view))

    def have_ended(self) -> bool:
        """Say whether any of the processes has ended. Reads the kernel's records, and reaps nothing."""
        return any((stat := read_stat(pid)) is None or stat.state in "ZX" for pid in self._pids)

    def close(self) -> None:
        """End the socket. May be called again."""
        if self._living is not None:
            self._living.close()

    def _await_boundary(self, living: Living, view: wire.View | None, now: float) -> None:
        """The round is over: wait for processes that are busy, within limits.

        While all members are there, their collectives end, and they leave together after the same step. Where one may
        be gone, or has not been heard of for half of the limit, as when it saves, nobody waits for it in a collective.
        """
        self._waiting_since = None
        if not self._is_over:
            self._is_over = True
            self._patience.begin(now)
            living.over(self._round)
        late = self._patience.look(now, living.busy())
        if not self._is_cut and ((view is not None and view.broken) or self._patience.is_half_used()):
            self._is_cut = True
            living.over(self._round, cut=True)
        if late and not self._late:
            log.info("the training processes of round %d are started anew: %s", self._round, late)
            for pid in self._pids:  # the log then says where it hung
                ask_for_stacks(pid)
        self._late = late

    def _tell(self, living: Living, view: wire.View | None, now: float) -> None:
        """Let the sidecar know that all processes have opted in: again if it did not take that, or was away since."""
        if view is None:
            self._times_away += 1  # the one that comes back may be another
            return
        known, is_busy = (self._round, self._times_away), self._telling is not None and self._telling.is_alive()
        if known == self._reported_live or is_busy or now < self._tells_after or not living.have_opted_in():
            return

        def tell() -> None:
            if self._tell_live(known[0]):
                self._reported_live = known

        self._tells_after = now + TELL_SECONDS
        self._telling = threading.Thread(target=tell, daemon=True)
        self._telling.start()

    def _stands(self, view: wire.View | None) -> bool:
        """Say whether the processes' round is known to stand: news of a change would come, and there are none."""
        return view is not None and view.round == self._round and view.phase != wire.Phase.FORMING

    def _may_live(self, view: wire.View | None) -> bool:
        return self._living is not None and self._living.have_opted_in() and not (view is not None and view.restart)


def _has_no_next(view: wire.View) -> bool:
    return view.leaving or view.closed
