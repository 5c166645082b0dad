"""Nodes that are about to go, read from their taints, and how long their pods are kept from eviction."""

from typing import Any

import pytest

from elasticjob.rendezvous import Worker
from elasticjob.spec import DRAIN_TAINTS
from elasticjob_operator.job.drain import CORDONED, Taint, draining_by, is_over, still_draining, taints_of
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.view import JobView
from elasticjob_operator.job.waiting import Reason
from support.operator_objects import Object, job, pod, record, trainer

SPOT = Taint("aws-node-termination-handler/spot-itn", "", "NoExecute")
CORDON = Taint(CORDONED, "", "NoSchedule")


def node(*taints: Taint, unschedulable: bool = False) -> Object:
    spec: Object = {"taints": [one._asdict() for one in taints]} if taints else {}
    return {"metadata": {"name": "n"}, "spec": spec | ({"unschedulable": True} if unschedulable else {})}


def tolerating(**toleration: Any) -> Object:
    return {"spec": {"tolerations": [toleration] if toleration else []}}


def test_a_cordoned_node_has_its_taint_before_the_cluster_has_added_it() -> None:
    assert taints_of(node(unschedulable=True)) == taints_of(node(CORDON, unschedulable=True)) == (CORDON,)
    assert taints_of(node()) == ()


def test_a_taint_that_only_advises_says_nothing() -> None:
    assert taints_of(node(Taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule"))) == ()


def test_the_first_of_the_taints_that_count_is_told() -> None:
    taints = (Taint("example.com/gpu", "", "NoSchedule"), SPOT, CORDON)
    assert draining_by(taints, tolerating(), DRAIN_TAINTS) == SPOT.key
    assert draining_by(taints, tolerating(), ("example.com/other",)) is None
    assert draining_by(taints, tolerating(), ()) is None


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": CORDONED, "operator": "Exists"}, True),
        ({"key": CORDONED}, True),
        ({"key": CORDONED, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": CORDONED, "value": "x"}, False),
        ({"key": CORDONED, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "example.com/gpu", "operator": "Exists"}, False),
        ({"operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 300}, False),
    ],
)
def test_a_pod_that_tolerates_it_stays(toleration: Object, tolerated: bool) -> None:
    assert (draining_by((CORDON,), tolerating(**toleration), DRAIN_TAINTS) is None) is tolerated


def test_the_grace_counts_from_when_the_first_was_seen_that_is_still_there() -> None:
    there, gone = Worker(index=0, draining=True), Worker(index=1, draining=True)
    since = still_draining({}, [there, gone, Worker(index=2)], 5.0)
    assert since == {(0, 0): 5.0, (1, 0): 5.0}
    since = still_draining(since, [there, Worker(index=1, draining=True, deleting=True)], 9.0)
    assert since == {(0, 0): 5.0}
    assert [is_over(since, 10, now) for now in (14.9, 15.0)] == [False, True]
    assert not is_over({}, 10, 99.0)


def test_no_grace_is_over_before_it_begins() -> None:
    assert is_over({}, 0, 0.0)


def test_a_worker_drains_while_its_node_has_the_taint() -> None:
    observer, view = Observer("trainer", drained=DRAIN_TAINTS), JobView(job=job())
    body = pod(0, phase="Running", containerStatuses=[trainer(running={})])
    body["spec"]["nodeName"] = "n"
    view.pods, view.workers = {"digits-0-0": body}, {"digits-0-0": record(0)}
    for taints, drains in (((), False), ((CORDON,), True), ((), False)):
        view.taints = {"n": taints, "other": (SPOT,)}
        (worker,), _ = observer.observe(view)
        assert worker.draining is drains
        assert list(observer.waits) == [(0, 0)] * drains
        if drains:
            wait = observer.waits[0, 0]
            assert (wait.reason, wait.said) == (Reason.NODE_DRAINING, f"its node n is about to go ({CORDONED})")
