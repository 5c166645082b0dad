# SPDX-License-Identifier: Apache-2.0
"""A job's workers keep their access, whatever becomes of the objects that give it to them."""

import json

from e2e.job import ROUND_SECONDS, Job
from e2e.kube import wait_until

OBJECTS = ("serviceaccount", "role", "rolebinding")
COLLECTED_SECONDS = 60


def owners(job: Job) -> set[str]:
    """The uids of their owners; one that is not there has an empty one."""
    there = [one["metadata"] for kind in OBJECTS for one in job.namespace.list(kind)]
    found = [meta["ownerReferences"][0]["uid"] for meta in there if meta["name"] == f"{job.name}-worker"]
    return {*found, *[""] * (len(OBJECTS) - len(found))}


def formed(job: Job, uid: str) -> bool:
    body = job.namespace.get("elasticjob", job.name)
    agreed = body.get("status", {}).get("rendezvous", {})
    return bool(body["metadata"]["uid"] != uid and agreed.get("phase") == "Formed")


def test_a_job_replaced_by_force_trains(job: Job) -> None:
    """The garbage collector takes the former job's objects away while the new one's are needed."""
    job.apply(replicas=1)
    job.wait_for_round(1)
    former = job.uid
    text = json.dumps(job.manifest(replicas=1))
    job.namespace.kubectl("replace", "--force", "--grace-period=1", "--filename=-", stdin=text)
    job.until("the new job's round", lambda: formed(job, former), ROUND_SECONDS)
    new = job.namespace.get("elasticjob", job.name)["metadata"]["uid"]
    gone = "the former job's objects to go, and the new one's to be there"
    wait_until(gone, lambda: owners(job) == {new}, COLLECTED_SECONDS, lambda: owners(job))
