# SPDX-License-Identifier: Apache-2.0
"""Nodes that are draining, read from their taints, and unhealthy devices, read from pods."""

from typing import Any

import pytest

from elasticjob.blocker_reasons import Reason
from elasticjob.reading import Device, Node, Pod, Taint
from elasticjob.reading.devices import MAX_DEVICES, MESSAGE_LENGTH, NAME_LENGTH
from elasticjob.reading.node import CORDONED
from elasticjob.spec import DRAIN_TAINTS
from elasticjob_operator.job.drain import draining_by, sentence_of
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
            assert (wait.reason, wait.message) == (Reason.NODE_DRAINING, f"its node n is draining ({CORDONED})")


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
    assert observer.draining == ({(0, 0)} if going else set())
    assert worker.draining is not bool(toleration)


GPU = "nvidia.com/gpu"


def device(id: str, health: str = "Unhealthy", **more: str) -> Object:
    return {"resourceID": id, "health": health, **more}


def with_devices(*devices: Object, resource: str = GPU, **state: Any) -> Object:
    """A container status with that health of its devices."""
    return trainer(**(state or {"running": {}})) | {
        "allocatedResourcesStatus": [{"name": resource, "resources": list(devices)}]
    }


def devices_of(*statuses: Object, init: tuple[Object, ...] = ()) -> tuple[Device, ...]:
    return Pod.read(pod(0, containerStatuses=list(statuses), initContainerStatuses=list(init))).unhealthy


def test_only_unhealthy_devices_are_kept() -> None:
    assert devices_of(trainer(running={})) == ()
    assert devices_of(with_devices(device("GPU-1", "Healthy"), device("GPU-2", "Unknown"))) == ()
    found = devices_of(with_devices(device("GPU-1"), device("GPU-2", "Healthy"), device("GPU-0", message="ECC errors")))
    assert found == (Device(GPU, "GPU-0", "ECC errors"), Device(GPU, "GPU-1"))
    assert devices_of(trainer(running={}) | {"allocatedResourcesStatus": [{"name": GPU}]}) == ()


def test_a_device_that_containers_share_counts_once_whichever_they_are() -> None:
    claim = "claim:gpus/one"
    shared = with_devices(device("gpu.example.com/node/0"), resource=claim)
    assert devices_of(shared, shared, init=(shared,)) == (Device(claim, "gpu.example.com/node/0"),)


def test_what_a_driver_says_is_printable_and_bounded() -> None:
    said = [device(f"\x1b[31m{number:03}\n{'i' * 500}", message=f"a\n\x07b {'m ' * 500}") for number in range(200)]
    found = devices_of(with_devices(*said, resource="r" * 500))
    assert len(found) == MAX_DEVICES
    for number, one in enumerate(found):
        assert one.id.startswith(f"{number:03} i")
        assert one.message.startswith("a b m")
        assert all(text.isprintable() for text in one)
        assert (len(one.resource), len(one.id)) == (NAME_LENGTH, NAME_LENGTH)
        assert len(one.message) <= MESSAGE_LENGTH


def test_the_sentence_names_resource_and_device() -> None:
    one, two = Device(GPU, "GPU-1", "ECC errors"), Device("example.com/nic", "nic-0")
    assert sentence_of([one], "n") == f"its device {GPU} GPU-1 on node n is unhealthy: ECC errors"
    assert sentence_of([two, one], "n") == (
        f"its devices example.com/nic nic-0, {GPU} GPU-1 on node n are unhealthy: ECC errors"
    )


def test_a_worker_drains_while_a_device_of_it_is_unhealthy() -> None:
    observer, view = Observer("trainer", drained=DRAIN_TAINTS, devices=True), view_of(job())
    for health, drains in (("Healthy", False), ("Unhealthy", True), ("Unknown", False)):
        body = pod(0, phase="Running", containerStatuses=[with_devices(device("GPU-1", health))])
        body["spec"]["nodeName"] = "n"
        see(view, {"digits-0-0": body}, {"digits-0-0": record(0)})
        (worker,), _ = observer.observe(view)
        assert (worker.draining, worker.unhealthy) == (drains, drains)
        assert list(observer.waits) == [(0, 0)] * drains
        assert observer.draining == set(), "its node stays, and nobody is about to evict it"
        if drains:
            wait = observer.waits[0, 0]
            assert (wait.reason, wait.object) == (Reason.DEVICE_UNHEALTHY, "Node/n")
            assert wait.message == f"its device {GPU} GPU-1 on node n is unhealthy"


def test_of_both_causes_the_node_is_told() -> None:
    observer = Observer("trainer", drained=DRAIN_TAINTS, devices=True)
    body = pod(0, phase="Running", containerStatuses=[with_devices(device("GPU-1"))])
    body["spec"]["nodeName"] = "n"
    view = view_of(job(), {"digits-0-0": body}, nodes={"n": Node("n", 1, {}, (CORDON,))})
    (worker,), _ = observer.observe(view)
    assert (worker.draining, worker.unhealthy) == (True, False)
    assert observer.waits[0, 0].reason is Reason.NODE_DRAINING


def test_devices_do_not_count_where_the_job_says_so() -> None:
    body = pod(0, phase="Running", containerStatuses=[with_devices(device("GPU-1"))])
    (worker,), _ = Observer("trainer", drained=DRAIN_TAINTS).observe(view_of(job(), {"digits-0-0": body}))
    assert not worker.draining
