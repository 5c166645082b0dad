"""When an ended job is deleted. Pure."""

from datetime import datetime

from elasticjob.api import ElasticJobSpec, ElasticJobStatus


def seconds_left(spec: ElasticJobSpec, status: ElasticJobStatus, now: datetime) -> float | None:
    """Seconds until the job's time to live is over, 0 or less when it is; None for a job that goes on, or stays."""
    ended = [one for one in status.conditions if one.type in ("Complete", "Failed") and one.status == "True"]
    if spec.ttl_seconds_after_finished is None or not ended:
        return None
    age = now - datetime.fromisoformat(ended[0].last_transition_time)
    return spec.ttl_seconds_after_finished - age.total_seconds()
