# SPDX-License-Identifier: Apache-2.0
"""The times of the failure detector, for a group of any size. All are seconds.

From one round to the next each sidecar has a heartbeat link to rank 0's sidecar, with heartbeats in both directions. A
sidecar whose link is silent suspects the other end. A suspicion alone costs no worker its place: the operator pings the
suspected worker, and the worker is lost when it does not ack in time while another does. `workerLostSeconds` is the
time for both together, from the last heartbeat to the loss; the rest of it is for the writes in between.

A process that stops for three seconds, as it may on a busy machine, must not be lost. So the shortest time until a
suspicion, less the longest time between two heartbeats, and the time for an ack add up to more than that. A worker that
is pinged for any other reason has the whole time for its ack (`rendezvous.limits`).

Each sidecar also writes a heartbeat into its record. While a round stands it is only a backstop.
"""

SHORTEST_LOST_SECONDS = 10  # that a trainer may name
LOST_SECONDS, LARGEST_QUICK_GROUP = 4.0, 1024
LINK_SECONDS, MAX_LINK_BEATS_A_SECOND = 0.25, 1600  # on one link; on all links of rank 0
SUSPICION_SHARE, ACK_SHARE = 0.4, 0.5  # of `workerLostSeconds`
MISSED_ON_LINK = 2  # heartbeats whose absence makes no suspicion yet, however short the time is
BACKSTOP_SECONDS, MAX_BEATS_A_SECOND = 225.0, 4  # of one worker; of one job
MISSED_IN_RECORD = 2  # heartbeats whose absence makes a suspicion


def default_worker_lost(workers: int) -> float:
    """Seconds from the last heartbeat to the loss, where the job names none: 4, in a group of 1,024 4.4."""
    share = workers / LARGEST_QUICK_GROUP
    return round(max(LOST_SECONDS + 0.4 * share, (LOST_SECONDS + 0.4) * share), 1)


def link_seconds(workers: int) -> float:
    """Seconds between two heartbeats on a link, in each direction."""
    return max(LINK_SECONDS, workers / MAX_LINK_BEATS_A_SECOND)


def suspicion_seconds(workers: int, worker_lost: float) -> float:
    """Seconds without a heartbeat on a link after which its other end is suspected. `worker_lost` is the listener's:
    all workers have one template."""
    return max(SUSPICION_SHARE * worker_lost, MISSED_ON_LINK * link_seconds(workers))


def ack_seconds(worker_lost: float) -> float:
    """Seconds that a pinged worker has for its ack, from the first ack of another."""
    return ACK_SHARE * worker_lost


def backstop_seconds(workers: int) -> float:
    """Seconds between two heartbeats in a worker's record while a round stands."""
    return max(BACKSTOP_SECONDS, workers / MAX_BEATS_A_SECOND)


def record_seconds(workers: int) -> float:
    """Seconds between two heartbeats in a worker's record while a round forms or an update is pending."""
    return max(5.0, min(max(15.0, workers / 16) / 3, workers / 48))
