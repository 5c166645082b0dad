"""One worker's side of the rendezvous: what its trainer is told, and what its record asks of the operator.

Pure: it knows no socket, task or clock. Inputs are methods, `now` is an argument (seconds, only compared
with itself). Outputs are read after each input: `request`, `take_answers()`, `in_round()`, `wake_at`, and the
trainer's `view`.

The modes, and what moves between them:

    Idle      nothing is asked; the last request, if any, was a Leave
    Joining   a Join is announced; its round may be formed already, waiting for a trainer to fetch it
    Handed    a round was handed to the trainer
    Finished  the trainer ended in success

    any       -- a trainer asks to join ----------------------------> Joining   Join{after: last formed round}
    Joining   -- a round after `after` is formed with this worker --> Handed    once a trainer waits for it
    Joining   -- its trainer is gone, no successor for 5 s ---------> Idle      Leave{AgentLost}
    Joining   -- the trainer's patience ends -----------------------> Idle      Leave{JoinTimeout}
    Handed    -- its trainer is gone -------------------------------> Idle      Leave{AgentLost}
    Handed    -- rank 0 did not post its store ---------------------> Idle      Leave{StoreNotReady}
    Joining, Handed -- the trainer says that it leaves -------------> Idle      Leave{its cause}
    any       -- the trainer ended in success ----------------------> Finished  Finish{round}
    not Finished -- the pod stops ----------------------------------> Idle      Leave{PodStopping}

Invariants: a round is handed to one trainer process only, by one incarnation of the sidecar only, and only
while it is Formed; after a Leave no round is handed that was formed before the next Join.
"""

from dataclasses import dataclass, field
from typing import Any

from elasticjob.api import Cause, Member, RendezvousPhase, RendezvousStatus, RequestType, WorkerRequest
from elasticjob_sidecar.membership.model import NO_LIMITS, Answer, Handed, Limits, Mode, Waiter
from elasticjob_sidecar.membership.refusal import Code, Refused

SUCCESSOR_SECONDS = 5.0

FORMING, FORMED, CLOSED = RendezvousPhase


