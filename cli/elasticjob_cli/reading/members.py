# SPDX-License-Identifier: Apache-2.0
"""The members of a round as rows: rank, worker, pod, node, step, rate, age."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from elasticjob.blocker_reasons import Reason
from elasticjob.rendezvous import PodState
from elasticjob.rendezvous.roster import is_between_stages
from elasticjob.terms import ProcessState, RequestType
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.times import seconds_between
from elasticjob_cli.reading.worker import WorkerView

DOING = {
    ProcessState.STOPPED: "is stopped",
    ProcessState.BLOCKED: "waits in the kernel",
    ProcessState.COMPUTES: "computes",
    ProcessState.WAITS: "waits",
}


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One row. `spare`: it has no rank, and takes that of a lost worker. `rate`: steps a second; None if unknown, as
    for ranks other than 0, whose reported steps are minutes old. `waits`: the share of its time for which its script
    waits for others, as reported. `seconds`: the age of its pod."""

    rank: int | None
    spare: bool
    worker: int
    pod: str
    node: str
    step: int | None
    rate: float | None
    waits: float | None
    seconds: float | None
    state: str


class SeenStep(NamedTuple):
    """The step of a worker's script, and when this tool first saw it."""

    step: int
    at: datetime


class Rates:
    """Steps a second, from several looks: records contain steps without times."""

    def __init__(self) -> None:
        self._before: dict[str, SeenStep] = {}
        self._newest: dict[str, SeenStep] = {}

    def note(self, steps: Mapping[str, int], at: datetime) -> None:
        for pod, step in steps.items():
            known = self._newest.get(pod)
            if known is not None and step == known.step:
                continue
            if known is not None:
                self._before[pod] = known
            self._newest[pod] = SeenStep(step, at)

    def rates(self, now: datetime) -> dict[str, float]:
        """The rate between the last two steps, by pod. It falls while the next step takes longer than the last one.
        Scripts that have started again have none."""
        found = {}
        for pod, before in self._before.items():
            newest = self._newest[pod]
            seconds = max(newest.at - before.at, now - newest.at).total_seconds()
            if newest.step > before.step and seconds > 0:
                found[pod] = (newest.step - before.step) / seconds
        return found


def members_of(look: Look, rates: Mapping[str, float]) -> list[MemberRow]:
    """The rows in rank order, then those without a rank. `rates`: steps a second, by pod."""
    missing = {worker.index: worker for worker in (*look.missing, *look.absent_spares)}
    others = {index: worker for index, worker in (look.workers | missing).items() if not worker.is_member}
    rows = [*look.members, *(others[index] for index in sorted(others))]
    return [_row(worker, look, rates) for worker in rows]


def steps_of(look: Look) -> dict[str, int]:
    """The newest step in each record, by pod."""
    steps = {worker.name: _step(worker) for worker in look.workers.values()}
    return {name: step for name, step in steps.items() if step is not None}


def _step(worker: WorkerView) -> int | None:
    return worker.record.status.step if worker.record else None


def _row(worker: WorkerView, look: Look, rates: Mapping[str, float]) -> MemberRow:
    return MemberRow(
        rank=worker.rank,
        spare=worker.spare,
        worker=worker.index,
        pod=worker.name,
        node=worker.node,
        step=_step(worker),
        rate=rates.get(worker.name) if worker.rank == 0 else None,
        waits=worker.record.status.waits if worker.record else None,
        seconds=seconds_between(worker.made, look.scene.now),
        state=_state(worker, look),
    )


def _stalls(worker: WorkerView, look: Look) -> str:
    """What a stalled worker does; empty if it does not stall. If the training hangs, workers whose scripts never report
    are included."""
    stall = worker.record.status.stall if worker.record else None
    agreed, hangs = look.status.rendezvous, bool(look.blockers_of(Reason.HUNG))
    if stall is None or not stall.round == agreed.stalled == agreed.round or not (stall.stalled or hangs):
        return ""
    doing = DOING.get(stall.process) if stall.process else None
    return "takes no steps" + (f": its process {doing}" if doing else "")


def _between_stages(worker: WorkerView, look: Look) -> str:
    """What a worker does after its torchrun has ended in success; empty for any other worker."""
    request, stage = worker.request, look.status.rendezvous.stage
    if request is not None and worker.asks(RequestType.JOIN) and (request.stage or 1) > stage:
        return f"waits for stage {request.stage}"
    done = worker.index in look.finished or (worker.worker is not None and is_between_stages(worker.worker))
    return "finishing" if done else ""


def _state(worker: WorkerView, look: Look) -> str:
    if worker.pod is None:
        return "no pod"
    if worker.index in {member.index for member in look.status.rendezvous.finished}:
        return "finished"
    if not look.has_ended and (between := _between_stages(worker, look)):
        return between
    if worker.is_member and look.broken:
        return "has joined" if worker.joined else "its round has ended"
    if worker.is_member and look.trains and worker.index in look.cut_off_workers:
        return "does not reach rank 0"
    if worker.is_member and look.trains:
        return _stalls(worker, look) or ("starts" if look.starts else "trains")
    if worker.spare:
        return "waits for a place" if worker.joined else _comes(worker)
    if worker.joined:
        return "has joined"
    if look.has_ended:
        return "ended"
    return "is missing" if worker.index in {one.index for one in look.missing} else "leaves"


def _comes(worker: WorkerView) -> str:
    """How far a spare that has not joined has started."""
    runs = worker.worker is not None and worker.worker.pod is PodState.RUNNING
    return "has not joined" if runs else "is starting"
