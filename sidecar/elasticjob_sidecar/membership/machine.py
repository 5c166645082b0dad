# SPDX-License-Identifier: Apache-2.0
"""One worker's side of the rendezvous: the answers to its trainer, and its record's requests to the operator.

Pure: it knows no socket, task or clock. Inputs are methods, `now` is an argument (seconds, compared only with itself).
After each input `take` returns all its consequences, as one value. The table in `modes` has its moves. A torchrun
whose stage is finished ends in success at once, as in a restarted container.

Invariants: no trainer replaces one that lives; a round is handed to one trainer process only, by one incarnation of the
sidecar only, and only while it is Formed; after a Leave no round is handed that was formed before the next Join.
"""

from dataclasses import dataclass, field
from typing import Any

from elasticjob.api import (
    Member,
    RendezvousPhase,
    RendezvousStatus,
    RequestCause,
    RequestType,
    WorkerRequest,
)
from elasticjob_sidecar.membership.model import (
    NO_LIMITS,
    UNKNOWN_TORCHRUN,
    Answer,
    Handed,
    Limits,
    Torchrun,
    Waiter,
    fields_of,
)
from elasticjob_sidecar.membership.modes import HANDED_OUT, HAS_FINISHED, JOINED, Mode, move_out_of
from elasticjob_sidecar.membership.output import Output, Standing
from elasticjob_sidecar.membership.refusal import Refused, last_formed_of, no_round, superseded, trainer_lives
from elasticjob_sidecar.membership.torchruns import NO_TORCHRUN, Torchruns
from elasticjob_sidecar.membership.view import final_answer
from elasticjob_torch.wire import NO_FAILURE, Code, Failure

SUCCESSOR_SECONDS = 5.0

FORMING, FORMED, CLOSED = RendezvousPhase