@dataclass(slots=True)
class Membership:
    """The state machine. `me` is this worker's index and this incarnation of its sidecar."""

    me: Member
    store_ready_seconds: float = 20.0

    mode: Mode = Mode.IDLE
    job: RendezvousStatus | None = None
    trainer: str = ""
    handed: Handed | None = None
    store_port: int | None = None
    _rank: int | None = None  # this worker's position among `job.participants`
    _claimed: int = 0  # the round that the trainer held when it attached
    _latest: str = ""  # the trainer that attached last
    _replaced: set[str] = field(default_factory=set)  # trainers that attached before it
    _stream: int = 0
    _waiter: Waiter | None = None
    _joined_after: int = 0
    _request: WorkerRequest | None = None
    _closing: bool = False
    _stopping: bool = False
    _timers: dict[str, float] = field(default_factory=dict)
    _answers: list[tuple[Any, Answer]] = field(default_factory=list)

    # --- inputs

    def job_seen(self, job: RendezvousStatus, now: float) -> None:
        """The job's status changed, or was read for the first time."""
        self.job = job
        self._rank = job.participants.position_of(self.me)
        self._settle(now)

    def attached(self, trainer: str, round: int, now: float) -> int:
        """A trainer process opened its stream, holding `round`; returns its number for `detached`."""
        if trainer in self._replaced:
            raise self._superseded()
        if self.trainer != trainer:
            self._lose_trainer(self._superseded(), now)
        self._replaced |= {self._latest} - {trainer}
        self.trainer = self._latest = trainer
        self._claimed = round
        self._timers.pop("successor", None)
        self._stream += 1
        return self._stream

    def detached(self, stream: int, now: float) -> None:
        """A stream ended. Without a leave or a finish before it, the trainer process was killed."""
        if stream == self._stream:
            self._lose_trainer(Refused(Code.NO_TRAINER, "the trainer's connection ended"), now)

    def join(
        self,
        trainer: str,
        after: int,
        cause: Cause,
        timeout: float,
        ticket: Any,
        now: float,
        limits: Limits = NO_LIMITS,
        detail: str = "",
    ) -> None:
        """The trainer waits for a round after `after`, the last one that it was handed; `detail` says what failed."""
        self._check(trainer)
        self._refuse_waiter(Refused(Code.NO_TRAINER, "a newer join of the same trainer took this one's place"))
        self._waiter = Waiter(ticket, after, cause, now, limits, detail)
        self._timers["join"] = now + timeout
        self._settle(now)

    def join_dropped(self, ticket: Any) -> None:
        """The trainer was interrupted while it waited. It lives, so its join stands until it asks again."""
        if self._waiter is not None and self._waiter.ticket is ticket:
            self._drop_waiter()

    def store_posted(self, trainer: str, round: int, port: int) -> None:
        """Rank 0's agent serves the round's store on this loopback port."""
        self._check(trainer)
        self.check_round(round)
        assert self.handed is not None
        if self.handed.rank != 0:
            raise Refused(Code.BAD_REQUEST, f"only rank 0 serves the store, and this agent has rank {self.handed.rank}")
        self.store_port = port
        self._timers.pop("store", None)

    def leave(self, trainer: str, cause: Cause) -> None:
        """The trainer says that it leaves the group."""
        self._check(trainer)
        self._refuse_waiter(Refused(Code.NO_TRAINER, "the trainer has left"))
        if self.mode in (Mode.JOINING, Mode.HANDED):
            self._leave(cause)

    def finish(self, trainer: str, round: int) -> None:
        """The trainer ended in success."""
        self._check(trainer)
        self._refuse_waiter(Refused(Code.NO_TRAINER, "the trainer has finished"))
        self._timers.clear()
        self.mode = Mode.FINISHED
        self._request = WorkerRequest(type=RequestType.FINISH, round=round)

    def close(self, trainer: str) -> None:
        """The trainer closes the rendezvous for all."""
        self._check(trainer)
        self._closing = True

    def stop(self) -> None:
        """The pod stops: the sidecar is told so only after its trainer is gone."""
        self._stopping, self._closing = True, False
        self._refuse_waiter(Refused(Code.NO_TRAINER, "the pod is being stopped"))
        left = self._request is not None and self._request.type is RequestType.LEAVE
        if self.mode is not Mode.FINISHED and not left:
            self._leave(Cause.POD_STOPPING)

    def tick(self, now: float) -> None:
        """Time has come to `wake_at`."""
        for name in [name for name, due in self._timers.items() if due <= now]:
            if self._timers.pop(name, None) is not None:
                self._expire(name, now)

    # --- outputs

    @property
    def request(self) -> WorkerRequest | None:
        """What the worker's record should ask. A Close is asked until the rendezvous is closed."""
        if self._closing and (self.job is None or self.job.phase is not CLOSED):
            return WorkerRequest(type=RequestType.CLOSE)
        return self._request

    @property
    def wake_at(self) -> float | None:
        return min(self._timers.values(), default=None)

    def take_answers(self) -> list[tuple[Any, Answer]]:
        """Joins that can be answered now, each once."""
        answers, self._answers = self._answers, []
        return answers

    def is_current(self, stream: int) -> bool:
        """The trainer's stream, and not one that a newer one has replaced."""
        return stream == self._stream and bool(self.trainer)

    @property
    def leaving(self) -> bool:
        """This worker was named as a victim of a scale-down."""
        return self.job is not None and self.me in self.job.leaving

    @property
    def held(self) -> int:
        """The round that the attached trainer was last handed, 0 before the first."""
        if self.handed is not None and self.handed.trainer == self.trainer:
            return self.handed.round
        return self._claimed

    @property
    def tunnel_round(self) -> int:
        """The round whose store the trainer may be connected to, 0 for none."""
        if self.handed is None or self.mode not in (Mode.HANDED, Mode.FINISHED):
            return 0
        return self.handed.round

    def in_round(self, round: int) -> bool:
        """`round` was handed to the trainer and goes on; a closed rendezvous trains on to its end."""
        return (
            self.tunnel_round == round > 0
            and self.job is not None
            and (self.job.round == round and self.job.phase is not FORMING)
        )

    def check_round(self, round: int) -> None:
        """Raises Refused unless `round` is the one that the trainer was handed, and goes on."""
        if not self.in_round(round):
            now = "the job is not known yet" if self.job is None else f"the job is at {self.job.phase} {self.job.round}"
            raise Refused(Code.ROUND_BROKEN, f"round {round} is over for this worker: {now}")

    def admit(self, round: int, peer: Member) -> int | None:
        """The store's port for another sidecar's trainer; None while it may still come. Raises Refused."""
        if self.handed is None or round > self.handed.round:
            return None  # the caller has seen the new round first
        self.check_round(round)
        if peer not in self.handed.members:
            raise Refused(Code.NOT_A_MEMBER, f"worker {peer.index} with this id has no part in round {round}")
        if self.handed.rank != 0:
            raise Refused(Code.BAD_REQUEST, f"worker {self.me.index} is not rank 0 of round {round}")
        return self.store_port

    # --- rules

    def _settle(self, now: float) -> None:
        """Serve the trainer that waits, as far as the job's status allows."""
        if self.job is not None and self._waiter is not None:
            self._serve(self.job, self._waiter, now)
        if self._formed_for_me() and self.mode is Mode.JOINING:
            self._timers.setdefault("fetch", now + self.store_ready_seconds)
        else:
            self._timers.pop("fetch", None)

    def _serve(self, job: RendezvousStatus, waiter: Waiter, now: float) -> None:
        if (answer := self._final_answer(job, waiter)) is not None:
            self._answer(answer)
            return
        last_formed = job.round if job.phase is FORMED else max(job.round - 1, 0)
        if self.mode is not Mode.JOINING:
            before = self.handed.round if self.handed else 0
            self._announce(max(last_formed, waiter.after, before), waiter.cause, waiter.limits, waiter.detail)
        if self._formed_for_me():
            self._hand(job, now)
        elif last_formed > self._joined_after:
            self._announce(last_formed, Cause.RENEWED, waiter.limits)

    def _final_answer(self, job: RendezvousStatus, waiter: Waiter) -> Answer | None:
        """An answer that needs no new round."""
        if self.leaving:
            return Refused(Code.LEAVING, "this worker was told to leave: the job was scaled down")
        if self.handed and self.in_round(self.handed.round) and waiter.after < self.handed.round == self.held:
            return self.handed  # asked again after an interruption
        if job.phase is CLOSED:
            outcome = job.outcome.value if job.outcome else ""
            return Refused(Code.CLOSED, job.reason or "the rendezvous is closed", outcome)
        return None

    def _formed_for_me(self) -> bool:
        """The round that this worker joined for is formed with it."""
        job = self.job
        return job is not None and job.phase is FORMED and self._rank is not None and job.round > self._joined_after

    def _announce(self, after: int, cause: Cause, limits: Limits, detail: str = "") -> None:
        self.mode, self._joined_after, self.store_port = Mode.JOINING, after, None
        self._request = WorkerRequest(
            type=RequestType.JOIN,
            after=after,
            cause=cause,
            detail=detail or None,
            last_call_seconds=limits.last_call,
            worker_lost_seconds=limits.worker_lost,
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
        )
        self.mode, self.store_port = Mode.HANDED, None
        self._answer(self.handed)
        if self._rank == 0:
            self._timers["store"] = now + self.store_ready_seconds

    def _leave(self, cause: Cause) -> None:
        self.mode, self.store_port = Mode.IDLE, None
        self._request = WorkerRequest(type=RequestType.LEAVE, cause=cause)
        self._timers.clear()

    def _lose_trainer(self, why: Refused, now: float) -> None:
        """The attached process is gone, or was replaced by a newer one."""
        self._refuse_waiter(why)
        self.trainer, self._claimed = "", 0
        if self.mode is Mode.HANDED:
            self._leave(Cause.AGENT_LOST)
        elif self.mode is Mode.JOINING:
            self._timers.setdefault("successor", now + SUCCESSOR_SECONDS)

    def _expire(self, timer: str, now: float) -> None:
        if timer == "store":
            self._leave(Cause.STORE_NOT_READY)
        elif timer in ("successor", "fetch"):
            self._leave(Cause.AGENT_LOST)
        elif self._waiter is not None:
            waited = now - self._waiter.since
            state = (
                f"the job is at {self.job.phase} {self.job.round}" if self.job else "the API server has not answered"
            )
            if self.mode is Mode.JOINING:
                self._leave(Cause.JOIN_TIMEOUT)
            self._refuse_waiter(Refused(Code.JOIN_TIMEOUT, f"no round was formed within {waited:.0f} s: {state}"))

    # --- small things

    def _check(self, trainer: str) -> None:
        if self._stopping:
            raise Refused(Code.NO_TRAINER, "the pod is being stopped")
        if trainer in self._replaced:
            raise self._superseded()
        if not trainer or trainer != self.trainer:
            raise Refused(Code.NO_TRAINER, "this trainer has no open events stream")

    @staticmethod
    def _superseded() -> Refused:
        return Refused(Code.SUPERSEDED, "a newer trainer process of this pod has taken this one's place")

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
