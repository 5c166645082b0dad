# SPDX-License-Identifier: Apache-2.0
"""One agent's way through the rendezvous, from its start to its end, without torch, threads or sockets.

It holds what the sidecar cannot know: which round this trainer has used, whether it was told of a change, and how it
ends. It is written as generators of steps. Each yields a call that may take time, and continues with its result or its
exception: `Membership` makes the call and waits, a simulator lets time pass. A signal's exception may surface in any
line, so state changes are single assignments, made last.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from elasticjob_torch import wire
from elasticjob_torch.sidecar.calls import Interrupted
from elasticjob_torch.sidecar.client import Calls
from elasticjob_torch.sidecar.errors import (
    Closed,
    JoinTimeout,
    Leaving,
    NoTrainer,
    OtherScript,
    RoundBroken,
    SidecarError,
    SidecarUnavailable,
    StageFinished,
    StoreTimeout,
    Superseded,
)

if TYPE_CHECKING:
    from elasticjob_torch.agent.settings import Settings
    from elasticjob_torch.sidecar.events import EventStream

log = logging.getLogger(__name__)

T = TypeVar("T")
Steps = Generator[Callable[[], Any], Any, T]  # yields a call, receives its result, returns the result of all

_STORE_SLICE_SECONDS, _LOG_SECONDS = 20.0, 60.0
# While the API server is unavailable, success is worth waiting for: the record of it is lost with this process.
_FINISH_SECONDS = wire.RECORDED_SECONDS


class CannotRunHere(Exception):
    """This process runs where it cannot work. The message is one sentence for the user."""


class AgentStateMachine(ABC):
    """What an agent does in the rendezvous, in steps; what they raise and return says `Membership`.

    Args:
        client, events: the sidecar; `Steps` wait for its answers, and here nothing does.
        clock, sleep: the time, in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        client: Calls,
        events: EventStream,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self._settings = settings
        self._client = client
        self._events = events
        self._clock = clock
        self._sleep = sleep
        self._used = 0  # the last round that this trainer has used or given up
        self._notified = False  # the agent was told that its round ended
        self._departed = False  # told that there is no next round: the end is no failure of this worker
        self._done_before = False  # told that the stage is finished: the sidecar has recorded that
        self._succeeded = 0  # the round whose work is done
        self._recorded = 0  # the same, once it is recorded
        self._ended: bool | None = None  # whether the end is recorded, once it was sent

    def opening(self) -> Steps[None]:
        settings = self._settings
        waits = "no sidecar answers at %s yet; waiting for at most %g s"
        log_once = cache(partial(log.info, waits, settings.address, settings.sidecar_timeout))
        try:
            ours: wire.Ours = yield partial(self._client.view, log_once)
        except SidecarError as error:
            raise CannotRunHere(
                f"no ElasticJob sidecar at {settings.address} ({error}); this backend works only "
                "in a worker pod of an ElasticJob, elsewhere use another --rdzv-backend"
            ) from error
        self._check_run_id(ours.run_id)
        self._events.start()
        try:
            yield from self._stream_opens()  # it never opens while another torchrun of this pod lives
        except SidecarUnavailable as error:
            raise CannotRunHere(f"the sidecar at {settings.address} does not serve: {error}") from error

    @property
    def view(self) -> wire.View | None:
        """The newest view of the rendezvous, None before the first."""
        return self._events.view

    @property
    def present_view(self) -> wire.View | None:
        """The view; None while it may be out of date, because the sidecar is not heard, or does not hear the API
        server."""
        view = self._events.present_view
        return None if view is None or view.api_away else view

    def notice_change(self) -> int:
        """Return how many nodes to report as waiting: 0 while the round in use is the formed one."""
        if not self._used or not self.has_ended(self._used):
            return 0
        view = self._events.view
        if not self._notified:
            log.info("round %d is over: %s", self._used, self._why_over())
        self._notified = True
        return 1 if view is None else max(1, view.waiting)

    def has_ended(self, number: int) -> bool:
        """Say whether this agent knows that the round ``number`` is over."""
        view = self._events.view
        return self._events.superseded or (view is not None and view.ends_round(number))

    def _why_over(self) -> str:
        view = self._events.view
        if self._events.superseded or view is None:
            return "a newer torchrun in this pod has taken this one's place"
        return "told to leave" if view.leaving else view.reason

    def is_over(self) -> bool:
        """Say whether no member trains any more, or the whole job has ended, so that no agent has to be awaited."""
        view = self._events.view
        if view is None:
            return False
        return view.ended or (view.closed and view.outcome in (wire.Outcome.COMPLETE, wire.Outcome.FAILED))

    def joining(
        self,
        failure: wire.Failure = wire.NO_FAILURE,
        is_void: Callable[[], bool] = lambda: False,
        *,
        live: bool = False,
    ) -> Steps[wire.Round]:
        look = self._looking(is_void)
        yield from self._stream_opens(is_void=is_void)  # first, as it may bring the news that decides the cause
        cause = self._cause()
        refused_until = 0.0
        while True:
            _end_if(is_void)
            yield from self._stream_opens(is_void=is_void)
            limits, longest = self._settings.limits, wire.LONGEST_SECONDS
            ask = partial(self._client.join, self._used, cause, longest, look, limits, failure, live)
            try:
                handed: wire.Round = yield ask
            except NoTrainer as error:  # the stream is opening again, or the pod is stopping
                now = self._clock()
                refused_until = refused_until or now + self._settings.sidecar_timeout
                if now > refused_until:
                    seconds = self._settings.sidecar_timeout
                    raise SidecarUnavailable(f"the sidecar refuses a join, for {seconds:g} s: {error}") from error
                yield partial(self._sleep, 0.1)
                continue
            except JoinTimeout:
                refused_until = 0.0  # the operator decides how long the job may wait
                continue
            except (Superseded, OtherScript) as error:
                raise CannotRunHere(str(error)) from error
            except StageFinished:
                self._done_before = True
                raise
            except (Closed, Leaving):
                self._departed = True
                raise
            self._check_run_id(handed.run_id)
            self._events.handed, self._events.stage = handed.number, handed.stage
            return handed

    def use(self, handed: wire.Round) -> None:
        """Take the round into use. From now on `notice_change` reports its end."""
        self._notified = False
        self._used = handed.number

    def excuse(self) -> None:
        """Ask for the next round as if told to, although processes have failed: this agent itself ended them."""
        self._notified = True

    def give_up(self, handed: wire.Round) -> None:
        """Ask for a later round next time: this one's store did not come, or broke."""
        self._notified = self.has_ended(handed.number)
        self._used = handed.number

    def stepping_out(self, failure: wire.Failure = wire.NO_FAILURE) -> Steps[None]:
        """Leave until new processes are ready. The leave counts as the join would, so the join that follows does
        not."""
        notified = self._notified or bool(self.notice_change())
        cause = wire.LeaveCause.MEMBERSHIP_CHANGED if notified else wire.LeaveCause.WORKER_FAILED
        seconds = self._settings.close_timeout
        try:
            yield from self._telling(partial(self._client.leave, cause, seconds, failure), seconds)
        except (SidecarError, CannotRunHere) as error:
            log.warning("could not record that this worker's processes are started anew: %s", error)
            return
        self._notified = True

    def posting_store(self, handed: wire.Round, port: int) -> Steps[None]:
        yield partial(self._client.post_store, handed.number, port)

    def awaiting_store(self, handed: wire.Round, deadline: float) -> Steps[wire.StoreAddress]:
        why = "no time is left"
        while True:
            if self.has_ended(handed.number):
                raise RoundBroken(wire.Code.ROUND_BROKEN, f"round {handed.number} ended before its store served")
            left = deadline - self._clock()
            if left <= 0:
                raise RoundBroken(wire.Code.ROUND_BROKEN, f"the store of round {handed.number} did not come: {why}")
            try:
                address: wire.StoreAddress = yield partial(
                    self._client.await_store, handed.number, min(left, _STORE_SLICE_SECONDS)
                )
            except StoreTimeout as error:
                why = str(error)
                log.info("still waiting: %s", why)
            else:
                return address

    def finishing(self, seconds: float | None = None) -> Steps[bool]:
        self._succeeded = self._used
        if self._recorded == self._used:
            return True
        seconds = seconds or self._settings.close_timeout
        try:
            yield from self._telling(partial(self._client.finish, self._used, seconds), seconds)
        except (SidecarError, CannotRunHere) as error:
            log.warning("could not record the success of round %d: %s", self._used, error)
            return False
        self._recorded = self._used
        return True

    def closing(self) -> Steps[None]:
        seconds = self._settings.close_timeout
        yield from self._telling(partial(self._client.close, seconds), seconds)

    def ending(self, *, stopped: bool = False, exit_code: int | None = None) -> Steps[bool]:
        if self._ended is None:
            try:
                self._ended = stopped or (yield from self._telling_end(exit_code))
            finally:
                self._ended = bool(self._ended)  # a stop signal may have come in between
                self._events.stop()
        return self._ended

    def _telling_end(self, exit_code: int | None) -> Steps[bool]:
        if self._done_before:
            return True
        if self._used and self._succeeded == self._used:
            return (yield from self.finishing(_FINISH_SECONDS))
        cause = wire.LeaveCause.TOLD_TO_LEAVE if self._departed else wire.LeaveCause.TRAINER_LEFT
        seconds = self._settings.close_timeout
        try:
            yield from self._telling(partial(self._client.leave, cause, seconds, wire.Failure("", exit_code)), seconds)
        except (SidecarError, CannotRunHere) as error:
            log.warning("could not record the leave: %s", error)
            return False
        return True

    def _telling(self, tell: Callable[[], Any], seconds: float) -> Steps[None]:
        """Make a call that requires the sidecar to know this trainer, which it does once the stream is open again."""
        patience = min(seconds, self._settings.sidecar_timeout)
        deadline = self._clock() + patience
        while True:
            yield from self._stream_opens(patience)
            try:
                yield tell
            except NoTrainer:
                if self._clock() > deadline:
                    raise
                yield partial(self._sleep, 0.1)
            else:
                return

    def _cause(self) -> wire.JoinCause:
        if not self._used:
            return wire.JoinCause.STARTED
        if self._notified or self.notice_change():
            return wire.JoinCause.MEMBERSHIP_CHANGED
        # A lost peer may show first as broken connections: the operator judges once it knows of both.
        log.info("round %d is over for this worker: its processes failed", self._used)
        return wire.JoinCause.WORKER_FAILED

    @abstractmethod
    def _go(self, steps: Steps[T]) -> T:
        """Run the steps."""

    def _looking(self, is_void: Callable[[], bool]) -> Callable[[], Any]:
        """Return what a join calls while it waits: it ends one that is void, and logs once a minute."""
        began = logged = self._clock()

        def look() -> Any:
            nonlocal logged
            _end_if(is_void)
            now = self._clock()
            if now - logged < _LOG_SECONDS:
                return None
            logged = now
            return self._go(self._asking_on(now - began, is_void))

        return look

    def _asking_on(self, seconds: float, is_void: Callable[[], bool]) -> Steps[None]:
        """Log what a join waits for. Raises `SidecarUnavailable` if the sidecar has gone silent meanwhile."""
        yield from self._stream_opens(is_void=is_void)
        view = self._events.view
        at = "unknown to the sidecar yet" if view is None else f"at {view.phase} {view.round}"
        reason = "" if view is None or not view.reason else f", {view.reason}"
        log.info("waiting for a round for %.0f s: the job is %s%s", seconds, at, reason)

    def _stream_opens(self, seconds: float | None = None, is_void: Callable[[], bool] = lambda: False) -> Steps[None]:
        seconds = self._settings.sidecar_timeout if seconds is None else seconds
        deadline = self._clock() + seconds
        while not (yield partial(self._events.opens, 0.1)):
            _end_if(is_void)
            if self._events.superseded:
                raise CannotRunHere("a newer torchrun in this pod has taken this one's place")
            if self._events.taken:
                raise CannotRunHere(self._events.taken)
            if self._clock() > deadline:
                raise SidecarUnavailable(f"the sidecar's event stream did not open within {seconds:g} s", passing=False)

    def _check_run_id(self, run_id: str) -> None:
        if run_id != self._settings.run_id:
            raise CannotRunHere(
                f"this pod's ElasticJob has the run id {run_id}, but torchrun was started with "
                f"--rdzv-id={self._settings.run_id}; leave that option out"
            )


def _end_if(is_void: Callable[[], bool]) -> None:
    if is_void():
        raise Interrupted("the join is taken back")
