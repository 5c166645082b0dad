# SPDX-License-Identifier: Apache-2.0
"""What a trainer is told of the rendezvous on its events stream."""

from elasticjob.api import RendezvousPhase, RendezvousStatus
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.membership.refusal import needs_new_processes
from elasticjob_sidecar.membership.stalls import stalled_by
from elasticjob_torch import wire


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
        succeeded=worker.succeeded,
        leaving=worker.leaving,
        live=_all_live(job) and not restart,
        restart=restart,
        api_away=api_away,
        closed=job.phase is RendezvousPhase.CLOSED,
        outcome=job.outcome.value if job.outcome else "",
        reason=job.reason,
    )
