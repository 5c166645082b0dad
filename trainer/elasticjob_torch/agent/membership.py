"""One agent's membership in the rendezvous, from its start to its end, without torch.

Holds what the sidecar cannot know: which round this trainer has used, whether it was told of a change,
and how it ends. The handler turns this into torch's terms. Used from one thread, the agent's main thread;
a signal's exception may surface in any line, so state changes are single assignments, made last.
"""

from __future__ import annotations

import logging
import time
import uuid
import weakref
from typing import TYPE_CHECKING

from elasticjob_torch import wire
from elasticjob_torch.sidecar.client import (
    Closed,
    JoinTimeout,
    Leaving,
    NoTrainer,
    Round,
    RoundBroken,
    SidecarClient,
    SidecarError,
    SidecarUnavailable,
    StoreAddress,
    StoreTimeout,
    Superseded,
)
from elasticjob_torch.sidecar.events import EventStream, View

if TYPE_CHECKING:
    from elasticjob_torch.agent.settings import Settings

log = logging.getLogger(__name__)

_STORE_SLICE_SECONDS = 20.0
# While the API server is away, the word of success is worth waiting for: this process ends with it.
_FINISH_SECONDS = wire.RECORDED_SECONDS


class CannotRunHere(Exception):
    """This process runs where it cannot work; the message is one sentence for the user."""


