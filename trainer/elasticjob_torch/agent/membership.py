# SPDX-License-Identifier: Apache-2.0
"""One agent's membership in the rendezvous: its state machine, over HTTP, in real time.

The handler translates this into torch's terms. Used from one thread, the agent's main thread, except for
`tell_imports`, `tell_live` and `tell_processes`.
"""

from __future__ import annotations

import logging
import sys
import uuid
import weakref
from typing import TYPE_CHECKING, TypeVar

from elasticjob_torch import wire
from elasticjob_torch.agent.alarm import Alarm
from elasticjob_torch.agent.command_line import script_of, start_of_container
from elasticjob_torch.agent.state_machine import AgentStateMachine
from elasticjob_torch.sidecar.client import SidecarClient
from elasticjob_torch.sidecar.errors import NoTrainer, SidecarError, SidecarUnavailable
from elasticjob_torch.sidecar.events import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from elasticjob_torch.agent.settings import Settings
    from elasticjob_torch.agent.state_machine import Steps

log = logging.getLogger(__name__)

T = TypeVar("T")


class AgentMembership(AgentStateMachine):
    """Joins the rendezvous through the sidecar, follows it and ends this agent's part in it.

    Attributes:
        updated: rings at each view that the sidecar sends.
    """

    def __init__(self, settings: Settings) -> None:
        trainer = uuid.uuid4().hex
        self.updated = Alarm()
        container, script = start_of_container(), script_of(sys.argv)
        events = EventStream(settings.address, trainer, self.updated.ring, container, script)
        # an agent that is dropped without an end is gone, like a killed one
        weakref.finalize(self, events.let_go).atexit = False
        client = SidecarClient(settings.address, trainer, settings.sidecar_timeout, self.updated.await_readable)
        super().__init__(settings, client, events)

    def open(self) -> None:
        """Make sure that a sidecar of the right job answers, and open the event stream.

        Raises:
            CannotRunHere: no sidecar, or one of another job.
        """
        self._go(self.opening())

    def join(
        self,
        failure: wire.Failure = wire.NO_FAILURE,
        is_void: Callable[[], bool] = lambda: False,
        *,
        live: bool = False,
    ) -> wire.Round:
        """Wait for the next round.

        ``failure``: what failed first in this worker's processes, even if the round was over by then: it may be the
        reason.

        The job's own joinTimeoutSeconds ends the wait: the operator, who judges it, knows whether there are pods to
        wait for. What a join waits for is logged once a minute.

        Another call after an interruption returns the same round, while it stands.

        ``is_void``: asked at each view, and with ``live`` several times a second: True ends the wait.
        ``live``: the training processes run, and live on into that round.

        Raises:
            Interrupted: the join is void. `step_out` then takes it back.
            NewProcesses: the training processes have to be new ones.
            Leaving, Closed, StageFinished: there is no next round for this torchrun.
            SidecarUnavailable: the sidecar stayed away.
            CannotRunHere: the sidecar belongs to another job, or a newer torchrun has taken over.
        """
        return self._go(self.joining(failure, is_void, live=live))

    def step_out(self, failure: wire.Failure = wire.NO_FAILURE) -> None:
        """Leave the group until this agent's new processes are ready; a join then follows. Never raises.

        ``failure``: as for a join.
        """
        self._go(self.stepping_out(failure))

    def tell_live(self, round_number: int) -> bool:
        """Tell that all processes of the round live through changes. Never raises; any thread may call it.

        Returns whether the sidecar has taken it, or never will.
        """
        try:
            self._client.tell_live(round_number)
        except SidecarError as error:
            log.info("the sidecar is not told that the training processes live through changes: %s", error)
            return not isinstance(error, (SidecarUnavailable, NoTrainer))
        return True

    def post_store(self, handed: wire.Round, port: int) -> None:
        """Tell that this agent serves the round's store. Raises `RoundBroken` if it is too late."""
        self._go(self.posting_store(handed, port))

    def await_store(self, handed: wire.Round, deadline: float) -> wire.StoreAddress:
        """Wait until the round's store answers.

        Raises:
            RoundBroken: the round ended before, or the store had not come by the deadline.
        """
        return self._go(self.awaiting_store(handed, deadline))

    def finish(self, seconds: float | None = None) -> bool:
        """Tell that the work of the round in use is done; return whether that is recorded. Never raises.

        Waits at most ``seconds`` (default: the setting ``close_timeout``).
        """
        return self._go(self.finishing(seconds))

    def close(self) -> None:
        """Close the rendezvous for all. Raises `SidecarError`, or `CannotRunHere` if a newer torchrun has taken
        over."""
        self._go(self.closing())

    def end(self, *, stopped: bool = False, exit_code: int | None = None) -> bool:
        """End the membership in the way that fits; return whether it is recorded. Never raises.

        Only an earlier `finish` makes it a success. The second call and later ones do nothing.

        Args:
            stopped: a signal stopped the agent; the sidecar sees the pod's end by itself.
            exit_code: of the training process that failed first, if one has.
        """
        return self._go(self.ending(stopped=stopped, exit_code=exit_code))

    def tell_imports(self, names: Sequence[str]) -> bool:
        """Tell the script's imports, in order, for the job's next pods. Never raises; any thread may call it.

        Returns whether the sidecar has answered: a refusal would be repeated.
        """
        try:
            self._client.tell_imports(names)
        except SidecarError as error:
            log.info("the job's next pods are not told what the script imports: %s", error)
            return not isinstance(error, SidecarUnavailable)
        return True

    def tell_processes(self, round_number: int, state: wire.ProcessState, local_rank: int) -> None:
        """Tell the state of the round's training processes. Never raises; any thread may call it."""
        try:
            self._client.tell_processes(round_number, state, local_rank)
        except SidecarError as error:
            log.info("the sidecar is not told what the training processes do: %s", error)

    def _go(self, steps: Steps[T]) -> T:
        try:
            do = next(steps)
            while True:
                try:
                    result = do()
                except BaseException as error:  # a signal's too
                    do = steps.throw(error)
                else:
                    do = steps.send(result)
        except StopIteration as ended:
            returned: T = ended.value
            return returned
