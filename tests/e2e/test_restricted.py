# SPDX-License-Identifier: Apache-2.0
"""Namespaces that enforce Pod Security `restricted`: neither the sidecar nor anything of the chart needs more."""

import pytest

from e2e.job import Job
from e2e.kube import Namespace, Object, kubectl
from e2e.release import CHART, confined, helm, removed
from support.waiting import settled

pytestmark = pytest.mark.real

POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.fixture
def restricted(namespace: Namespace) -> Namespace:
    kubectl("label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")
    return namespace


def following(body: Object) -> Object:
    """The job of a template that follows the standard."""
    pod = body["spec"]["template"]["spec"]
    pod["securityContext"] = POD
    pod["containers"][0]["securityContext"] = CONTAINER
    for volume in pod["volumes"]:
        if volume.pop("hostPath", None):
            volume["emptyDir"] = {}
    return body


def test_a_job_trains_and_scales(restricted: Namespace, job: Job) -> None:
    restricted.apply(following(job.manifest(replicas=2)))
    formed = job.wait_for_round(2)
    job.wait_for_training(2)
    job.scale(1)
    job.wait_for_round(1, after=formed)


def test_a_template_that_asks_for_more_is_told(restricted: Namespace, job: Job) -> None:
    job.apply(replicas=1)
    job.wait_for_event("CreateFailed", 'violates PodSecurity "restricted:latest"')
    assert not settled(job.pods(), "none is let in")


@pytest.mark.extended
@pytest.mark.patient
@pytest.mark.on_workers
def test_the_chart_is_installed_upgraded_and_tested(operator: Namespace, restricted: Namespace) -> None:
    """Its operator has no job to look after; while `helm test` makes one there is none, beside the installed one."""
    with removed("restricted", restricted):
        helm("install", "restricted", restricted, CHART, "--wait", *confined(restricted, replicas=1))
        helm("upgrade", "restricted", restricted, CHART, "--wait", *confined(restricted, replicas=0))
        helm("test", "restricted", restricted)
        helm("uninstall", "restricted", restricted)
