# SPDX-License-Identifier: Apache-2.0
"""Limits that a worker may set with its join, as torchrun's options do, in place of the job's; and those of proof.

They are read from the records at the moment of asking, so any operator comes to the same answer.
"""

from collections.abc import Iterable

from elasticjob.rendezvous.model import Asked, Spec, Worker
from elasticjob.signs import proof_seconds

AGAIN_SECONDS = 10.0  # until who is still doubted is asked again, or everybody where nobody has answered
# Where nobody else can answer nobody shows that the way is sound: both its watch and the operator's may have fallen
# silent, which is noticed within twelve seconds.
ALONE_SECONDS = 30.0


def last_call(spec: Spec, joined: Iterable[Worker]) -> float:
    """The longest that one of the joined has named, else the job's."""
    named = (worker.request.last_call for worker in joined if worker.request is not None)
    return max((seconds for seconds in named if seconds is not None), default=spec.last_call)


def worker_lost(spec: Spec, worker: Worker) -> float:
    """The time for doubt and proof of this worker: what its join has named, else the job's."""
    named = worker.request.worker_lost if worker.request is not None else None
    return spec.worker_lost if named is None else named


def proof(spec: Spec, worker: Worker, asked: Asked) -> float:
    """For how long this worker may leave a challenge unanswered once another has answered it.

    Only a line that has just fallen silent has taken a part of its time already. All others that are asked may be
    stopped for three seconds from now on: controls, who joins late, and whose line stays broken though it lives.
    """
    lost = worker_lost(spec, worker)
    if asked.alone:
        return max(ALONE_SECONDS, lost)
    return proof_seconds(lost) if asked.silent and asked.lived is None else lost
