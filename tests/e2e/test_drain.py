# SPDX-License-Identifier: Apache-2.0
"""A node that is draining: its workers are replaced before they are killed, and `kubectl drain` waits for that."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e import api
from e2e.disruption import cordoned, uncordon, worker_nodes
from e2e.job import Job
from e2e.kube import ENVIRONMENT, Object, kubectl, wait_until
from e2e.scene import bring
from e2e.trainer_log import Step
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.members import members_of
from support.waiting import settled

pytestmark = [pytest.mark.disruptive("nodes"), pytest.mark.on_workers]

DRAINED = "drained"  # the label by which a drain leaves other tests' pods alone
GRACE_SECONDS, LONG_GRACE_SECONDS = 5, 600
TOLD_SECONDS = 30


@pytest.fixture
def saving(job: Job) -> Job:
    """The job `train`, whose script is saving_train.py."""
    bring(job, "saving_train.py")
    return job


@pytest.mark.real
@pytest.mark.torchrun
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.extended)])
def test_no_step_is_lost_when_a_node_is_drained(saving: Job, rank: int) -> None:
    apply_spread(saving)
    first, before = saving.wait_for_round(2), saving.wait_for_training(2)
    saving.wait_for_steps(before, 10)
    saving.wait_for_protection(2)
    pods = saving.member_pods()
    node, survivor = node_of(pods[rank]), pods[1 - rank]
    with draining(saving, node) as drained:
        formed = saving.wait_for_round(2, after=first)
        after = saving.wait_for_training(2, other_than=before)
        wait_until("kubectl drain to end", drained, TOLD_SECONDS)
        assert {node_of(pod) for pod in saving.member_pods()} == {node_of(survivor)}
    log = saving.log(survivor)
    last, next_one = log.steps(before.group)[-1], log.steps(after.group)[0]
    assert next_one == Step(after.group, 2, 1 - rank, last.step + 1), "steps were lost, or ranks have changed"
    assert saving.restarts == 0
    assert "whose node is draining" in formed.reason
    saving.wait_for_event("NodeDraining")
    assert "WorkerLost" not in settled(told(saving), "what was told stays")


@pytest.mark.extended
def test_a_spare_takes_over_from_a_worker_whose_node_is_drained(job: Job) -> None:
    """At once: the spare's own replacement may come later."""
    apply_spread(job)
    first, _ = job.wait_for_round(2), job.wait_for_training(2)
    job.patch('{"spec": {"spareReplicas": 1}}')
    job.wait_for_spare()
    job.wait_for_protection(3)
    nodes = [node_of(job.pod(index)) for index in (*first.members, 2)]
    rank = nodes.index(nodes[2]) ^ 1  # of the member that is alone on its node
    with draining(job, nodes[rank]) as drained:
        after = job.wait_for_round(2, after=first)
        job.until("kubectl drain to end", drained, TOLD_SECONDS)
    assert (after.members[rank], after.members[1 - rank]) == (2, first.members[1 - rank])
    assert job.restarts == 0
    assert "WorkerLost" not in settled(told(job), "what was told stays")


def test_the_notice_of_a_cloud_drains_as_a_cordon_does(job: Job) -> None:
    apply_spread(job)
    first = job.wait_for_round(2)
    node = node_of(job.member_pods()[0])
    with tainted(node, "aws-node-termination-handler/spot-itn"):
        after = job.wait_for_round(2, after=first)
        assert node not in [node_of(pod) for pod in job.member_pods()]
    assert "whose node is draining" in after.reason
    assert job.restarts == 0


