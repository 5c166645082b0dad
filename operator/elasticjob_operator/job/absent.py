# SPDX-License-Identifier: Apache-2.0
"""Which wanted workers and spares are absent, and why, for the status. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from elasticjob.blocker_reasons import Reason
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Event, Failures, PodState, Spec, State, Worker, roster_of
from elasticjob.rendezvous.backoff import delay_of
from elasticjob.rendezvous.losses import never_joined
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.roster import has_joined, is_between_stages
from elasticjob.terms import RendezvousPhase, RequestType
from elasticjob_operator.job import bad_nodes, quota
from elasticjob_operator.job.bad_nodes import BadNodesFound
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.sidecars import SidecarTroubles

NO_POD = Wait(Reason.POD_MISSING, "its pod is about to be made")
HAS_ENDED = "its trainer has ended with exit code 0, and its record does not say yet whether in success"
MOST_SENTENCES = 5  # of sidecars, announced between two rounds


@dataclass(slots=True)
class AnnouncedReasons:
    """The reasons already announced as events. Each is announced once between two rounds, however often it comes and
    goes. All troubles of sidecars share one reason, and the first known may be only that a sidecar does not answer: so
    each of their sentences is announced once.

    ``before``: the reason in the status when the round began, or when this operator began to lead.
    """

    round: int = -1
    before: str = ""
    announced: set[tuple[str, str]] = field(default_factory=set)

    def to_announce(self, round: int, before: str, waits: Mapping[int, Wait]) -> list[tuple[int, Wait]]:
        """The waits to announce now, as pairs of index and wait. `before`: the reason that the status already gives."""
        if round != self.round:
            self.round, self.before, self.announced = round, before, set()
        found = []
        for index, wait in waits.items():
            cause = (wait.reason, wait.message if wait.reason is Reason.SIDECAR_NOT_READY else "")
            is_new = wait.reason != self.before and cause not in self.announced
            if wait.has_event and is_new and self._is_within_limit(wait.reason):
                self.announced.add(cause)
                found.append((index, wait))
        return found

    def _is_within_limit(self, reason: Reason) -> bool:
        return sum(known == reason for known, _ in self.announced) < MOST_SENTENCES


class Absences(Concern):
    """The wanted workers of one job that are absent."""

    def __init__(self) -> None:
        self._announced = AnnouncedReasons()

    def judge(self, report: Report) -> Report:
        reported = {**report.observer.waits, **report.of(SidecarTroubles).waits}
        waits = waits_of(report.bounds, report.decision.state, report.workers, reported)
        waits = bad_nodes.explained(waits, report.spec, report.of(BadNodesFound).record)
        return report._replace(waits=quota.explained(waits, report.spec))

    def after(self, report: Report) -> list[Event]:
        due = self._announced.to_announce(report.decision.state.last_formed, report.before.reason, report.waits)
        return [
            Event(wait.reason, f"{wait.whose} {index}: {wait.sentence}", wait.is_fault, worker=index)
            for index, wait in due
        ]


def waits_of(spec: Spec, state: State, workers: Collection[Worker], waits: Mapping[PodKey, Wait]) -> dict[int, Wait]:
    """Why wanted workers are absent or cannot do their part, by index. `waits`: what their pods and sidecars say.

    While a round stands, the result covers each missing worker and spare, and each member whose sidecar is in trouble.
    While a round forms, nobody waits for a spare, and `silent_starts` covers the workers whose torchruns have not
    spoken.
    """
    failures = state.clocks.failures
    if not waits and not failures and _all_are_there(spec, state, workers):
        return {}
    roster, stands = roster_of(spec, state, workers), state.phase is RendezvousPhase.FORMED
    found = {worker.index: waits.get(worker.pod_key) or _not_joined(state, worker) for worker in roster.awaited}
    found |= {index: _without_pod(failures.get(index), stands) for index in roster.missing}
    if stands:
        absent = (worker for worker in roster.spares if not has_joined(state, worker))
        spares = {worker.index: waits.get(worker.pod_key) or _not_joined(state, worker) for worker in absent}
        spares |= {index: _without_pod(failures.get(index), stands) for index in roster.missing_spares}
        found |= {index: wait._replace(spare=True) for index, wait in spares.items() if wait}
        found = _members_in_trouble(state, workers, waits) | found
    return {index: wait for index, wait in sorted(found.items()) if wait}


def _members_in_trouble(
    state: State, workers: Collection[Worker], waits: Mapping[PodKey, Wait]
) -> dict[int, Wait | None]:
    """Members of the standing round whose sidecars cannot reach the API server."""
    troubles = {pod_key: wait for pod_key, wait in waits.items() if wait.reason is Reason.SIDECAR_NOT_READY}
    troubled = (worker for worker in workers if worker.pod_key in troubles)
    return {worker.index: troubles[worker.pod_key] for worker in troubled if worker.member in state.participants}


def _all_are_there(spec: Spec, state: State, workers: Collection[Worker]) -> bool:
    """A quick check that holds in most steps of a job that trains."""
    there = len(state.participants) + state.spares
    return state.phase is RendezvousPhase.FORMED and len(workers) == there == spec.replicas + spec.spares


def _without_pod(failures: Failures | None, stands: bool) -> Wait | None:
    """Why a place has no pod."""
    if failures is None or not delay_of(failures):
        return NO_POD if stands else None
    return Wait(Reason.POD_BACK_OFF, f"its pods failed {failures.in_a_row} times in a row: {failures.why}")


def _not_joined(state: State, worker: Worker) -> Wait | None:
    """Why a worker whose pod reports no problem has not joined; its trainer runs. None for a member of the standing
    round."""
    stands = state.phase is RendezvousPhase.FORMED
    is_reported = (worker.member in state.participants) if stands else never_joined(worker)
    if is_reported or worker.invalid:  # an invalid record has a condition of its own
        return None
    return Wait(Reason.NOT_JOINED, _what_it_does(worker))


def _what_it_does(worker: Worker) -> str:
    if worker.pod is PodState.SUCCEEDED:
        return HAS_ENDED
    request = worker.request
    if request is None or never_joined(worker):
        return "its trainer runs, and no torchrun has spoken to its sidecar"
    if is_between_stages(worker):
        return f"its torchrun of stage {request.stage} has ended in success, and the next one has not begun"
    if request.type is RequestType.LEAVE:
        return f"its torchrun has left ({request.cause}), and none has joined since"
    return "its torchrun has not joined again yet"