@dataclass(slots=True)
class Membership:
    """The state machine. `me`: this worker's index and this incarnation of its sidecar."""

    me: Member
    store_ready_seconds: float = 20.0
    recalled: bool = True  # whether an earlier incarnation's request is known; no trainer is served before

    mode: Mode = Mode.IDLE
    job: RendezvousStatus | None = None
    trainer: str = ""
    handed: Handed | None = None
    store_port: int | None = None
    _rank: int | None = None  # this worker's position among `job.participants`
    _torchruns: Torchruns = NO_TORCHRUN
    _claimed: int = 0  # the round that the trainer held when it attached
    _latest: str = ""  # the trainer that attached last
    _replaced: set[str] = field(default_factory=set)  # trainers that attached before it
    _stream: int = 0
    _waiter: Waiter | None = None
    _joined_after: int = 0
    _live_in: int = 0  # the last round in which all training processes have opted in to live through changes
    _request: WorkerRequest | None = None
    _closing: bool = False
    _stopping: bool = False
    _timers: dict[str, float] = field(default_factory=dict)
    _answers: list[tuple[Any, Answer]] = field(default_factory=list)

    # --- inputs

    def job_seen(self, job: RendezvousStatus, now: float) -> None:
        """The job's status has changed, or was read for the first time."""
        self.job = job
        self._rank = job.participants.position_of(self.me)
        self._settle(now)

    def is_taken(self, trainer: str) -> bool:
        """Whether another trainer has its stream open."""
        return self.trainer not in ("", trainer)

    def attached(self, trainer: str, round: int, torchrun: Torchrun = UNKNOWN_TORCHRUN) -> int:
        """A trainer process opened its stream, holding `round`. Returns the stream's number for `detached`. Raises
        Refused."""
        if trainer in self._replaced:
            raise superseded()
        if self.is_taken(trainer):
            raise trainer_lives(self._torchruns.present.pid)
        self._torchruns = self._torchruns.attached(torchrun, new=trainer != self._latest)
        self._replaced |= {self._latest} - {trainer}
        self.trainer = self._latest = trainer
        self._claimed = round
        self._timers.pop("successor", None)
        self._stream += 1
        return self._stream

    def detached(self, stream: int, now: float) -> None:
        """A stream ended. Without an earlier leave or finish, the trainer process was killed."""
        if stream == self._stream:
            self._lose_trainer(Refused(Code.NO_TRAINER, "the trainer's connection ended"), now)

    def join(
        self,
        trainer: str,
        after: int,
        cause: RequestCause,
        timeout: float,
        ticket: Any,
        now: float,
        limits: Limits = NO_LIMITS,
        failure: Failure = NO_FAILURE,
        live: bool = False,
    ) -> None:
        """The trainer waits for a round after `after`, the last one that it was handed. `live`: its processes run, and
        live on into that round."""
        self._check(trainer)
        self._refuse_waiter(Refused(Code.NO_TRAINER, "a newer join of the same trainer took this one's place"))
        self._waiter = Waiter(ticket, after, cause, now, limits, failure, live)
        self._timers["join"] = now + timeout
        self._settle(now)

    def join_dropped(self, ticket: Any) -> None:
        """The trainer was interrupted while it waited. It lives, so its join stands until it asks again."""
        if self._waiter is not None and self._waiter.ticket is ticket:
            self._drop_waiter()

    def store_posted(self, trainer: str, round: int, port: int) -> None:
        """Rank 0's agent serves the round's store on this loopback port."""
        self._check(trainer)
        self._standing().check_round(round)
        assert self.handed is not None
        if self.handed.rank != 0:
            raise Refused(Code.BAD_REQUEST, f"only rank 0 serves the store, and this agent has rank {self.handed.rank}")
        self.store_port = port
        self._timers.pop("store", None)

    def looked(self, trainer: str, round: int) -> None:
        """The trainer reports the training processes of `round`. Raises Refused."""
        self._check(trainer)
        self._standing().check_round(round)

    def lives(self, trainer: str, round: int) -> None:
        """All training processes of `round` have opted in to live through changes. Raises Refused."""
        self._check(trainer)
        self._standing().check_round(round)
        self._live_in = round

    def leave(self, trainer: str, cause: RequestCause, failure: Failure = NO_FAILURE) -> None:
        """The trainer leaves the group; it may join again. `failure`: an earlier one."""
        self._check(trainer)
        self._refuse_waiter(Refused(Code.NO_TRAINER, "the trainer has left"))
        told_to = self._standing().leaving and not self._has_left()
        if told_to or self.mode in (Mode.JOINING, Mode.HANDED):
            self._leave(RequestCause.TRAINER_LEFT, cause, failure)

    def finish(self, trainer: str, round: int) -> None:
        """The trainer ended in success."""
        self._check(trainer)
        self._refuse_waiter(Refused(Code.NO_TRAINER, "the trainer has finished"))
        self._succeed(round)

    def recall(self, request: WorkerRequest | None, now: float) -> None:
        """The request in an earlier incarnation's record, None if there is none. A success stands, unless a trainer has
        made a request since."""
        self.recalled = True
        if request is not None:
            self._torchruns = self._torchruns.recalled(request, there=bool(self.trainer))
            silent = self._request is None or self._request.cause == RequestCause.POD_STOPPING
            if request.type is RequestType.FINISH and silent:
                self._move(HAS_FINISHED, round=request.round, stage=request.stage or 1, container=request.container)
        self._settle(now)

    def close(self, trainer: str) -> None:
        self._check(trainer)
        self._closing = True

    def stop(self) -> None:
        """The pod stops. The sidecar learns of it only after its trainer is gone."""
        self._stopping, self._closing = True, False
        self._refuse_waiter(Refused(Code.NO_TRAINER, "the pod is being stopped"))
        if self.mode is not Mode.FINISHED and not self._has_left():
            self._leave(RequestCause.POD_STOPPING)

    def tick(self, now: float) -> None:
        """The time named by the last output has come; harmless at any other time."""
        for name in [name for name, due in self._timers.items() if due <= now]:
            if self._timers.pop(name, None) is not None:
                self._expire(name, now)

    # --- the output

    def take(self) -> Output:
        """The consequences of the last input. Call it after each."""
        answers, self._answers = tuple(self._answers), []
        return Output(answers, self._asked(), self._standing(), min(self._timers.values(), default=None))

    def _asked(self) -> WorkerRequest | None:
        """The present request. A Close stands until the rendezvous is closed."""
        if self._closing and (self.job is None or self.job.phase is not CLOSED):
            return WorkerRequest(type=RequestType.CLOSE, **self._torchruns.fields())
        return self._request

    def _standing(self) -> Standing:
        held = self._claimed
        if self.handed is not None and self.handed.trainer == self.trainer:
            held = self.handed.round
        stream = self._stream if self.trainer else 0
        stage, live = self._torchruns.stage, held == self._live_in > 0
        return Standing(self.me, self.mode, self.job, stream, held, self.handed, self.store_port, stage, live)

    # --- rules

    def _settle(self, now: float) -> None:
        """Answer the waiting trainer, as far as the job's status allows."""
        if self.job is not None and self._waiter is not None and self.recalled:
            self._serve(self.job, self._waiter, now)
        if self._formed_for_me() and self.mode is Mode.JOINING:
            self._timers.setdefault("fetch", now + self.store_ready_seconds)
        else:
            self._timers.pop("fetch", None)

    def _serve(self, job: RendezvousStatus, waiter: Waiter, now: float) -> None:
        if (answer := final_answer(self._standing(), job, waiter, self._torchruns)) is not None:
            if isinstance(answer, Refused) and answer.code is Code.STAGE_FINISHED:
                self._succeed(max(waiter.after, self.handed.round if self.handed else 0))
            self._answer(answer)
            return
        last_formed = last_formed_of(job)
        if self.mode is not Mode.JOINING:
            before = self.handed.round if self.handed else 0
            self._announce(JOINED, max(last_formed, waiter.after, before), waiter.cause, waiter, waiter.failure)
        if self._formed_for_me():
            self._hand(job, now)
        elif self._request is not None and bool(self._request.live) is not waiter.live:
            after = max(last_formed, self._joined_after)
            self._announce(RequestCause.RENEWED, after, waiter.cause, waiter, waiter.failure)
        elif last_formed > self._joined_after:
            self._announce(RequestCause.RENEWED, last_formed, RequestCause.RENEWED, waiter)

    def _formed_for_me(self) -> bool:
        """Whether the round that this worker joined for is formed with it."""
        job = self.job
        return job is not None and job.phase is FORMED and self._rank is not None and job.round > self._joined_after

    def _announce(
        self, event: str, after: int, cause: RequestCause, waiter: Waiter, failure: Failure = NO_FAILURE
    ) -> None:
        self._joined_after, self.store_port = after, None
        self._move(
            event,
            after=after,
            cause=cause,
            **fields_of(failure),
            live=waiter.live or None,
            last_call_seconds=waiter.limits.last_call,
            worker_lost_seconds=waiter.limits.worker_lost,
        )
        self._timers = {name: due for name, due in self._timers.items() if name == "join"}

    def _hand(self, job: RendezvousStatus, now: float) -> None:
        assert self._rank is not None
        self.handed = Handed(
            trainer=self.trainer,
            round=job.round,
            rank=self._rank,
            members=job.participants,
            store=job.store or "",
            reason=job.reason,
            stage=self._torchruns.stage,
        )
        self.store_port = None
        if self._waiter is not None and self._waiter.live:
            self._live_in = job.round
        self._move(HANDED_OUT)
        self._answer(self.handed)
        if self._rank == 0:
            self._timers["store"] = now + self.store_ready_seconds

    def _leave(self, event: RequestCause, cause: RequestCause | None = None, failure: Failure = NO_FAILURE) -> None:
        """`cause`: the trainer's own cause, if it differs from the event."""
        self.store_port = None
        self._move(event, cause=cause or event, **fields_of(failure))
        self._timers.clear()

    def _has_left(self) -> bool:
        return self._request is not None and self._request.type is RequestType.LEAVE

    def _lose_trainer(self, why: Refused, now: float) -> None:
        """The attached process is gone."""
        self._refuse_waiter(why)
        self.trainer, self._claimed = "", 0
        if self.mode is Mode.HANDED:
            self._leave(RequestCause.AGENT_LOST)
        elif self.mode is Mode.JOINING:
            self._timers.setdefault("successor", now + SUCCESSOR_SECONDS)

    def _expire(self, timer: str, now: float) -> None:
        if timer == "store":
            self._leave(RequestCause.STORE_NOT_READY)
        elif timer in ("successor", "fetch"):
            self._leave(RequestCause.AGENT_LOST)
        elif self._waiter is not None:
            beside = self.job is not None and self.job.phase is FORMED  # a spare: its join stands until it asks again
            if self.mode is Mode.JOINING and not beside:
                self._leave(RequestCause.JOIN_TIMEOUT)
            self._refuse_waiter(no_round(self.job, now - self._waiter.since))

    # --- small things

    def _succeed(self, round: int) -> None:
        """The trainer ended in success, or found its stage finished."""
        self._timers.clear()
        self._torchruns = self._torchruns.ended()
        self._move(HAS_FINISHED, round=round)

    def _move(self, event: str, **asked: Any) -> None:
        """Move by the table. `asked`: more fields of the request. Raises `IllegalMove`."""
        move = move_out_of(self.mode, event)
        self.mode = move.target
        if move.asks is not None:
            script = self._torchruns.present.script if move.asks is RequestType.JOIN else None
            fields = self._torchruns.fields() | {"script": script or None} | asked
            self._request = WorkerRequest(type=move.asks, **fields)

    def is_replaced(self, trainer: str) -> bool:
        return trainer in self._replaced

    def _check(self, trainer: str) -> None:
        if self._stopping:
            raise Refused(Code.NO_TRAINER, "the pod is being stopped")
        if self.is_replaced(trainer):
            raise superseded()
        if not trainer or trainer != self.trainer:
            raise Refused(Code.NO_TRAINER, "this trainer has no open events stream")

    def _answer(self, answer: Answer) -> None:
        assert self._waiter is not None
        self._answers.append((self._waiter.ticket, answer))
        self._drop_waiter()

    def _refuse_waiter(self, why: Refused) -> None:
        if self._waiter is not None:
            self._answer(why)

    def _drop_waiter(self) -> None:
        self._waiter = None
        self._timers.pop("join", None)
