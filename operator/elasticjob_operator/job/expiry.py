# SPDX-License-Identifier: Apache-2.0
"""When an ended job is deleted. Pure."""

from datetime import datetime

from elasticjob.api import ElasticJobSpec, ElasticJobStatus


def expires_in(spec: ElasticJobSpec, status: ElasticJobStatus, now: datetime) -> float | None:
    """Seconds until the job's time to live has run out, 0 or less once it has. None if the job has not ended, or is
    kept."""
    ended = [one for one in status.conditions if one.type in ("Complete", "Failed") and one.status == "True"]
    if spec.ttl_seconds_after_finished is None or not ended:
        return None
    age = now - datetime.fromisoformat(ended[0].last_transition_time)
    return spec.ttl_seconds_after_finished - age.total_seconds()
