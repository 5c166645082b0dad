# SPDX-License-Identifier: Apache-2.0
"""Ranks by topology: workers of one zone have ranks in a row, also those that come later and in place of others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from e2e.disruption import worker_nodes
from e2e.job import Job
from e2e.kube import Object, kubectl

pytestmark = [pytest.mark.disruptive("nodes"), pytest.mark.on_workers]

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def zones() -> Iterator[dict[str, str]]:
    """Each worker node is in a zone of its own, meanwhile."""
    found = {node: f"zone-{number}" for number, node in enumerate(worker_nodes())}
    assert len(found) == 2
    with labelled(found):
        yield found


def test_newcomers_and_replacements_are_beside_those_of_their_zone(job: Job, zones: dict[str, str]) -> None:
    body = job.manifest(replicas=2, maxReplicas=4, rankOrder={"topologyKeys": [ZONE]})
    body["spec"]["template"]["spec"]["topologySpreadConstraints"] = [as_many_on_each_node(job)]
    job.namespace.apply(body)
    first, training = job.wait_for_round(2), job.wait_for_training(2)
    assert first.members == (0, 1)

    job.scale(4)
    second, training = job.wait_for_round(4, after=first), job.wait_for_training(4, other_than=training)
    zone_of = zones_of(job, zones)
    near, far = (next(one for one in (2, 3) if zone_of[one] == zone_of[old]) for old in (0, 1))
    assert second.members == (0, near, 1, far), "without rankOrder newcomers have the highest ranks"
    assert second.reason == f"scaled from 2 to 4; ring neighbours in another {ZONE}: 2 of 4"
    assert second.reason in job.wait_for_event("RoundFormed", "round 2")["message"]

    job.delete_pod(job.member_pods()[0])
    third = job.wait_for_round(4, after=second)
    job.wait_for_training(4, other_than=training)
    assert zones_of(job, zones) == zone_of, "the replacement is where there is room for it"
    assert third.members == (near, 0, 1, far), "without rankOrder the replacement has rank 0"
    assert job.restarts == 0


def test_a_round_says_which_nodes_lack_the_label(job: Job) -> None:
    job.apply(replicas=1, rankOrder={"topologyKeys": ["example.com/no-such-label"]})
    said = job.wait_for_round(1).reason
    assert said.endswith("; workers whose nodes have no label example.com/no-such-label: 1")


def as_many_on_each_node(job: Job) -> Object:
    """A constraint of the pods."""
    return {
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "maxSkew": 1,
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"elasticjob.io/job": job.name}},
    }


def zones_of(job: Job, zones: dict[str, str]) -> dict[int, str]:
    """The members' zones, by index."""
    pods: Sequence[Object] = job.member_pods()
    return {int(pod["metadata"]["labels"]["elasticjob.io/index"]): zones[pod["spec"]["nodeName"]] for pod in pods}


@contextmanager
def labelled(zones: dict[str, str]) -> Iterator[None]:
    try:
        for node, zone in zones.items():
            kubectl("label", "--overwrite", "node", node, f"{ZONE}={zone}")
        yield
    finally:
        kubectl("label", "node", *zones, f"{ZONE}-")
