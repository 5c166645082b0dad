# SPDX-License-Identifier: Apache-2.0
"""A group has only sizes that the job allows: the largest that can be filled, and no other may be asked for."""

import pytest

from e2e.job import Job

LAST_CALL = {"rendezvous": {"lastCallSeconds": 1}}  # no round waits for a replacement


@pytest.mark.extended
def test_no_round_has_another_size(job: Job) -> None:
    job.apply(replicas=2, maxReplicas=4, sizes={"step": 2}, **LAST_CALL)
    first = job.wait_for_round(2)
    refusal = job.namespace.refusal("scale", f"elasticjob/{job.name}", "--replicas=3")
    assert "replicas 3 is none of the sizes that spec.sizes allows" in refusal
    job.scale(4)
    whole = job.wait_for_round(4, after=first)
    training = job.wait_for_training(4)
    job.delete_pod(job.member_pods()[3])
    job.wait_for_round(4, after=whole)
    job.wait_for_training(4, other_than=training)
    assert {len(one.members) for one in job.rounds()} == {2, 4}, "three were there for a while"
    assert job.restarts == 0
