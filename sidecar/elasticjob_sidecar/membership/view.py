# SPDX-License-Identifier: Apache-2.0
"""What a trainer is told of the rendezvous: on its events stream, and as the answer to a join without a new round."""

from elasticjob.api import Outcome, RendezvousPhase, RendezvousStatus
from elasticjob_sidecar.membership.model import Answer, Waiter
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.membership.refusal import Refused, needs_new_processes, new_processes, other_script
from elasticjob_sidecar.membership.stalls import stalled_by
from elasticjob_sidecar.membership.torchruns import Torchruns
from elasticjob_torch import wire
from elasticjob_torch.wire import Code


def has_changed(worker: Standing) -> bool:
    """Whether the trainer's round is no longer the agreed one: it should join the next."""
    job, held = worker.job, worker.held
    if job is None or held == 0:
        return worker.leaving
    if worker.leaving or job.round != held or job.phase is RendezvousPhase.FORMING:
        return True
    # The round is formed, but an earlier incarnation of this sidecar handed it out, or it was abandoned since.
    return job.phase is RendezvousPhase.FORMED and not worker.in_round(held)


def _is_broken(job: RendezvousStatus, held: int) -> bool:
    """Whether a member of the round `held`, which is over, may be gone: it ended otherwise than by plan, a member was
    lost since, or others have formed another round."""
    return not (job.phase is RendezvousPhase.FORMING and job.round == held + 1 and job.intact)


def _all_live(job: RendezvousStatus) -> bool:
    """Whether all members of the last formed round live through changes."""
    return len(job.live) == len(job.participants) > 0


def view_of(worker: Standing, api_away: bool = False) -> wire.View | None:
    """The view, None before the job was seen. `handed`: the round that `changed` is about. `api_away`: the API server
    is not heard."""
    job = worker.job
    if job is None:
        return None
    restart, changed = needs_new_processes(job, worker.held), has_changed(worker)
    return wire.View(
        round=job.round,
        phase=wire.Phase(job.phase),
        waiting=job.waiting,
        world_size=job.world_size,
        handed=worker.held,
        changed=changed,
        broken=changed and (restart or _is_broken(job, worker.held)),
        stalled=stalled_by(worker),
        ended=worker.ended,
        leaving=worker.leaving,
        live=_all_live(job) and not restart,
        restart=restart,
        api_away=api_away,
        closed=job.phase is RendezvousPhase.CLOSED,
        outcome=job.outcome.value if job.outcome else "",
        reason=job.reason,
    )


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
