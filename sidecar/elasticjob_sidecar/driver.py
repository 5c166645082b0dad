# SPDX-License-Identifier: Apache-2.0
"""Drive the membership state machine: pass inputs to it, and carry out its outputs.

Everything that changes the machine goes through the driver, in the event loop's single thread. After each input it
carries out the output in order, and wakes all that wait for a change. It makes no decisions.
"""

import asyncio
import contextlib
import logging
from typing import Any

from elasticjob import logs
from elasticjob.api import ProcessState, RendezvousStatus, RequestCause, RequestType, WorkerRequest
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from elasticjob_sidecar.api_server.worker_status import ScriptProgress
from elasticjob_sidecar.membership.concerns import Concerns
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.model import (
    NO_LIMITS,
    UNKNOWN_TORCHRUN,
    Handed,
    Limits,
    Torchrun,
)
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.output import Output, Standing
from elasticjob_sidecar.membership.refusal import Refused, superseded
from elasticjob_sidecar.metrics import Metrics
from elasticjob_torch import wire
from elasticjob_torch.wire import NO_FAILURE, Code, Failure

log = logging.getLogger(__name__)


class Driver:
    def __init__(self, membership: Membership, concerns: Concerns, record: WorkerRecord, metrics: Metrics) -> None:
        self._machine, self._concerns = membership, concerns
        self._record, self.metrics = record, metrics
        record.recall = self.recall
        self._output = membership.take()
        self._next_change = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._logged = ""
        self.api_away = False  # the API server is not heard
        self._sentences = [concern.sentence for concern in concerns]
        self._status = {name: value for concern in concerns for name, value in concern.status.items()}

    @property
    def standing(self) -> Standing:
        """The worker's standing, from the machine's last output."""
        return self._output.standing

    @property
    def ready(self) -> bool:
        """Whether the worker's record is written and its job was seen."""
        return self._record.established and self.standing.job is not None

    @property
    def holds(self) -> bool:
        """Whether the change of the group is withheld from the trainer."""
        return any(concern.hold for concern in self._concerns)

    @property
    def next_change(self) -> asyncio.Event:
        """An event that is set at the next input. Take it before reading the state, so that no change is missed."""
        return self._next_change

    # --- inputs

    def job_seen(self, status: RendezvousStatus) -> None:
        logs.note(round=status.round)
        self._machine.job_seen(status, self._now())
        stand = f"{status.phase} {status.round}: {status.world_size} workers" + f", {status.reason}" * bool(
            status.reason
        )
        if stand != self._logged:
            log.info("job is at %s", stand)
            self._logged = stand
        self._settle()

    def api_heard(self, heard: bool) -> None:
        """Whether the API server is heard, from now on."""
        self.api_away = not heard
        self._settle()

    async def vacated(self, trainer: str) -> None:
        """Wait some seconds until no other trainer is connected: a shell may start the next one before the last one's
        end is noticed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wire.PREDECESSOR_SECONDS):
                while self._machine.is_taken(trainer):
                    await self._next_change.wait()

    def attach(self, trainer: str, round: int, torchrun: Torchrun = UNKNOWN_TORCHRUN) -> int:
        """Raises Refused if another trainer lives, or has replaced this one."""
        try:
            stream = self._machine.attached(trainer, round, torchrun)
        except Refused as refused:
            log.warning("trainer %s, process %d, is refused: %s", trainer[:8], torchrun.pid, refused.message)
            raise
        log.info("trainer %s, process %d, is connected, holding round %d", trainer[:8], torchrun.pid, round)
        self._settle()
        return stream

    def detach(self, trainer: str, stream: int) -> None:
        self._machine.detached(stream, self._now())
        log.info("trainer %s is gone", trainer[:8])
        self._settle()

    async def join(
        self,
        trainer: str,
        after: int,
        cause: RequestCause,
        patience: float,
        limits: Limits = NO_LIMITS,
        failure: Failure = NO_FAILURE,
        live: bool = False,
    ) -> Handed:
        """Wait for the trainer's next round. Raises Refused."""
        began = self._now()
        ticket: asyncio.Future[Handed] = asyncio.get_running_loop().create_future()
        self._machine.join(trainer, after, cause, patience, ticket, began, limits, failure, live)
        self.metrics.first_step.joined(began)
        self.metrics.joins.labels(cause.value).inc()
        self._settle()
        try:
            handed = await ticket
        except asyncio.CancelledError:
            self._machine.join_dropped(ticket)
            self._settle()
            raise
        self.metrics.join_seconds.observe(self._now() - began)
        return handed

    def store_posted(self, trainer: str, round: int, port: int) -> None:
        self._machine.store_posted(trainer, round, port)
        log.info("this agent serves the store of round %d on loopback port %d", round, port)
        self._settle()

    async def leave(self, trainer: str, cause: RequestCause, seconds: float, failure: Failure = NO_FAILURE) -> None:
        self._machine.leave(trainer, cause, failure)
        await self._settled(trainer, RequestType.LEAVE, seconds)

    async def finish(self, trainer: str, round: int, seconds: float) -> None:
        self._machine.finish(trainer, round)
        self._record.end()
        await self._settled(trainer, RequestType.FINISH, seconds)

    def recall(self, request: WorkerRequest | None) -> None:
        """The request in this pod's record by an earlier incarnation of the sidecar; None if there is none."""
        if request is not None and request.type is RequestType.FINISH:
            log.info("an earlier sidecar has recorded that the trainer finished in round %d", request.round or 0)
        self._machine.recall(request, self._now())
        self._settle()

    async def close(self, trainer: str, seconds: float) -> None:
        self._machine.close(trainer)
        await self._settled(trainer, RequestType.CLOSE, seconds)

    def watch(self, script: str, saves: bool) -> int:
        """A training script opens its stream. Raises Refused."""
        stream = self._concerns.scripts.opened(script, saves)
        self._settle()
        return stream

    def unwatch(self, stream: int) -> None:
        self._concerns.scripts.closed(stream)
        self._settle()

    def saved(self, script: str, round: int) -> None:
        """A training script wants to save at a planned end, and has saved for the end of `round`."""
        self._concerns.scripts.saves(script, round)
        self._settle()

    def report(self, progress: ScriptProgress, local_rank: int) -> None:
        if self._concerns.scripts.may_report(self.standing, local_rank):
            if progress.step is not None:
                self.metrics.first_step.reported(self._now())
                self._record.say(stepped=self.standing.held)
            self._record.say(progress=progress)
        self._concerns.stalls.reported(self.standing, local_rank, progress.step, self._now())
        self._look()

    def limited(self, progress_deadline: int | None) -> None:
        """Set the seconds without a report after which the training stalls."""
        self._concerns.stalls.deadline = progress_deadline
        self._look()

    def looked(self, trainer: str, round: int, process: ProcessState, local_rank: int) -> None:
        """The trainer reports the state of its training processes. Raises Refused."""
        self._machine.looked(trainer, round)
        self._concerns.stalls.looked(self.standing, process, local_rank)
        self._look()

    def lives(self, trainer: str, round: int) -> None:
        """All training processes of the round have opted in to live through changes. Raises Refused."""
        self._machine.lives(trainer, round)
        log.info("the training processes of round %d live through changes of the group", round)
        self._record.say(live=round)
        self._settle()

    def connected(self, round: int) -> None:
        """All training processes of the round have connected to the store, which is this worker's."""
        log.info("all training processes of round %d have connected to its store", round)
        self._record.say(connected=round)

    def learned(self, imports: list[str]) -> None:
        self._record.say(imports=",".join(imports))

    async def stop(self, seconds: float) -> None:
        """The pod stops: write a leave, and wait up to `seconds` for the API server to take it."""
        self._machine.stop()
        self._record.end()
        request = self._settle().request
        try:
            async with asyncio.timeout(seconds):
                await self._record.written(report=True)
        except TimeoutError:
            last = request.type if request is not None else "last request"
            log.warning("the API server did not take the %s within %g s", last, seconds)

    # --- outputs

    async def _settled(self, trainer: str, what: RequestType, seconds: float) -> None:
        """`_settle`, then wait until the API server has the request. Raises Refused."""
        self._settle()
        ends = what is not RequestType.CLOSE
        try:
            async with asyncio.timeout(seconds):
                while ends and self._asks(RequestType.CLOSE):  # a Close comes first, until the job is closed
                    await self._next_change.wait()
                await self._record.written()
        except TimeoutError:
            message = f"the API server did not take the {what.lower()} within {seconds:g} s; it is still to be sent"
            raise Refused(Code.API_AWAY, message) from None
        if ends and self._machine.is_replaced(trainer) and not self._asks(what):  # the newer one's is recorded
            raise superseded()

    def _asks(self, what: RequestType) -> bool:
        request = self._output.request
        return request is not None and request.type is what

    def _settle(self) -> Output:
        """Carry out the output of an input."""
        before, self._output = self.standing, self._machine.take()
        output = self._output
        if before.in_round(before.tunnel_round) and not self.standing.in_round(before.tunnel_round):
            self.metrics.first_step.over(self._now())
        for ticket, answer in output.answers:
            self._answer(ticket, answer)
        self._record.rest(self.standing.quiet)
        self._record.want(output.request)
        if (ping := self.standing.pinged) is not None and self._record.ack(ping):
            log.info("ping %d is acked", ping)
            self.metrics.acks.inc()
        if self.standing.mode is not before.mode:
            log.info("worker is %s (was %s)", self.standing.mode.value, before.mode.value)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._look()
        next_change, self._next_change = self._next_change, asyncio.Event()
        next_change.set()
        return output

    def _answer(self, ticket: asyncio.Future[Any], answer: Handed | Refused) -> None:
        if isinstance(answer, Handed):
            log.info("round %d is handed out: rank %d of %d", answer.round, answer.rank, answer.world_size)
            self._record.say(handed=(answer.round, answer.rank))
            self.metrics.rounds.inc()
            self.metrics.first_step.handed()
            self.metrics.round.set(answer.round)
        else:
            log.info("join is refused: %s", answer.message)
        if ticket.done():
            return
        if isinstance(answer, Handed):
            ticket.set_result(answer)
        else:
            ticket.set_exception(answer)

    def _look(self) -> None:
        """Have the concerns look. After reports that is all: scripts report every second, and nobody waits for a
        result."""
        status: dict[str, Any] = {}
        for place, concern in enumerate(self._concerns):
            concern.look(self.standing, self._now())
            status |= concern.status
            if concern.sentence != self._sentences[place]:
                self._sentences[place] = concern.sentence
                if concern.sentence:
                    log.info(concern.sentence)
        if status != self._status:
            self._status = status
            self._record.say(**status)
        self._arm()

    def _arm(self) -> None:
        """Look again when time alone may change something. If an input has put that off, the earlier look does that."""
        times = (self._output.wake_at, *(concern.wake_at for concern in self._concerns))
        at = min((at for at in times if at is not None), default=None)
        if at is None or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer, due = None, self._output.wake_at
        self._machine.tick(self._now())
        output = self._settle()
        is_up = due is not None and due <= self._now()
        if is_up and output.standing.mode is Mode.IDLE and output.request is not None:
            log.warning("time is up: %s", output.request.cause)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
