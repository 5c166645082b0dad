# SPDX-License-Identifier: Apache-2.0
"""When an ended job is deleted. Pure."""

from dataclasses import dataclass
from datetime import datetime

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob_operator.job.outcome import Done, LookAgain


@dataclass(frozen=True, slots=True)
class Expired:
    """The job's time to live has run out."""


def expiry_of(spec: ElasticJobSpec, status: ElasticJobStatus, now: datetime) -> Expired | LookAgain | Done:
    """When to delete the job. Done if the job has not ended, or is kept."""
    ended = [one for one in status.conditions if one.type in ("Complete", "Failed") and one.status == "True"]
    if spec.ttl_seconds_after_finished is None or not ended:
        return Done()
    age = now - datetime.fromisoformat(ended[0].last_transition_time)
    left = spec.ttl_seconds_after_finished - age.total_seconds()
    return LookAgain(left) if left > 0 else Expired()
