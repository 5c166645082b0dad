# SPDX-License-Identifier: Apache-2.0
"""The statuses that a watch recorded, judged by the state machine's own invariants."""

from itertools import pairwise

from e2e.job import Job, status_of
from elasticjob.agreed import state_of
from elasticjob.api import ElasticJobStatus
from elasticjob.rendezvous import Clocks
from oracle import history_violations

NO_CLOCKS = Clocks(opened=0, formed=0)


def violations(job: Job) -> list[str]:
    """What no order of faults may do: every pair of successive statuses that breaks a rule, in words."""
    statuses = [ElasticJobStatus.parse(status_of(sighting)) for sighting in job.jobs.of(job.name)]
    found = []
    for before, after in pairwise(statuses):
        found += history_violations(state_of(before, NO_CLOCKS), state_of(after, NO_CLOCKS))
        if after.term < before.term:
            found.append(f"an operator of term {after.term} wrote after one of term {before.term}")
        if after.term == before.term > 0 and after.lease != before.lease:
            found.append(f"the holders of two Leases wrote in term {after.term}")
    return found
