"""How often a sidecar gives a sign of life, and for how long it may give none.

In a large group the loss of a node may take longer to be seen, as it does in Kubernetes itself: else a job's heartbeats
alone would keep an API server busy. Agents that end, and pods that go, are seen at once in a group of any size.
"""

SHORTEST_SECONDS, LOST_SECONDS = 5.0, 15.0
MAX_BEATS_A_SECOND = 48  # heartbeats of one job
MISSED_BEATS = 3  # that may be missed


def default_worker_lost(workers: int) -> float:
    """Seconds of silence after which a worker is lost, where the job names none."""
    return max(LOST_SECONDS, MISSED_BEATS * workers / MAX_BEATS_A_SECOND)


def heartbeat_seconds(workers: int, worker_lost: float) -> float:
    """Seconds between two heartbeats of a worker that is lost after `worker_lost` seconds of silence."""
    return max(SHORTEST_SECONDS, min(worker_lost / MISSED_BEATS, workers / MAX_BEATS_A_SECOND))
