# SPDX-License-Identifier: Apache-2.0
"""Nodes that are about to go, read from their taints."""

from typing import Any

import pytest

from elasticjob.reading import Node, Pod, Taint
from elasticjob.reading.node import CORDONED
from elasticjob.reading.waits import Reason
from elasticjob.spec import DRAIN_TAINTS
from elasticjob_operator.job.drain import draining_by
from elasticjob_operator.job.observe import Observer
from support.operator_objects import Object, job, pod, record, see, trainer, view_of

SPOT = Taint("aws-node-termination-handler/spot-itn", "", "NoExecute")
CORDON = Taint(CORDONED, "", "NoSchedule")


def node(*taints: Taint, unschedulable: bool = False) -> Object:
    spec: Object = {"taints": [one._asdict() for one in taints]} if taints else {}
    return {"metadata": {"name": "n"}, "spec": spec | ({"unschedulable": True} if unschedulable else {})}


def tolerating(**toleration: Any) -> Pod:
    body = pod(0)
    body["spec"]["tolerations"] = [toleration] if toleration else []
    return Pod.read(body)


def test_a_cordoned_node_has_its_taint_before_the_cluster_has_added_it() -> None:
    assert Node.read(node(unschedulable=True)).taints == Node.read(node(CORDON, unschedulable=True)).taints == (CORDON,)
    assert Node.read(node()).taints == ()


def test_a_taint_that_only_advises_says_nothing() -> None:
    assert Node.read(node(Taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule"))).taints == ()


def test_the_first_of_the_taints_that_count_is_told() -> None:
    taints = (Taint("example.com/gpu", "", "NoSchedule"), SPOT, CORDON)
    assert draining_by(taints, tolerating(), DRAIN_TAINTS) == SPOT.key
    assert draining_by(taints, tolerating(), ("example.com/other",)) is None
    assert draining_by(taints, tolerating(), ()) is None


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        ({"operator": "Exists"}, CORDON, True),
        ({"key": CORDONED, "operator": "Exists"}, CORDON, True),
        ({"key": CORDONED}, CORDON, True),
        ({"key": CORDONED, "operator": "Exists", "effect": "NoSchedule"}, CORDON, True),
        ({"key": CORDONED, "value": "x"}, CORDON, False),
        ({"key": CORDONED, "operator": "Exists", "effect": "NoExecute"}, CORDON, False),
        ({"key": "example.com/gpu", "operator": "Exists"}, CORDON, False),
        ({"operator": "Exists", "effect": "NoExecute"}, SPOT, True),
        ({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, SPOT, False),
    ],
)
def test_a_pod_that_tolerates_it_stays(toleration: Object, taint: Taint, tolerated: bool) -> None:
    assert (draining_by((taint,), tolerating(**toleration), DRAIN_TAINTS) is None) is tolerated


def test_a_worker_drains_while_its_node_has_the_taint() -> None:
    observer, view = Observer("trainer", drained=DRAIN_TAINTS), view_of(job())
    body = pod(0, phase="Running", containerStatuses=[trainer(running={})])
    body["spec"]["nodeName"] = "n"
    see(view, {"digits-0-0": body}, {"digits-0-0": record(0)})
    for taints, drains in (((), False), ((CORDON,), True), ((), False)):
        view.nodes = {"n": Node("n", 1, {}, taints), "other": Node("other", 1, {}, (SPOT,))}
        (worker,), _ = observer.observe(view)
        assert worker.draining is drains
        assert list(observer.waits) == [(0, 0)] * drains
        if drains:
            wait = observer.waits[0, 0]
            assert (wait.reason, wait.said) == (Reason.NODE_DRAINING, f"its node n is about to go ({CORDONED})")


@pytest.mark.parametrize(
    ("toleration", "status", "going"),
    [
        ({}, {}, True),
        ({"operator": "Exists"}, {}, True),
        ({}, {"phase": "Succeeded"}, False),
        ({}, {"deleted": True}, False),
    ],
)
def test_the_grace_is_of_all_that_run_there_also_where_they_tolerate_it(
    toleration: Object, status: Object, going: bool
) -> None:
    observer, view = Observer("trainer", drained=DRAIN_TAINTS), view_of(job(), nodes={"n": Node("n", 1, {}, (CORDON,))})
    body = pod(0, **{"phase": "Running", "containerStatuses": [trainer(running={})]} | status)
    body["spec"] |= {"nodeName": "n", "tolerations": [toleration] if toleration else []}
    body["metadata"] |= {"deletionTimestamp": "2026-01-02T03:04:05Z"} if "deleted" in status else {}
    see(view, {"digits-0-0": body})
    (worker,), _ = observer.observe(view)
    assert observer.going == ({(0, 0)} if going else set())
    assert worker.draining is not bool(toleration)
