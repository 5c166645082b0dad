# SPDX-License-Identifier: Apache-2.0
"""How silence is noticed, proven, and told from a fault on the way: the times of it, for a group of any size.

From one round to the next each sidecar has a line to rank 0's, with signs of life on it both ways. A line that is
silent makes whoever notices doubt the other. Doubt alone costs nobody a place: the operator asks who is doubted, and
who does not answer in the time of proof, while another does, is lost. `workerLostSeconds` is the time for both
together, from the last sign to the loss, and the little that is left over is what the writes between them take.

A process that is stopped for three seconds, as a busy machine may do, must not be lost: so the shortest time until
doubt, one sign less than the longest, and the time of proof are longer than that together. Who is asked for any other
reason has the whole time for its proof (`rendezvous.limits`).
"""

SHORTEST_LOST_SECONDS = 10  # that a trainer may name
LOST_SECONDS, LARGEST_QUICK_GROUP = 4.0, 1024
SIGN_SECONDS, MAX_SIGNS_A_SECOND = 0.25, 1600  # on one line; at rank 0's end of all lines
DOUBT_SHARE, PROOF_SHARE = 0.4, 0.5  # of `workerLostSeconds`
MISSED_SIGNS = 2  # that make no doubt yet, however short the time is
BACKSTOP_SECONDS, MAX_BEATS_A_SECOND = 225.0, 4  # of one worker; of one job
MISSED_HEARTBEATS = 2  # that make doubt, which costs nobody a place


def default_worker_lost(workers: int) -> float:
    """Seconds from the last sign to the loss, where the job names none: 4, in a group of 1,024 4.4."""
    share = workers / LARGEST_QUICK_GROUP
    return round(max(LOST_SECONDS + 0.4 * share, (LOST_SECONDS + 0.4) * share), 1)


def sign_seconds(workers: int) -> float:
    """Seconds between two signs of life on a line, in each direction."""
    return max(SIGN_SECONDS, workers / MAX_SIGNS_A_SECOND)


def doubt_seconds(workers: int, worker_lost: float) -> float:
    """Seconds without a sign on a line after which its other end is doubted; `worker_lost` is what the one that listens
    goes by: all workers have one template."""
    return max(DOUBT_SHARE * worker_lost, MISSED_SIGNS * sign_seconds(workers))


def proof_seconds(worker_lost: float) -> float:
    """Seconds that who is challenged has for an answer, from the first answer of another."""
    return PROOF_SHARE * worker_lost


def backstop_seconds(workers: int) -> float:
    """Seconds between two heartbeats of a worker: what is left of them, where nobody else notices a silence."""
    return max(BACKSTOP_SECONDS, workers / MAX_BEATS_A_SECOND)


def heartbeat_seconds(workers: int, worker_lost: float | None) -> float:
    """As `backstop_seconds`, while a round forms or there is news; `worker_lost` is None then. An operator that
    does not challenge goes by heartbeats alone: three of them always fit into the `worker_lost` that is named."""
    silence = worker_lost or max(15.0, workers / 16)
    return max(5.0, min(silence / 3, workers / 48))
