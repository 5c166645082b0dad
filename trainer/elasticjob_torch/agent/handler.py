# SPDX-License-Identifier: Apache-2.0
"""torch's `RendezvousHandler` over the sidecar: the interface that the agent calls, in torch's terms.

The sidecar knows the rounds, and `AgentMembership` this agent's part in them. This module combines both with the
round's store and decides how the process ends: with ``SystemExit(0)`` when its stage is finished, with
``SystemExit(75)`` when the worker is scaled away or the job is complete without it (torch's own graceful-exit error
exits 1), with one sentence on stderr when torchrun runs where it cannot work, else with torch's rendezvous errors.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import TYPE_CHECKING

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from elasticjob_torch import wire
from elasticjob_torch.agent.failures import FailureLog
from elasticjob_torch.agent.going_on import GoingOn
from elasticjob_torch.agent.hooks import (
    CannotGoOn,
    ranks_come_through_the_store,
)
from elasticjob_torch.agent.joined import BACKEND, joined
from elasticjob_torch.agent.leftovers import Leftovers
from elasticjob_torch.agent.membership import AgentMembership
from elasticjob_torch.agent.reaping import Reaper
from elasticjob_torch.agent.settings import Settings
from elasticjob_torch.agent.stalls import StallInspector
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.agent.store import AgentStore
from elasticjob_torch.agent.tcp_store import store_alone
from elasticjob_torch.environment import MASTER_ADDRESS, START, HandedOn
from elasticjob_torch.sidecar.errors import (
    NoTrainer,
    RoundBroken,
    SidecarError,
    SidecarUnavailable,
    Superseded,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from elasticjob_torch.agent.prestarting import Prestarting

log = logging.getLogger(__name__)

_KILLED = 137  # the exit code of a process that SIGKILL ended
# torch counts this agent's own failures in it, and names log folders by it: those of an earlier round with the same
# number would be deleted.
_RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
_NO_PORT = 1
_PRESTARTED_SECONDS = 30.0  # as long as the last call for workers on their way


class ElasticJobRendezvousHandler(RendezvousHandler):  # type: ignore[misc]
    """Rendezvous of an ElasticJob's workers, kept in the Kubernetes API and reached through the sidecar."""

    def __init__(
        self,
        settings: Settings,
        membership: AgentMembership,
        warm: Prestarting | None = None,
        inherited: HandedOn | None = None,
    ) -> None:
        self._settings = settings
        self._membership = membership
        self._store: AgentStore | None = None
        self.failures = FailureLog()
        self.failures.hear()
        self._warm = warm
        self._inherited = inherited
        self._stalls = StallInspector(membership.tell_processes)
        self._leftovers = Leftovers(warm.living if warm is not None else tuple, settings.stop_timeout)
        self._reaper = Reaper()
        self._going_on = GoingOn(membership.updated.ring, membership.tell_live, settings.patience)
        self._keeps = False  # the next rendezvous is one of processes that run
        self._is_new = True
        self._round = 1  # the round in use
        self._has_been_in_a_round = False
        self._master_address = ""

    def get_backend(self) -> str:
        """Return the value of ``--rdzv-backend``."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Tell torch that training processes use the round's store, which the agent of rank 0 serves."""
        return True

    @property
    def max_restarts(self) -> int | None:
        """How often the agent may start its processes again after a failure. None: as its command line says."""
        return self._settings.max_restarts

    def get_run_id(self) -> str:
        """Return the run id, the job's UID."""
        return self._settings.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round; rank 0 serves its store.

        The others return once the store answers if their agent is to use it at once, otherwise without checking it. May
        be called again after an interruption. A round that ends before it is in use, or whose store fails, is skipped.

        In a job whose processes live through changes, a newcomer's get a round of their own first, in no group: they
        are ready when they join.

        Raises:
            CannotGoOn: `goes_on` said that the processes that run would go on into the next round, and they do not.
            SystemExit: code 0 when this torchrun's stage is finished, as in a restarted container; code 75 when this
                worker is scaled away, or the job is complete without it; with one sentence when the sidecar belongs to
                another job.
            RendezvousClosedError: the rendezvous is closed.
            RendezvousTimeoutError: no round within the job's ``spec.rendezvous.joinTimeoutSeconds``, or no torchrun of
                other workers within its ``startTimeoutSeconds``.
            RendezvousConnectionError: no sidecar for ``sidecar_timeout`` seconds (120).
        """
        keeps, self._keeps = self._keeps, False
        if not keeps:
            self._leftovers.begin()
            if self._going_on.begins_alone(self._membership.view):
                return self._alone()
            self._await_prestarted()
        while True:
            self._drop_store()
            try:
                handed = self._join(keeps)
            except CannotGoOn:
                if keeps:
                    raise
                if self._gets_ready():
                    return self._alone()
                continue
            try:
                info = self._enter(handed)
                if not keeps:
                    self._leftovers.end()
                self._reaper.look()
                return info
            except (RoundBroken, NoTrainer, RuntimeError) as error:  # the store's errors are RuntimeErrors
                log.info("round %d is passed over: %s", handed.number, error)
                self._membership.give_up(handed)
            except Superseded as error:
                raise SystemExit(f"{BACKEND}: {error}") from None
            except SidecarUnavailable as error:
                raise RendezvousConnectionError(str(error)) from None
            except SidecarError as error:
                raise RendezvousError(str(error)) from None

    def num_nodes_waiting(self) -> int:
        """Return more than 0 exactly when the round in use is no longer the formed one.

        It reads memory, without a lock or a call, and raises nothing.
        """
        return self._going_on.count(self._membership.notice_change(), self._membership.view)

    def goes_on(self) -> bool:
        """Say whether the processes that run go on into the next round, for which `next_rendezvous` is called then."""
        self._keeps = self._going_on.go_on(self._is_over(), self._membership.view)
        return self._keeps

    def gone_on(self, processes: Mapping[int, Mapping[str, str]]) -> None:
        """The processes that run are in the round now. ``processes``: torch's variables for them, by local rank."""
        self.failures.started(processes)
        ours = {MASTER_ADDRESS: self._master_address, _RESTART_COUNT: str(self._round - 1)}
        self._going_on.entered(self._round, {rank: {**given, **ours} for rank, given in processes.items()})

    def variables_for(self, processes: Mapping[int, Mapping[str, str]]) -> Mapping[str, str]:
        """Return variables for the training processes that start now. ``processes``: torch's own variables for them, by
        local rank."""
        self.failures.started(processes)
        ours = {MASTER_ADDRESS: self._master_address, _RESTART_COUNT: str(self._round - 1)}
        start, places = self._leftovers.new_start(), {rank: {**given, **ours} for rank, given in processes.items()}
        return {START: start, **ours, **self._going_on.started(start, places, self._round)}

    def await_update(self, seconds: float, processes: Sequence[int]) -> None:
        """Wait until the sidecar sends something, or one of ``processes`` (pids) ends; at most ``seconds``."""
        self._membership.updated.wait(seconds, processes)
        self._reaper.look(processes)
        self._stalls.look(self._membership.view, processes)
        self._going_on.look(self._membership.present_view, self._is_over(), processes)

    def is_closed(self) -> bool:
        """Say whether the rendezvous is closed, as far as the sidecar has told."""
        view = self._membership.view
        return view is not None and view.closed

    def set_closed(self) -> None:
        """Close the rendezvous for all: the formed round trains to its end, and no worker joins another.

        Returns once that is recorded, within ``close_timeout`` seconds (30).

        Raises:
            RendezvousConnectionError: it could not be recorded in that time.
        """
        try:
            self._membership.close()
        except CannotRunHere as error:
            raise SystemExit(f"{BACKEND}: {error}") from None
        except SidecarError as error:
            raise RendezvousConnectionError(f"the rendezvous could not be closed: {error}") from error

    def shutdown(self) -> bool:
        """End this agent's membership: finish after success, else leave; the job itself goes on.

        Success is known only from torch's agent entering its exit barrier: some versions call this while no exception
        is in flight although training processes have failed. Raises nothing: a stop signal ends its wait, and what it
        waited for is then not recorded. May be called again, and returns whether the end is recorded. Takes
        milliseconds; while the API server is unavailable at most ``close_timeout`` seconds (30) for a leave and 300 for
        a finish, which is lost with this process.
        """
        kind = sys.exc_info()[0]
        stopped = kind is not None and issubclass(kind, SignalException)
        recorded = False
        with _through_signals():
            recorded = self._membership.end(stopped=stopped, exit_code=self.failures.take().exit_code)
        with _through_signals():
            self._drop_store()
        with _through_signals():
            self._going_on.close()
            if self._warm is not None:
                self._warm.close()
        if self._inherited is not None:
            self._inherited.end()
        return recorded

    def _await_prestarted(self) -> None:
        """Before this newcomer's join stops a training group, wait until its own processes have their imports."""
        warm, self._is_new = self._warm if self._is_new else None, False
        deadline = time.monotonic() + _PRESTARTED_SECONDS
        if warm is None or warm.is_ready() or not self._trains(deadline):
            return
        began = time.monotonic()
        log.info("a round is formed: it trains on while this worker's processes import")
        while not warm.is_ready() and self._trains(deadline) and time.monotonic() < deadline:
            self.await_update(0.05, ())
        log.info("asking for the next round, after %.1f s", time.monotonic() - began)

    def _trains(self, deadline: float) -> bool:
        """Say whether a round is formed, once the sidecar has told; that takes an instant."""
        while self._membership.view is None and time.monotonic() < deadline:
            self.await_update(0.05, ())
        view = self._membership.view
        return view is not None and view.phase == wire.Phase.FORMED

    def _is_over(self) -> bool:
        return self._membership.has_ended(self._round)

    def _gets_ready(self) -> bool:
        """Say whether this waiting worker's processes get ready now; then its join is taken back."""
        if not self._going_on.begins_alone(self._membership.view):
            return False
        self._membership.excuse()
        self._membership.step_out()
        return True

    def _alone(self) -> RendezvousInfo:
        """Let processes get ready before this agent joins; if it was in a round, say that it comes back."""
        failure = self.failures.take()
        if self._has_been_in_a_round:
            self._membership.step_out(failure)
        log.info("this worker's processes get ready while the others train on")
        # a store for the agent only; nothing answers at the port, so that no script trains in a group of its own
        return RendezvousInfo(store_alone(), 0, 1, RendezvousStoreInfo("127.0.0.1", _NO_PORT))

    def _join(self, keeps: bool) -> wire.Round:
        failure = self.failures.take()
        if self._warm is not None and self._warm.has_killed() and failure.exit_code in (None, _KILLED):
            self._membership.excuse()
            failure = wire.NO_FAILURE
        going_on, membership = self._going_on, self._membership

        def is_void() -> bool:
            return going_on.have_ended() if keeps else going_on.would_begin_alone(membership.view)

        return joined(lambda: membership.join(failure, is_void, live=keeps))

    def _enter(self, handed: wire.Round) -> RendezvousInfo:
        """Bring the round's store up and take the round into use."""
        membership, number, address = self._membership, handed.number, handed.store
        store = self._store = AgentStore(
            lambda seconds: membership.await_store(handed, time.monotonic() + seconds),
            handed.world_size,
            lambda: membership.has_ended(number),
            membership.is_over,
            membership.finish,
            self._settings.store_timeout,
        )
        if handed.rank == 0:
            membership.post_store(handed, store.serve())
        elif ranks_come_through_the_store(os.environ):
            store.connect()
        membership.use(handed)
        self._round, self._master_address, self._has_been_in_a_round = number, handed.master_address, True
        log.info("round %d: rank %d of %d", number, handed.rank, handed.world_size)
        return RendezvousInfo(store, handed.rank, handed.world_size, RendezvousStoreInfo(address.host, address.port))

    def _drop_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


@contextlib.contextmanager
def _through_signals() -> Iterator[None]:
    """If a stop signal arrives meanwhile, continue after the block."""
    try:
        yield
    except SignalException as error:
        log.info("stopped by %s while it ended", error.sigval.name)
