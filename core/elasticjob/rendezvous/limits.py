# SPDX-License-Identifier: Apache-2.0
"""Limits that a worker may set with its join in place of the job's, as torchrun's options do; and the limit of an ack.

The limits are read from the records at the time of use, so every operator comes to the same result.
"""

from collections.abc import Iterable

from elasticjob.heartbeats import ack_seconds
from elasticjob.rendezvous.model import Pinged, Spec, Worker

AGAIN_SECONDS = 10.0  # before a still suspected member is pinged again, or all members if none has acked
# With no other worker to ack, nothing shows that the way to the API server works. The worker's watch or the operator's
# may have gone silent, which either notices within twelve seconds.
ALONE_SECONDS = 30.0


def last_call(spec: Spec, joined: Iterable[Worker]) -> float:
    """The longest last call among the joined workers' own, else the job's, in seconds."""
    named = (worker.request.last_call for worker in joined if worker.request is not None)
    return max((seconds for seconds in named if seconds is not None), default=spec.last_call)


def worker_lost(spec: Spec, worker: Worker) -> float:
    """Seconds from this worker's last heartbeat to its loss: its join's own value, else the job's."""
    named = worker.request.worker_lost if worker.request is not None else None
    return spec.worker_lost if named is None else named


def ack_limit(spec: Spec, worker: Worker, pinged: Pinged) -> float:
    """Seconds for which this worker may leave a ping unacked once another has acked it.

    Only a link that has just gone silent has used part of its time already. Any other pinged worker may stop for three
    seconds from now on: a witness, a worker that joins late, or a live one whose link stays broken.
    """
    lost = worker_lost(spec, worker)
    if pinged.alone:
        return max(ALONE_SECONDS, lost)
    return ack_seconds(lost) if pinged.unheard and pinged.lived is None else lost
