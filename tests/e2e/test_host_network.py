# SPDX-License-Identifier: Apache-2.0
"""Workers in the networks of their nodes: the scheduler gives no node to two of them, and they train."""

import json

from e2e.job import Job
from support.waiting import settled

PORTS = {"acknowledged": True, "storePort": 30400, "tunnelPort": 30601}


def test_workers_in_their_nodes_networks_train_and_none_shares_its_node(job: Job) -> None:
    body = job.manifest(replicas=2, node=None, hostNetwork=PORTS)
    body["spec"]["template"]["spec"]["hostNetwork"] = True
    job.namespace.apply(body)
    first = job.wait_for_round(2)
    job.wait_for_training(2)
    record = settled(job.namespace.list("elasticworkers"), "both train")[0]
    assert record["spec"]["address"].endswith(":30601")

    nodes = [pod["spec"]["nodeName"] for pod in job.pods().values()]
    job.patch('{"spec": {"suspend": true}}')
    job.wait_for_no_pods()
    moved = {"spec": {"nodeSelector": {"kubernetes.io/hostname": nodes[0]}}}
    job.patch(json.dumps({"spec": {"suspend": False, "template": moved}}))
    job.wait_for_round(1, after=first)

    def told() -> bool:
        return (
            job.status.get("reason", "") == "Unschedulable" and "free ports" in job.condition("Rendezvoused")["message"]
        )

    job.until("the one without a node to be told of its ports", told, 60)
