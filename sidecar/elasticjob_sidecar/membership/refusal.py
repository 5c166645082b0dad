# SPDX-License-Identifier: Apache-2.0
"""The sidecar's refusals: a code for the plug-in, and a sentence for people."""

from enum import StrEnum

from elasticjob.api import RendezvousPhase, RendezvousStatus
from elasticjob_torch.wire import Code


class PeerCode(StrEnum):
    """Codes with which sidecars refuse each other, in addition to the wire's. Trainers never receive them."""

    NOT_A_MEMBER = "NotAMember"
    NOT_YET = "NotYet"  # the store is not served yet


class Refused(Exception):
    """A request of the trainer or of another sidecar that cannot be granted. `outcome` goes with Closed."""

    def __init__(self, code: Code | PeerCode, message: str, outcome: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.outcome = code, message, outcome


def superseded() -> Refused:
    return Refused(Code.SUPERSEDED, "a newer trainer process of this pod has taken this one's place")


def other_script(job: RendezvousStatus, stage: int, script: str) -> Refused | None:
    """A refusal if the job runs another script in that stage; None if it does not, as far as is known."""
    place = stage - job.stage - 1
    known = job.scripts[place] if -len(job.scripts) <= place < 0 else ""
    if not (known and script and known != script):
        return None
    return Refused(
        Code.OTHER_SCRIPT,
        f"torchrun {stage} of this container runs {script}, and that of the others {known}: the containers of all "
        "workers must run the same scripts in the same order",
    )


def last_formed_of(job: RendezvousStatus) -> int:
    """The last formed round, 0 before the first."""
    return job.round if job.phase is RendezvousPhase.FORMED else max(job.round - 1, 0)


def needs_new_processes(job: RendezvousStatus, held: int) -> bool:
    """Whether no process lives on from round `held`, 0 for a trainer that was in none, into the present one."""
    return job.restart_round > (held or last_formed_of(job))


def new_processes(job: RendezvousStatus, held: int) -> Refused | None:
    """A refusal of a join whose processes are to live on and may not; None if they may."""
    if not needs_new_processes(job, held):
        return None
    why = job.reason if job.round == job.restart_round else f"round {job.restart_round} was opened for new ones"
    return Refused(Code.NEW_PROCESSES, f"the training processes of this worker have to be new: {why}")


def no_round(job: RendezvousStatus | None, seconds: float) -> Refused:
    """A refusal of a join that has waited for that long."""
    state = f"the job is at {job.phase} {job.round}" if job else "the API server has not answered"
    return Refused(Code.JOIN_TIMEOUT, f"no round was formed within {seconds:.0f} s: {state}")


def trainer_lives(pid: int) -> Refused:
    which = f"the process {pid}" if pid else "another process"
    return Refused(
        Code.TRAINER_LIVES,
        f"{which} of this pod takes part in the job already, and a pod has one trainer; end it first, or start this "
        "one apart from the job, as by torchrun's --standalone --nnodes=1 --max-restarts=0",
    )
