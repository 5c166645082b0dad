# SPDX-License-Identifier: Apache-2.0
"""What a waiting trainer is answered without a new round."""

from elasticjob.api import Outcome, RendezvousPhase, RendezvousStatus
from elasticjob_sidecar.membership.model import Answer, Waiter
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.membership.refusal import Refused, new_processes, other_script
from elasticjob_sidecar.membership.torchruns import Torchruns
from elasticjob_torch.wire import Code


def final_answer(now: Standing, job: RendezvousStatus, waiter: Waiter, torchruns: Torchruns) -> Answer | None:
    """The answer; None if the trainer has to wait for a round. With the code STAGE_FINISHED it has succeeded."""
    if now.leaving:
        return Refused(Code.LEAVING, "this worker was told to leave: the job was scaled down")
    if now.handed and now.in_round(now.handed.round) and waiter.after < now.handed.round == now.held:
        return now.handed  # the trainer asks again after an interruption
    if job.phase is not RendezvousPhase.CLOSED or job.outcome is Outcome.CLOSED:
        stage = torchruns.stage
        if known := other_script(job, stage, torchruns.present.script):
            return known
        if stage <= max(torchruns.succeeded, job.stage - 1):
            return Refused(Code.STAGE_FINISHED, f"stage {stage} of the job is finished")
    if job.phase is RendezvousPhase.CLOSED:
        outcome = job.outcome.value if job.outcome else ""
        return Refused(Code.CLOSED, job.reason or "the rendezvous is closed", outcome)
    return new_processes(job, waiter.after) if waiter.live else None
