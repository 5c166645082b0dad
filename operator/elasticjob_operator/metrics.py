"""What the operator counts, for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

RECONCILE_SECONDS = Histogram("elasticjob_reconcile_seconds", "Seconds of one reconciliation of one job.")
ROUND_SECONDS = Histogram(
    "elasticjob_round_seconds",
    "Seconds from the opening of a round to its forming.",
    buckets=(0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600),
)
EVENTS = Counter(
    "elasticjob_events_total", "Events by reason: RoundFormed, RoundBroken, WorkerLost and so on.", ["reason"]
)
STATUS_CONFLICTS = Counter("elasticjob_status_conflicts_total", "Status writes that met a newer object.")
LEADER = Gauge("elasticjob_leader", "1 while this operator leads.")
JOBS = Gauge("elasticjob_jobs", "ElasticJobs that this operator knows.")
