# SPDX-License-Identifier: Apache-2.0
"""When an ended job is deleted."""

from datetime import UTC, datetime

import pytest

from elasticjob.api import Condition, ElasticJobSpec, ElasticJobStatus
from elasticjob_operator.actions.expiry import expires_in
from support.operator_objects import job

ENDED = "2026-01-02T03:04:05Z"


def expiry(ttl: int | None, kind: str, status: str, second: int) -> float | None:
    spec = ElasticJobSpec.parse(job(ttlSecondsAfterFinished=ttl)["spec"])
    condition = Condition.parse({"type": kind, "status": status, "reason": "x", "lastTransitionTime": ENDED})
    now = datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC)
    return expires_in(spec, ElasticJobStatus(conditions=(condition,)), now)


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_an_ended_job_is_kept_for_its_time_to_live(kind: str) -> None:
    assert [expiry(10, kind, "True", second) for second in (5, 14, 15)] == [10, 1, 0]
    assert expiry(0, kind, "True", 5) == 0


@pytest.mark.parametrize(
    ("ttl", "kind", "status"), [(None, "Complete", "True"), (0, "Complete", "False"), (0, "Suspended", "True")]
)
def test_others_stay(ttl: int | None, kind: str, status: str) -> None:
    assert expiry(ttl, kind, status, 59) is None
