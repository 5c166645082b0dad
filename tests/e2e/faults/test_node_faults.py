# SPDX-License-Identifier: Apache-2.0
"""Nodes are lost, emptied or full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.disruption import cordoned, killed_node, paused_node, worker_nodes
from e2e.faults.fault import Fault
from e2e.job import IMAGE, TRAINER, restarts
from e2e.kube import ENVIRONMENT, Namespace, Object, kubectl, wait_until
from e2e.operator import lead_from_elsewhere, leader
from elasticjob.api import INDEX_LABEL
from elasticjob_operator.cluster.leader import DURATION_SECONDS
from support.waiting import settled

pytestmark = pytest.mark.disruptive("nodes")

TOLD_SECONDS = 8  # workerLostSeconds, which is 4, and what a busy machine adds


@contextmanager
def apart(job: Namespace) -> Iterator[None]:
    """The job's workers 0 and 1 get different nodes, whatever else fills these: on each a pod keeps one of them off."""
    beside = Namespace("default")  # where the job's watch of pods does not see them
    pods = []
    for index, node in enumerate(worker_nodes()):
        avoided_nodes = {"namespaces": [job.name], "labelSelector": {"matchLabels": {INDEX_LABEL: str(index)}}}
        rules = [{**avoided_nodes, "topologyKey": "kubernetes.io/hostname"}]
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rules}}
        container = {"name": "sleep", "image": IMAGE, "command": ["sleep", "infinity"]}
        spec = {"nodeName": node, "affinity": affinity, "containers": [container], "terminationGracePeriodSeconds": 0}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{job.name}-{index}"}, "spec": spec})
    names = [f"pod/{pod['metadata']['name']}" for pod in pods]
    beside.apply(*pods)
    try:
        beside.kubectl("wait", *names, "--for=condition=Ready", "--timeout=150s")
        yield
    finally:
        beside.kubectl("delete", *names)


def node_of(pod: Object) -> str:
    return str(pod["spec"]["nodeName"])


def a_node_to_lose(pods: list[Object], operator: Namespace) -> str:
    """One that has some of the workers, and not the leader."""
    return next(node for node in map(node_of, pods) if node != node_of(leader(operator)))


def start(fault: Fault) -> list[Object]:
    """Three workers, of which one node has one and the other two."""
    with apart(fault.job.namespace):
        return fault.start(3)


@pytest.mark.real
@pytest.mark.fault("node-paused", told=TOLD_SECONDS, warm=True)
def test_node_paused(fault: Fault, operator: Namespace, tmp_path: Path) -> None:
    """The zombies on it wake up to a round that has passed: they get no store and no rank."""
    pods = start(fault)
    node = a_node_to_lose(pods, operator)
    zombies = [pod for pod in pods if node_of(pod) == node]
    with followed(fault.job.namespace, zombies, tmp_path) as logs:
        with paused_node(node):
            fault.strike()
            new = fault.formed(3)
        assert new.number == fault.next_number
        assert {node_of(pod) for pod in fault.job.member_pods()} == set(worker_nodes()) - {node}
        wait_until(
            "the zombies to be gone",
            lambda: not {pod["metadata"]["name"] for pod in zombies} & set(fault.job.pod_states.present()),
            60,
        )
    for said in (log.read_text() for log in logs):
        assert f"round {fault.next_number - 1}: rank" in said
        assert f"round {fault.next_number}: rank" not in said
        assert f"group={group(fault)}" not in said, "a zombie trained in the new group"
    assert len(fault.job.rounds()) == fault.row.rounds_before + 1
    assert fault.job.restarts == 0


@pytest.mark.extended
@pytest.mark.fault("node-paused-spare", told=TOLD_SECONDS, warm=True)
def test_node_paused_spare(fault: Fault, operator: Namespace) -> None:
    """Nobody waits for a pod to start: the spare beside the survivor trains in the lost worker's place."""
    with apart(fault.job.namespace):
        pods, index = fault.start_with_spare(2)
    beside = node_of(fault.job.pod(index))
    [node] = {node_of(pod) for pod in pods} - {beside}
    lead_from_elsewhere(operator, node)
    with paused_node(node):
        fault.strike()
        new = fault.formed(2)
        assert {node_of(pod) for pod in fault.job.member_pods()} == {beside}
    assert new.number == fault.next_number
    assert index in new.members
    assert fault.job.restarts == 0


