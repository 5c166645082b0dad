# SPDX-License-Identifier: Apache-2.0
"""The chart on a cluster, and what an uninstall leaves. What it renders is in tests/api/test_chart_values.py."""

import json

import pytest

from e2e.job import Job
from e2e.kube import Namespace, Object, kubectl, wait_until
from e2e.operator import leader
from e2e.release import CHART, confined, helm, removed
from support.waiting import settled

pytestmark = pytest.mark.patient

SELECTED = "app.kubernetes.io/instance=elasticjob,app.kubernetes.io/name=elasticjob"


@pytest.mark.real
@pytest.mark.on_workers
def test_an_installation_is_tested_upgraded_and_removed_and_leaves_crds_and_jobs(operator: Namespace, job: Job) -> None:
    """A release without replicas, confined to its own namespace, so that it disturbs nobody: the installed operator
    looks after its jobs."""
    here, options = job.namespace, (CHART, *confined(job.namespace, replicas=0))
    with removed("aside", here):
        notes = helm("install", "aside", here, *options)
        assert "`helm uninstall` removes the operator and leaves the CRDs and all ElasticJobs" in notes
        assert "helm test --namespace" in notes
        job.apply(replicas=1)
        round = job.wait_for_round(1)

        helm("test", "aside", here)
        left = settled(here.list("elasticjobs"), "the test deletes its job before it ends")
        assert [one["metadata"]["name"] for one in left] == [job.name]

        uids = crds()
        helm("upgrade", "aside", here, *options)
        for crd in crd_objects():
            assert "elasticjob-chart" in {field["manager"] for field in crd["metadata"]["managedFields"]}

        said = helm("uninstall", "aside", here)
        assert "These resources were kept due to the resource policy:" in said
        assert "aside-elasticjob-crds-and-jobs-are-kept" in said
        assert crds() == uids
        assert job.told(round) is None, "the round is over"

        # what is left does not stand in the way of the next installation
        helm("install", "aside", here, *options)
        helm("uninstall", "aside", here)


def crd_objects() -> list[Object]:
    names = ("elasticjobs.elasticjob.io", "elasticworkers.elasticjob.io")
    found = kubectl("get", "crd", *names, "--output=json", "--show-managed-fields")
    items: list[Object] = json.loads(found)["items"]
    return items


def crds() -> set[str]:
    return {crd["metadata"]["uid"] for crd in crd_objects()}


def operators(operator: Namespace) -> set[str]:
    return {pod["metadata"]["uid"] for pod in operator.list("pods", labelSelector=SELECTED)}


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.disruptive("operator")
def test_a_round_goes_on_while_the_operator_is_upgraded_and_rolled_back(operator: Namespace, job: Job) -> None:
    job.apply(replicas=2)
    formed = job.wait_for_round(2)
    job.wait_for_training(2)
    term, before = job.status["term"], operators(operator)
    changed = ["--set-string", "podAnnotations.upgraded=once"]
    helm("upgrade", "elasticjob", operator, CHART, "--wait", "--reset-then-reuse-values", *changed)
    wait_until("the operators of before to be gone", lambda: operators(operator).isdisjoint(before), 60)
    job.edit()
    job.until("a term of the new operators", lambda: job.status["term"] > term, 60)
    helm("rollback", "elasticjob", operator, "--wait")
    leader(operator)
    assert job.told(formed) is None, "the round is over"
    job.scale(3)
    job.wait_for_round(3, after=formed)
