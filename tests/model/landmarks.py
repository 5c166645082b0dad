# SPDX-License-Identifier: Apache-2.0
"""Moments in the life of a job from which the operator's model is explored, each reached by moves of the model.

From a new job alone the first round would use up most of the depth that can be searched.
"""

from dataclasses import replace

from elasticjob.rendezvous import Spec
from model.search import Move

# Times are such that steps of 10, 20 and 60 seconds fall on both sides of each.
JOB = Spec(
    replicas=3,
    min_replicas=1,
    max_restarts=1,
    last_call=20,
    join_timeout=80,
    start_timeout=100,
    rejoin=40,
    worker_lost=20,
    heartbeat_timeout=40,
    restart_reset=80,
    finish=50,
)
TWO = replace(JOB, replicas=2)
NEEDS_TWO = replace(JOB, min_replicas=2)
SPARE = replace(JOB, replicas=2, spares=1)
LATE = replace(JOB, worker_lost=60)


def each(name: str, *indices: int) -> tuple[Move, ...]:
    return tuple((name, index, 0, True) for index in indices)


LANDMARKS: dict[str, tuple[Spec, tuple[Move, ...]]] = {
    "a new job": (JOB, ()),
    "three train": (JOB, each("up", 0, 1, 2)),
    "one trains, two more are on their way": (
        replace(JOB, replicas=1),
        (*each("up", 0), ("scale", 3, True), *each("record", 1)),
    ),
    "one failure was counted": (JOB, (*each("up", 0, 1, 2), *each("failed", 1), *each("rejoin", 0, 2))),
    "one of three has failed by what ends the job": (
        JOB,
        (*each("up", 0, 1, 2), *each("failed", 1), *each("fails the job", 1), *each("rejoin", 0)),
    ),
    "the pod of rank 0 was deleted": (JOB, (*each("up", 0, 1, 2), *each("deleted", 0))),
    "one of three has finished": (JOB, (*each("up", 0, 1, 2), *each("finish", 0), *each("pod succeeded", 0))),
    "three are scaled to two": (JOB, (*each("up", 0, 1, 2), ("scale", 2, True), *each("rejoin", 0))),
    "one of three is suspected": (JOB, (*each("up", 0, 1, 2), *each("suspects", 0))),
    "one of three has not answered, and another has": (
        JOB,
        (*each("up", 0, 1, 2), *each("suspects", 0), *each("answers", 0)),
    ),
    "two train, for half a minute at most": (replace(TWO, deadline=30.0), each("up", 0, 1)),
    "closed by a worker": (TWO, (*each("up", 0, 1), *each("close", 0))),
    "suspended": (TWO, (*each("up", 0, 1), ("suspend", True))),
    "one has joined where two must": (NEEDS_TWO, each("up", 0)),
    "one of two has finished where two must be": (
        replace(NEEDS_TWO, replicas=2),
        (*each("up", 0, 1), *each("finish", 0), *each("pod succeeded", 0)),
    ),
    "two of three have failed, and the third is silent, where that is noticed late": (
        LATE,
        (*each("up", 0, 1, 2), *each("failed", 0, 1), ("time", 20.0, 2), ("time", 20.0, 2)),
    ),
    "three train, as one or three may": (replace(JOB, sizes=(1, 3)), each("up", 0, 1, 2)),
    "three train, whose ranks are laid out by zones": (replace(JOB, rank_order=("zone",)), each("up", 0, 1, 2)),
    "two train, and a spare waits": (SPARE, each("up", 0, 1, 2)),
    "a spare has the place of a lost member": (SPARE, (*each("up", 0, 1, 2), *each("deleted", 1), *each("rejoin", 0))),
    "the torchruns of two have succeeded": (TWO, (*each("up", 0, 1), *each("finish", 0, 1))),
    "the next stage of three waits for two": (JOB, (*each("up", 0, 1, 2), *each("finish", 0, 1, 2), *each("next", 0))),
    "two of three are lost where two must be": (NEEDS_TWO, (*each("up", 0, 1, 2), *each("deleted", 0, 1))),
}
# the training processes of some members live through changes, and those of the others may
LIVE_LANDMARKS: dict[str, tuple[Spec, tuple[Move, ...]]] = {
    "two of three live through changes": (JOB, (*each("up", 0, 1, 2), *each("opts in", 0, 1))),
    "two live through changes, and a third is on its way": (
        replace(JOB, replicas=2),
        (*each("up", 0, 1), *each("opts in", 0, 1), ("scale", 3, True)),
    ),
    "one of three that live through changes is lost": (
        JOB,
        (*each("up", 0, 1, 2), *each("opts in", 0, 1, 2), *each("deleted", 1), *each("lives on", 0)),
    ),
    "the sidecar of the only one that lives through changes is restarted": (
        replace(JOB, replicas=1),
        (*each("up", 0), *each("opts in", 0), ("scale", 2, True), *each("up", 1), *each("record", 0)),
    ),
}