class Membership:
    """Joins, watches and ends this agent's part in the rendezvous through the sidecar."""

    def __init__(self, settings: Settings) -> None:
        trainer = uuid.uuid4().hex
        self._settings = settings
        self._events = EventStream(settings.host, settings.port, trainer)
        # an agent that is dropped without an end is gone, as a killed one is
        weakref.finalize(self, self._events.let_go).atexit = False
        self._client = SidecarClient(settings.host, settings.port, trainer, settings.sidecar_timeout)
        self._used = 0  # the last round that this trainer has used or given up
        self._told = False  # the agent was told that its round ended
        self._departed = False  # told that there is no next round: the end is no failure of this worker
        self._succeeded = 0  # the round whose work is done
        self._recorded = 0  # the same, once it is recorded
        self._ended: bool | None = None  # whether the end is recorded, once it was told

    def open(self) -> None:
        """Make sure that a sidecar of the right job answers, and open the event stream.

        Raises:
            CannotRunHere: no sidecar, or one of another job.
        """
        settings = self._settings
        try:
            view = self._client.view()
        except SidecarError as error:
            raise CannotRunHere(
                f"no ElasticJob sidecar at {settings.host}:{settings.port} ({error}); this backend works only "
                "in a worker pod of an ElasticJob, elsewhere use another --rdzv-backend"
            ) from error
        self._check_run_id(str(view.get("runId") or settings.run_id))
        self._events.start()

    @property
    def view(self) -> View | None:
        """The newest view of the rendezvous, None before the first."""
        return self._events.view

    def notice_change(self) -> int:
        """Return how many nodes to report as waiting: 0 while the round in use is the formed one."""
        view = self._events.view
        if view is None or not self._used or not view.ends_round(self._used):
            return 0
        if not self._told:
            log.info("round %d is over: %s", self._used, "told to leave" if view.leaving else view.reason)
        self._told = True
        return max(1, view.waiting)

    def has_ended(self, number: int) -> bool:
        """Say whether the round ``number`` is known to be over for this agent."""
        view = self._events.view
        return view is not None and view.ends_round(number)

    def is_over(self) -> bool:
        """Say whether the whole job has ended, so that no agent has to be waited for."""
        view = self._events.view
        return view is not None and view.closed and view.outcome in (wire.Outcome.COMPLETE, wire.Outcome.FAILED)

    def join(self, deadline: float | None, failure: str = "") -> Round:
        """Wait for the next round; ``deadline`` is of the monotonic clock, None for no limit.

        ``failure`` says what failed in this worker's processes, if that is why it joins again.

        Without a limit the job's own joinTimeoutSeconds ends the wait: the operator, who judges it, knows whether there
        are pods to wait for. What a join waits for is logged once a minute.

        Asking again after an interruption gives the same round, as long as it stands.

        Raises:
            Leaving, Closed: there is no next round for this worker.
            JoinTimeout: the deadline passed.
            SidecarUnavailable: the sidecar stayed away.
            CannotRunHere: the sidecar belongs to another job, or a newer torchrun has taken over.
        """
        self._await_stream()  # first, as it may bring the news that decides the cause
        cause = self._cause()
        detail = failure if cause is wire.JoinCause.WORKER_FAILED else ""
        refused_until = 0.0
        while True:
            self._await_stream()
            left = wire.LONGEST_SECONDS if deadline is None else max(0.1, deadline - time.monotonic())
            seconds = min(left, wire.LONGEST_SECONDS)
            try:
                handed = self._client.join(
                    self._used, cause, seconds, self._still_waiting, self._settings.limits, detail
                )
            except NoTrainer as error:  # the stream is opening again, or the pod is stopping
                now = time.monotonic()
                refused_until = refused_until or now + self._settings.sidecar_timeout
                if now > refused_until:
                    seconds = self._settings.sidecar_timeout
                    raise SidecarUnavailable(f"the sidecar refuses a join, for {seconds:g} s: {error}") from error
                time.sleep(0.1)
                continue
            except JoinTimeout:
                refused_until = 0.0
                if deadline is None or time.monotonic() < deadline:
                    continue
                raise
            except Superseded as error:
                raise CannotRunHere(str(error)) from error
            except (Closed, Leaving):
                self._departed = True
                raise
            self._check_run_id(handed.run_id)
            self._events.handed = handed.number
            return handed

    def use(self, handed: Round) -> None:
        """Take the round into use; from now on its end is reported by `notice_change`."""
        self._told = False
        self._used = handed.number

    def give_up(self, handed: Round) -> None:
        """Ask for a later round next time: this one's store did not come or broke."""
        self._told = self.has_ended(handed.number)
        self._used = handed.number

    def post_store(self, handed: Round, port: int) -> None:
        """Tell that this agent serves the round's store; raises `RoundBroken` when it came too late."""
        self._client.post_store(handed.number, port)

    def await_store(self, handed: Round, deadline: float) -> StoreAddress:
        """Wait until the round's store answers.

        Raises:
            RoundBroken: the round ended before, or the store had not come by the deadline.
        """
        why = "no time is left"
        while True:
            if self.has_ended(handed.number):
                raise RoundBroken(wire.Code.ROUND_BROKEN, f"round {handed.number} ended before its store served")
            left = deadline - time.monotonic()
            if left <= 0:
                raise RoundBroken(wire.Code.ROUND_BROKEN, f"the store of round {handed.number} did not come: {why}")
            try:
                return self._client.await_store(handed.number, min(left, _STORE_SLICE_SECONDS))
            except StoreTimeout as error:
                why = str(error)
                log.info("still waiting: %s", why)

    def finish(self, seconds: float | None = None) -> bool:
        """Tell that the work of the round in use is done; return whether that is recorded. Never raises.

        Waits at most ``seconds`` (default: the setting ``close_timeout``).
        """
        self._succeeded = self._used
        if self._recorded == self._used:
            return True
        try:
            self._client.finish(self._used, seconds or self._settings.close_timeout)
        except SidecarError as error:
            log.warning("could not record the success of round %d: %s", self._used, error)
            return False
        self._recorded = self._used
        return True

    def close(self) -> None:
        """Close the rendezvous for all; raises `SidecarError`, or `CannotRunHere` when a newer torchrun has taken
        over."""
        self._await_stream()  # without it the sidecar would not know whose word it is
        self._client.close(self._settings.close_timeout)

    def end(self, *, stopped: bool = False) -> bool:
        """End the membership in the way that fits; return whether it is recorded. Never raises.

        Only what `finish` told is a success. The second call and later ones do nothing.

        Args:
            stopped: the agent was stopped by a signal; the sidecar sees the pod's end by itself.
        """
        if self._ended is None:
            try:
                self._ended = stopped or self._tell_end()
            finally:
                self._events.stop()
        return self._ended

    def _tell_end(self) -> bool:
        if self._used and self._succeeded == self._used:
            return self.finish(_FINISH_SECONDS)
        cause = wire.LeaveCause.POD_STOPPING if self._departed else wire.LeaveCause.TRAINER_LEFT
        try:
            self._client.leave(cause, self._settings.close_timeout)
        except SidecarError as error:
            log.warning("could not record the leave: %s", error)
            return False
        return True

    def _cause(self) -> wire.JoinCause:
        if not self._used:
            return wire.JoinCause.STARTED
        if self._told or self.notice_change():
            return wire.JoinCause.MEMBERSHIP_CHANGED
        # The loss of a peer may show in broken connections first: the operator judges when it knows of both.
        log.info("round %d is over for this worker: its processes failed", self._used)
        return wire.JoinCause.WORKER_FAILED

    def _still_waiting(self, seconds: float) -> None:
        """Say what a join waits for; raises `SidecarUnavailable` when the sidecar has fallen silent meanwhile."""
        self._await_stream()
        view = self._events.view
        at = "unknown to the sidecar yet" if view is None else f"at {view.phase} {view.round}"
        reason = "" if view is None or not view.reason else f", {view.reason}"
        log.info("waiting for a round for %.0f s: the job is %s%s", seconds, at, reason)

    def _await_stream(self) -> None:
        give_up = time.monotonic() + self._settings.sidecar_timeout
        while not self._events.connected.wait(0.1):
            if self._events.superseded:
                raise CannotRunHere("a newer torchrun in this pod has taken this one's place")
            if time.monotonic() > give_up:
                seconds = self._settings.sidecar_timeout
                raise SidecarUnavailable(f"the sidecar's event stream did not open within {seconds:g} s", passing=False)

    def _check_run_id(self, run_id: str) -> None:
        if run_id != self._settings.run_id:
            raise CannotRunHere(
                f"this pod's ElasticJob has the run id {run_id}, but torchrun was started with "
                f"--rdzv-id={self._settings.run_id}; leave that option out"
            )
