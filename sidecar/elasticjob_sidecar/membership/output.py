# SPDX-License-Identifier: Apache-2.0
"""The consequences of an input to the membership state machine, as immutable values."""

from typing import Any, NamedTuple

from elasticjob.api import Member, RendezvousPhase, RendezvousStatus, WorkerRequest
from elasticjob_sidecar.membership.model import Answer, Handed
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.refusal import PeerCode, Refused
from elasticjob_torch.wire import Code


class Standing(NamedTuple):
    """Where the worker stands in the rendezvous: the basis of all answers to its trainer and to other sidecars.

    `job`: the last status, None before the first. `stream`: the number of the trainer's open stream, 0 for none.
    `held`: the round that the attached trainer was last handed, possibly by an earlier incarnation of this sidecar, 0
    before the first. `handed`: the round that this incarnation last handed out, to any trainer. `store_port`: where
    rank 0's agent serves that round's store. `stage`: the attached trainer's. `live`: the processes of the held round
    live through changes of the group.
    """

    me: Member
    mode: Mode
    job: RendezvousStatus | None
    stream: int
    held: int
    handed: Handed | None
    store_port: int | None
    stage: int = 1
    live: bool = False

    @property
    def leaving(self) -> bool:
        """Whether a scale-down chose this worker to leave."""
        return self.job is not None and self.me in self.job.leaving

    @property
    def pinged(self) -> int | None:
        """The number of the last ping, if it names this worker."""
        return self.job.ping.number if self.job is not None and self.me in self.job.ping.members else None

    @property
    def quiet(self) -> bool:
        """Whether a round stands."""
        return self.job is not None and self.job.phase is not RendezvousPhase.FORMING

    @property
    def tunnel_round(self) -> int:
        """The round whose store the trainer may be connected to, 0 for none."""
        if self.handed is None or self.mode not in (Mode.HANDED, Mode.FINISHED):
            return 0
        return self.handed.round

    @property
    def ended(self) -> bool:
        """Whether all members of the trainer's round have ended, in success or, after a Close, otherwise: no other
        member connects then."""
        job = self.job
        if job is None or job.round != self.held:
            return job is not None and job.stage > self.stage
        if job.members_ended:
            return True
        done = len(job.finished) + len(job.finishing)
        if done < len(job.participants):  # almost always
            return False
        indices = {member.index for members in (job.finished, job.finishing) for member in members}
        return all(member.index in indices for member in job.participants)

    def in_round(self, round: int) -> bool:
        """Whether `round` was handed to the trainer and stands; after a Close it trains to its end."""
        return (
            self.tunnel_round == round > 0
            and self.job is not None
            and (self.job.round == round and self.job.phase is not RendezvousPhase.FORMING)
        )

    def check_round(self, round: int) -> None:
        """Raises Refused unless `round` was handed to the trainer and stands."""
        if not self.in_round(round):
            now = "the job is not known yet" if self.job is None else f"the job is at {self.job.phase} {self.job.round}"
            raise Refused(Code.ROUND_BROKEN, f"round {round} is over for this worker: {now}")

    def admit(self, round: int, peer: Member) -> int | None:
        """The store's port for another sidecar's trainer; None while it may still be announced. Raises Refused."""
        if self.handed is None or round > self.handed.round:
            return None  # the caller has seen the new round first
        self.check_round(round)
        if peer not in self.handed.members:
            raise Refused(PeerCode.NOT_A_MEMBER, f"worker {peer.index} with this id has no part in round {round}")
        if self.handed.rank != 0:
            raise Refused(Code.BAD_REQUEST, f"worker {self.me.index} is not rank 0 of round {round}")
        return self.store_port


class Output(NamedTuple):
    """What to do after an input, in this order.

    `answers`: to joins, each given once, with the join's ticket. `request`: the record's request from now on.
    `standing`: the basis of all other answers. `wake_at`: when the machine's `tick` is due, None for never.
    """

    answers: tuple[tuple[Any, Answer], ...]
    request: WorkerRequest | None
    standing: Standing
    wake_at: float | None