@pytest.mark.extended
@pytest.mark.fault("node-and-leader-paused", told=TOLD_SECONDS + DURATION_SECONDS + 2, warm=True)
def test_node_and_leader_paused(fault: Fault, operator: Namespace) -> None:
    """Nobody judges until the next operator leads: that much later all is as without."""
    start(fault)
    node = node_of(leader(operator))
    term = settled(fault.job.status["term"], "this leader's, or one before it")
    with paused_node(node):
        fault.strike()
        new = fault.formed(3)
        assert node not in {node_of(pod) for pod in fault.job.member_pods()}
    assert new.number == fault.next_number
    assert settled(fault.job.status["term"], "the next leader has formed the round") > term
    assert fault.job.restarts == 0


def group(fault: Fault) -> str:
    return fault.job.wait_for_training(3).group


@contextmanager
def followed(namespace: Namespace, pods: list[Object], folder: Path) -> Iterator[list[Path]]:
    """`kubectl logs --follow` of the trainers into files, until they end."""
    command = ["kubectl", "--namespace", namespace.name, "logs", "--container", TRAINER, "--follow"]
    paths, processes = [folder / pod["metadata"]["name"] for pod in pods], []
    for path in paths:
        with path.open("w") as file:
            processes.append(subprocess.Popen([*command, path.name], env=ENVIRONMENT, stdout=file))
    try:
        wait_until("the logs", lambda: all(path.read_text() for path in paths), 20)
        yield paths
    finally:
        for process in processes:
            process.terminate()
            process.wait()


@pytest.mark.fault("node-killed", told=TOLD_SECONDS, warm=True)
def test_node_killed(fault: Fault, operator: Namespace) -> None:
    node = a_node_to_lose(start(fault), operator)
    with killed_node(node):
        fault.strike()
        new = fault.formed(3)
        assert {node_of(pod) for pod in fault.job.member_pods()} == set(worker_nodes()) - {node}
    assert new.number == fault.next_number
    assert fault.job.restarts == 0


@pytest.mark.extended
@pytest.mark.fault("eviction", told=20.0, warm=True)
def test_eviction(fault: Fault, operator: Namespace) -> None:
    """`kubectl drain`: the replacements start elsewhere, and only then are the others told."""
    node = a_node_to_lose(start(fault), operator)
    others = set(worker_nodes()) - {node}
    fault.job.wait_for_protection(3)
    with cordoned([node]):
        fault.strike()
        kubectl(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=elasticjob.io/job=train"
        )
        new = fault.formed(3)
        assert {node_of(pod) for pod in fault.job.member_pods()} == others
    assert new.number == fault.next_number
    assert fault.job.restarts == 0, "the loss of a pod is no failure"


@pytest.mark.fault("replacement-unschedulable", told=2.0, warm=True)
def test_replacement_unschedulable(fault: Fault) -> None:
    """The group goes on without it, at the minimum or above, and grows when there is room."""
    pods = fault.start(3, minReplicas=2)
    with cordoned(worker_nodes()):
        fault.strike()
        fault.job.delete_pod(pods[1])
        smaller = fault.formed(2)
        training = fault.job.wait_for_training(2)
        fault.job.wait_for_steps(training, 5)
        assert fault.job.rounds()[-1] == smaller
    assert smaller.number == fault.next_number
    assert smaller.members == (0, 2)
    whole = fault.job.wait_for_round(3, after=smaller)
    assert whole.members[:2] == (0, 2), "all nodes were cordoned: who comes for the others may be first"
    assert whole.number == smaller.number + 1
    fault.job.wait_for_training(3)
    assert [restarts(pod) for pod in fault.job.member_pods()] == [0, 0, 0]
    assert fault.job.restarts == 0
