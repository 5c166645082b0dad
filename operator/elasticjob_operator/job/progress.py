# SPDX-License-Identifier: Apache-2.0
"""The progress of the training, as rank 0's worker reports it. Pure."""

from elasticjob.api import ElasticWorkerStatus, Progress
from elasticjob.pods import pod_name
from elasticjob.rendezvous import State
from elasticjob_operator.job.view import JobView


def status_of_first(view: JobView, state: State) -> ElasticWorkerStatus | None:
    """The status in the newest record of rank 0's worker; None without one."""
    if view.job is None or not state.participants:
        return None
    first = state.participants[0]
    name = pod_name(view.job["metadata"]["name"], first.index, state.replacements.get(first.index, 0))
    record = view.workers.get(name)
    content = record.content if record else None
    return content.status if content and content.id == first.id else None


def progress_of(view: JobView, state: State, before: Progress | None) -> Progress | None:
    """The progress that rank 0's worker reports; `before` while it reports none."""
    status = status_of_first(view, state)
    if status is None or (status.step, status.total, status.metrics) == (None, None, None):
        return before
    return Progress(
        step=status.step, total=status.total, metrics=status.metrics, summary=_summary(status.step, status.total)
    )


def _summary(step: int | None, total: int | None) -> str:
    if step is None:
        return ""
    return str(step) if total is None else f"{step}/{total}"