def test_a_drain_waits_for_the_grace_and_no_longer(job: Job) -> None:
    """There is no room elsewhere: meanwhile the group trains on, and says why it is about to change. The grace is cut
    short when that has been seen."""
    apply_spread(job, drain={"graceSeconds": LONG_GRACE_SECONDS})
    first, before = job.wait_for_round(2), job.wait_for_training(2)
    job.wait_for_protection(2)
    node = node_of(job.member_pods()[0])
    with cordoned(worker_nodes()), draining(job, node) as drained:
        job.wait_for_event("NodeDraining")
        seen = job.until("who comes to be named", lambda: missing(job), TOLD_SECONDS)
        assert {one.index for one in seen.missing} <= {2, 3}, "both nodes are draining"
        assert {one.state for one in members_of(seen, {}) if one.worker >= 2} <= {"is missing", "no pod"}
        assert job.told(first) is None, "somebody was evicted within the grace"
        job.patch(json.dumps({"spec": {"drain": {"graceSeconds": GRACE_SECONDS}}}))
        job.until("kubectl drain to end", drained, GRACE_SECONDS + TOLD_SECONDS)
        job.wait_for_event("DrainGraceOver", f"spec.drain.graceSeconds, {GRACE_SECONDS} s")
        job.wait_for_round(1, after=first)
    job.wait_for_round(2, after=first)
    job.wait_for_training(2, other_than=before)
    assert job.restarts == 0, "the loss of a pod is no failure"
    wait_until("the budget to be closed", lambda: job.budget()["spec"]["minAvailable"] > 0, TOLD_SECONDS)


def test_nobody_evicts_a_worker_whose_node_stays(job: Job) -> None:
    job.apply(replicas=1)
    job.wait_for_round(1)
    job.wait_for_protection(1)
    assert evicted(job, job.member_pods()[0]) == "429 TooManyRequests"
    job.namespace.kubectl(
        "patch", "elasticjob", job.name, "--type=merge", '--patch={"spec":{"drain":{"graceSeconds":0}}}'
    )
    wait_until("the budget to be gone", lambda: not job.namespace.list("poddisruptionbudgets"), TOLD_SECONDS)
    wait_until("an eviction", lambda: evicted(job, job.member_pods()[0]) == "201", TOLD_SECONDS)


def apply_spread(job: Job, **settings: Any) -> None:
    """With two workers on two nodes, at first: a replacement may be beside the other."""
    body = job.manifest(replicas=2, **settings)
    pods = {"labelSelector": {"matchLabels": {"elasticjob.io/job": job.name}}}
    apart = {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, **pods}
    template = body["spec"]["template"]
    template["spec"]["topologySpreadConstraints"] = [apart | {"nodeTaintsPolicy": "Honor"}]
    template.setdefault("metadata", {}).setdefault("labels", {})[DRAINED] = job.namespace.name
    job.namespace.apply(body)


def missing(job: Job) -> Look | None:
    """What `kubectl elasticjob status` reads, once it misses somebody."""
    seen = look(job.scene())
    return seen if seen.missing and 2 in seen.workers else None


def told(job: Job) -> set[str]:
    """The reasons of the job's events."""
    return {event["reason"] for event in job.namespace.list("events.events.k8s.io")}


def node_of(pod: Object) -> str:
    return str(pod["spec"]["nodeName"])


def evicted(job: Job, pod: Object) -> str:
    """The answer to an eviction."""
    meta = {"name": pod["metadata"]["name"], "namespace": job.namespace.name}
    body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    try:
        api.call("POST", path, body)
    except api.Refused as refused:
        return "429 TooManyRequests" if refused.code == 429 else str(refused)
    return "201"


@contextmanager
def tainted(node: str, key: str) -> Iterator[None]:
    kubectl("taint", "node", node, f"{key}=:NoSchedule")
    try:
        yield
    finally:
        kubectl("taint", "node", node, f"{key}-")


@contextmanager
def draining(job: Job, node: str) -> Iterator[Callable[[], bool]]:
    """`kubectl drain` of the job's pods goes on meanwhile; what is given says whether it has ended well."""
    only = f"--pod-selector={DRAINED}={job.namespace.name}"
    command = ["kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", only]
    with subprocess.Popen(command, env=ENVIRONMENT) as drain:
        try:
            yield lambda: drain.poll() == 0
        finally:
            drain.kill()
            uncordon(node)
