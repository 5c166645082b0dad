"""A record that the API server takes and that makes no sense: its worker is invalid, says why, and is replaced."""

import json

from e2e.job import Job
from e2e.kube import wait_until

ELSEWHERE = "10.255.255.1:29402"


def test_an_invalid_record_costs_its_own_pod_and_nobody_elses(job: Job) -> None:
    job.apply(replicas=2, minReplicas=1, maxReplicas=2)
    first = job.wait_for_round(2)
    zero = job.pods()[0]["metadata"]["uid"]
    patch = json.dumps({"spec": {"address": ELSEWHERE}})
    job.namespace.kubectl("patch", "elasticworker", f"{job.name}-1-0", "--type=merge", f"--patch={patch}")

    message = job.wait_for_condition("WorkersValid", "False")["message"]
    assert message.startswith(f"worker 1: spec.address is {ELSEWHERE}, and the pod's own is ")
    job.wait_for_round(2, after=first)
    job.wait_for_condition("WorkersValid", "True")
    pods = job.pods()
    assert pods[0]["metadata"]["uid"] == zero
    assert pods[1]["metadata"]["name"] == f"{job.name}-1-1"
    assert job.status.get("restarts", 0) == 0

    def told() -> list[str]:
        return [event["message"] for event in job.events() if event["reason"] == "InvalidRecord"]

    wait_until("the event of the invalid record", told, 10)
    assert [one.startswith("worker 1's ElasticWorker: spec.address is ") for one in told()] == [True]
