# SPDX-License-Identifier: Apache-2.0
"""What follows from an input to the membership state machine, as values that nobody changes."""

from typing import Any, NamedTuple

from elasticjob.api import Member, RendezvousPhase, RendezvousStatus, WorkerRequest
from elasticjob_sidecar.membership.model import Answer, Handed
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.refusal import PeerCode, Refused
from elasticjob_torch.wire import Code


class Standing(NamedTuple):
    """Where the worker stands in the rendezvous: from this its trainer and other sidecars are answered.

    `job` is the status last seen, None before the first. `stream` is the number of the trainer's open stream, 0 for
    none. `held`: the round that the attached trainer was last handed, perhaps by an earlier incarnation of this
    sidecar, 0 before the first; `handed`: the one that this incarnation has last handed out, to whomever.
    `store_port`: where rank 0's agent serves that round's store. `stage` is the attached trainer's."""

    me: Member
    mode: Mode
    job: RendezvousStatus | None
    stream: int
    held: int
    handed: Handed | None
    store_port: int | None
    stage: int = 1

    @property
    def leaving(self) -> bool:
        """This worker was named as a victim of a scale-down."""
        return self.job is not None and self.me in self.job.leaving

    @property
    def asked(self) -> int | None:
        """The number of the last challenge, where it asks this worker."""
        challenge = self.job.challenge if self.job is not None else None
        return challenge.number if challenge is not None and self.me in challenge.members else None

    @property
    def challenges(self) -> bool:
        """The job's operator challenges whom it doubts."""
        return self.job is not None and self.job.challenge is not None

    @property
    def quiet(self) -> bool:
        """A round stands, under an operator that challenges."""
        return self.job is not None and self.challenges and self.job.phase is not RendezvousPhase.FORMING

    @property
    def tunnel_round(self) -> int:
        """The round whose store the trainer may be connected to, 0 for none."""
        if self.handed is None or self.mode not in (Mode.HANDED, Mode.FINISHED):
            return 0
        return self.handed.round

    @property
    def succeeded(self) -> bool:
        """All members of the round that the trainer holds have ended in success: nobody comes to it any more."""
        job = self.job
        if job is None or job.round != self.held:
            return job is not None and job.stage > self.stage
        done = len(job.finished) + len(job.finishing)
        if done < len(job.participants):  # as nearly always
            return False
        indices = {member.index for members in (job.finished, job.finishing) for member in members}
        return all(member.index in indices for member in job.participants)

    def in_round(self, round: int) -> bool:
        """`round` was handed to the trainer and goes on; a closed rendezvous trains on to its end."""
        return (
            self.tunnel_round == round > 0
            and self.job is not None
            and (self.job.round == round and self.job.phase is not RendezvousPhase.FORMING)
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
            raise Refused(PeerCode.NOT_A_MEMBER, f"worker {peer.index} with this id has no part in round {round}")
        if self.handed.rank != 0:
            raise Refused(Code.BAD_REQUEST, f"worker {self.me.index} is not rank 0 of round {round}")
        return self.store_port


class Output(NamedTuple):
    """What is to be done after an input, in this order.

    `answers` are those to joins, each given once, with the join's ticket. `request` is what the worker's record asks
    from now on. `standing` is what everybody is answered from. At `wake_at` the machine's `tick` is due, None for
    never.
    """

    answers: tuple[tuple[Any, Answer], ...]
    request: WorkerRequest | None
    standing: Standing
    wake_at: float | None
