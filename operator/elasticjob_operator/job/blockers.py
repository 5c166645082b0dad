# SPDX-License-Identifier: Apache-2.0
"""What keeps a job from its full size, as data for its status: each cause once, with all workers that it affects. Pure.

`conditions` says the same in sentences, with the first few workers. A status has at most 16 causes, so it stays small
however many workers wait and however long the messages are.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from elasticjob.api import Blocker
from elasticjob.blocker_reasons import GANG_PENDING, GANG_REFUSED, ORDER, REMEDIES, Reason
from elasticjob.blockers import MAX_BLOCKERS, OTHERS
from elasticjob.pods import QUEUE_LABEL, pod_name
from elasticjob.reading.waits import KINDS
from elasticjob.rendezvous import PodState, roster_of
from elasticjob.rendezvous.losses import never_joined
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.conditions import grouped, invalid_records, silence_of, silent_workers
from elasticjob_operator.job.evictions import Budget, Protection, grace_over
from elasticjob_operator.job.finishing import FinishingFound
from elasticjob_operator.job.network import Network
from elasticjob_operator.job.quota import Allowance
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.stalls import Hang
from elasticjob_operator.objects.access import BUDGET
from elasticjob_operator.objects.pods import access_name


def blockers_of(report: Report) -> tuple[Blocker, ...]:
    """The blockers, the most severe first, then the oldest: a lasting blocker keeps its place among those of its
    reason.

    Empty once the job has ended, and while it is suspended: `status.conditions` says so.
    """
    state = report.decision.state
    if state.ended or (report.spec.suspend and state.phase is not RendezvousPhase.CLOSED):
        return ()
    found = [*_of_the_round(report), *(() if state.phase is RendezvousPhase.CLOSED else _of_the_rest(report))]
    found = [_since(one, report.before.blockers) for one in found]
    found.sort(key=lambda one: (ORDER[one.reason], one.since, one.spares, one.workers[:1], one.object, one.message))
    if len(found) <= MAX_BLOCKERS:
        return tuple(found)
    return (*found[:MAX_BLOCKERS], _others(found[MAX_BLOCKERS:], report.now))


def _of_the_round(report: Report) -> Iterator[Blocker]:
    """What is wrong with the standing round, including the last round of a closed job."""
    network, hang, finishing = report.of(Network), report.of(Hang), report.of(FinishingFound)
    if network.sentence:
        cut_off = [index for index, _ in sorted(network.cut_off)]
        rank0 = next((one for one in report.workers if one.member == report.decision.state.participants[0]), None)
        pod = f"Pod/{pod_name(report.job['metadata']['name'], *rank0.pod_key)}" if rank0 else ""
        yield _made(report, Reason.NETWORK_FAULT, network.sentence, workers=cut_off, object=pod)
    if hang.sentence:
        yield _made(report, Reason.HUNG, hang.sentence, passes=report.spec.hang_policy == "Restart")
    if finishing.failed:
        yield _made(report, Reason.CONTAINER_FAILED, finishing.failed)
    if finishing.waits:
        yield _made(report, Reason.FINISHING, finishing.sentence, passes=True)


def _of_the_rest(report: Report) -> Iterator[Blocker]:
    """What keeps pods from being made, and workers from joining or staying."""
    name = report.job["metadata"]["name"]
    if report.problem:
        yield _made(report, Reason.TEMPLATE_INVALID, report.problem, object=f"ElasticJob/{name}")
    if report.refusal:
        yield _made(report, report.refusal.reason, report.refusal.why, object=report.refusal.object)
    if report.of(Allowance).message:
        yield _without_quota(report)
    if report.of(Protection).budget is Budget.OPEN:
        yield _made(report, Reason.DRAIN_GRACE_OVER, grace_over(report.spec.drain), passes=True)
    if report.budget_problem:
        yield _made(report, Reason.BUDGET_REFUSED, report.budget_problem, object=f"{BUDGET}/{access_name(name)}")
    for wait, indices in grouped(report.waits):
        about, passes = wait.object, KINDS[wait.reason].passes
        yield _made(report, wait.reason, wait.message, object=about, workers=indices, spares=wait.spare, passes=passes)
    yield from _invalid(report)
    yield from _silent(report)


def _without_quota(report: Report) -> Blocker:
    """The blocker of a gang that lacks quota. It has a count and no indices, since any workers may be the ones
    without."""
    allowance, spec, admitted = report.of(Allowance), report.spec, report.admitted
    wanted, have = spec.replicas + spec.spare_replicas, admitted.replicas + admitted.spares if admitted else 0
    queue = (report.job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    blocker = _made(
        report,
        Reason.QUOTA_PENDING,
        allowance.message,
        GANG_REFUSED if allowance.refused else GANG_PENDING,
        f"LocalQueue/{queue}" if queue else "",
        passes=not allowance.refused,
    )
    return blocker.model_copy(update={"count": max(0, wanted - have)})


def _invalid(report: Report) -> Iterator[Blocker]:
    by_problem: dict[str, list[int]] = {}
    for worker in invalid_records(report):
        by_problem.setdefault(worker.invalid, []).append(worker.index)
    for problem, indices in by_problem.items():
        yield _made(report, Reason.INVALID_RECORD, problem, workers=indices, passes=True)


def _silent(report: Report) -> Iterator[Blocker]:
    """Workers whose trainers run and have not spoken, while a round forms. Once a round stands, `waits` covers them."""
    state, workers = report.decision.state, report.workers
    if state.phase is not RendezvousPhase.FORMING or report.suspended:
        return
    if not any(one.pod is PodState.RUNNING and never_joined(one) for one in workers):
        return
    roster = roster_of(report.bounds, state, workers)
    if silent := [one for one in silent_workers(roster, report) if not one.invalid]:
        indices, message = [one.index for one in silent], silence_of(silent, roster, report)
        yield _made(report, Reason.NOT_JOINED, message, workers=indices, passes=KINDS[Reason.NOT_JOINED].passes)


def _made(
    report: Report,
    reason: str,
    message: str,
    remedy: str = "",
    object: str = "",
    workers: Collection[int] = (),
    *,
    spares: bool = False,
    passes: bool = False,
) -> Blocker:
    return Blocker(
        reason=str(reason),
        object=object,
        workers=tuple(workers),
        count=len(workers),
        spares=spares,
        since=report.now,
        message=message,
        remedy=remedy or REMEDIES.get(reason, ""),
        passes=passes,
    )


def _since(one: Blocker, before: Iterable[Blocker]) -> Blocker:
    """The blocker with the time at which it began, even if its message or its workers have changed since."""
    times = [known.since for known in before if _goes_on(known, one)]
    return one.model_copy(update={"since": min(times)}) if times else one


def _goes_on(before: Blocker, now: Blocker) -> bool:
    if (before.reason, before.object, before.spares) != (now.reason, now.object, now.spares):
        return False
    return before.workers == now.workers or not set(before.workers).isdisjoint(now.workers)


def _others(left: Sequence[Blocker], now: str) -> Blocker:
    """One blocker that stands for all that exceed the limit."""
    workers = sorted({index for one in left for index in one.workers})
    count = sum(one.count for one in left)
    causes = "1 more cause keeps" if len(left) == 1 else f"{len(left)} more causes keep"
    return Blocker(
        reason=OTHERS,
        workers=tuple(workers),
        count=count,
        since=min((one.since for one in left), default=now),
        message=f"{causes} {count} workers away",
        passes=all(one.passes for one in left),
    )
