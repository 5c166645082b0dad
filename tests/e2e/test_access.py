# SPDX-License-Identifier: Apache-2.0
"""A job's workers keep their access, whatever becomes of the objects that give it to them."""

import json

import pytest

from e2e.job import ROUND_SECONDS, TOLD_SECONDS, Job
from e2e.kube import Namespace, Object, wait_until
from e2e.operator import take_over

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
    wait_until("the new job's round", lambda: formed(job, former), ROUND_SECONDS, job.summary)
    new = job.namespace.get("elasticjob", job.name)["metadata"]["uid"]
    gone = "the former job's objects to go, and the new one's to be there"
    wait_until(gone, lambda: owners(job) == {new}, COLLECTED_SECONDS, lambda: owners(job))


def test_a_worker_puts_back_what_an_administrator_took_from_its_record(job: Job) -> None:
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    name = f"{job.name}-1-0"

    def record() -> Object:
        found: Object = job.namespace.get("elasticworker", name)
        return found

    # it is written for that once more, and at a conflict its labels would be back before the operator has looked
    wait_until("its rank", lambda: record().get("status", {}).get("round") == first.number, TOLD_SECONDS, record)
    before = record()["metadata"]
    job.namespace.kubectl("label", "elasticworker", name, "elasticjob.io/job-")
    second = job.wait_for_round(2, after=first)
    assert second.reason == "worker 1's ElasticWorker was deleted, or lost its labels or its owner"
    assert job.restarts == 0

    patch = '{"metadata": {"ownerReferences": null}}'
    job.namespace.kubectl("patch", "elasticworker", name, "--type=merge", f"--patch={patch}")

    def marks(record: Object) -> list[Object]:
        return [record.get(key) for key in ("uid", "labels", "ownerReferences")]

    # an operator that looks only after that has nothing to do, so no round need follow
    back = "the record to have all that it had"
    wait_until(back, lambda: marks(record()["metadata"]) == marks(before), 60)


@pytest.mark.extended
@pytest.mark.disruptive("operator")
def test_a_running_jobs_role_that_lacks_a_verb_gets_it(job: Job, operator: Namespace) -> None:
    """As at an upgrade to a version whose sidecars need one more: the next leader brings it, and the round goes on."""
    job.apply(replicas=2)
    formed = job.wait_for_round(2)

    def rules() -> Object:
        found: Object = job.namespace.get("role", f"{job.name}-worker")["rules"]
        return found

    before = rules()
    older = [{**one, "verbs": [verb for verb in one["verbs"] if verb != "update"]} for one in before]
    change = json.dumps({"rules": older})
    name = f"{job.name}-worker"
    made = job.namespace.kubectl("patch", "role", name, "--type=merge", f"--patch={change}", "--output=json")
    assert json.loads(made)["rules"] == older
    take_over(job, operator, lambda pod: operator.delete("pod", pod["metadata"]["name"]))
    wait_until("the role to have all verbs", lambda: rules() == before, 180, lambda: str(rules()))
    assert job.told(formed) is None, "the round is over"


def test_a_role_that_is_somebody_elses_is_told(job: Job) -> None:
    job.namespace.kubectl("create", "role", f"{job.name}-worker", "--verb=get", "--resource=pods")
    job.apply(replicas=1)
    sentence = f"the Role {job.name}-worker exists and is not this job's: delete it"
    told = "the condition to name the role"
    wait_until(told, lambda: sentence in job.condition("Rendezvoused")["message"], 30, job.summary)
    job.wait_for_the_only_event("AccessRefused")
    job.namespace.kubectl("delete", "role", f"{job.name}-worker")
    job.wait_for_round(1)
