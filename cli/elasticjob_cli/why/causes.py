# SPDX-License-Identifier: Apache-2.0
"""Applies the table: which rows hold for a job, and for which of its workers."""

from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob.blocker_reasons import Reason
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.words import names
from elasticjob_cli.reading.worker import WorkerView
from elasticjob_cli.why.rows import LocalReason, WorkerRow, remedy_of
from elasticjob_cli.why.table import OF_JOB, OF_WORKER

MAKES_NO_POD = frozenset({Reason.NAME_TAKEN, Reason.QUOTA_EXCEEDED, Reason.ADMISSION_REFUSED})
ONE = {"s": "", "es": "es", "v": "s", "have": "has", "be": "is", "wait": "waits", "it": "it", "this": "this"}
SEVERAL = {"s": "s", "es": "", "v": "", "have": "have", "be": "are", "wait": "wait", "it": "they", "this": "these"}


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause. `workers`: the workers that it keeps away, empty for a cause of the job. `message`: that of
    Kubernetes or of the operator by which it was found. `stuck`: its workers will not come by themselves. `covers`: no
    other cause is reported."""

    reason: Reason | LocalReason
    message: str
    sentence: str
    remedy: str = ""
    workers: tuple[int, ...] = ()
    stuck: bool = False
    covers: bool = False


def causes_of(look: Look) -> list[Cause]:
    """All causes, the job's own first, in the order of the table."""
    found: list[Cause] = []
    for row in OF_JOB:
        if message := row.test(look):
            found.append(
                Cause(row.reason, message, row.sentence.format(message=message), remedy_of(row), covers=row.covers)
            )
            if row.covers:
                return found
    if look.is_blind:
        return found
    makes_pods = all(one.reason not in MAKES_NO_POD for one in found)
    return found + _of_workers(look.missing, look, makes_pods=makes_pods)


def absent_spares(look: Look) -> list[Cause]:
    """What keeps spares away while a round stands, in the order of the table."""
    return _of_workers(look.absent_spares, look) if look.trains else []


def _of_workers(workers: Iterable[WorkerView], look: Look, *, makes_pods: bool = True) -> list[Cause]:
    groups: dict[tuple[WorkerRow, str], list[int]] = {}
    for worker in workers:
        row, message = _cause_of(worker, look)
        if row.reason is Reason.POD_MISSING and not makes_pods:
            continue
        groups.setdefault((row, message), []).append(worker.index)
    ordered = sorted(groups.items(), key=lambda item: (OF_WORKER.index(item[0][0]), item[1]))
    return [_made(row, message, tuple(indices)) for (row, message), indices in ordered]


def _cause_of(worker: WorkerView, look: Look) -> tuple[WorkerRow, str]:
    """The first row that holds. One always does, for a worker without a pod, with a starting pod, or with a running
    pod."""
    return next((row, message) for row in OF_WORKER if (message := row.test(worker, look)))


def _made(row: WorkerRow, message: str, workers: tuple[int, ...]) -> Cause:
    words = ONE if len(workers) == 1 else SEVERAL
    sentence = f"{names(workers)}, {row.sentence.format(message=message, **words)}"
    return Cause(row.reason, message, sentence, remedy_of(row), workers, row.stuck)
