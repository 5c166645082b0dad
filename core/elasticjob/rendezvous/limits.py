"""Limits that a worker may set with its join, as torchrun's options do, in place of the job's.

They are read from the records at the moment of asking, so any operator comes to the same answer.
"""

from collections.abc import Iterable

from elasticjob.rendezvous.model import Spec, Worker

# Two heartbeats of five seconds: silence that everybody shares for less than this is nobody's own.
SHARED_SILENCE = 10.0


def last_call(spec: Spec, joined: Iterable[Worker]) -> float:
    """The longest that one of the joined has named, else the job's."""
    named = (worker.request.last_call for worker in joined if worker.request is not None)
    return max((seconds for seconds in named if seconds is not None), default=spec.last_call)


def worker_lost(spec: Spec, worker: Worker) -> float:
    """For how long this worker's heartbeat may stand still: what its join has named, else the job's."""
    named = worker.request.worker_lost if worker.request is not None else None
    return spec.worker_lost if named is None else named
