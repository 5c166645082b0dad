# SPDX-License-Identifier: Apache-2.0
"""Refusals of the API server, in its words, and what they lead to in ours."""

import pytest

from elasticjob.api import ElasticJobSpec
from elasticjob_operator.job.refusal_messages import RESOURCES, SECURITY, explained
from elasticjob_operator.objects.pods import SidecarImage, render_pod
from support.operator_objects import job

SPEC = ElasticJobSpec.parse(job()["spec"])
POD = render_pod(job(), SPEC, 0, 0, SidecarImage("sidecar:1", "IfNotPresent"), batch="9f3c01d2")
RANGES = "runAsUser: Invalid value: 65532: must be in the ranges: [1000660000, 1000669999]"


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (
            "failed quota: limits: must specify limits.cpu for: elasticjob-sidecar",
            f"set limits.cpu of the container elasticjob-sidecar by {RESOURCES}",
        ),
        (
            "failed quota: q: must specify cpu for: elasticjob-sidecar,trainer; limits.memory for: trainer",
            f"set requests.cpu of the container elasticjob-sidecar by {RESOURCES}",
        ),
        (
            "minimum memory usage per Container is 200Mi, but request is 96Mi",
            f"that is requests.memory of the container elasticjob-sidecar: set it by {RESOURCES}",
        ),
        (
            "[maximum cpu usage per Container is 2.  No limit is specified, maximum memory usage per Container is "
            "256Mi, but limit is 512Mi]",
            f"that is limits.cpu of the container elasticjob-sidecar: set it by {RESOURCES}; that is limits.memory of "
            f"the container elasticjob-sidecar: set it by {RESOURCES}",
        ),
        (
            "maximum cpu usage per Pod is 1, but limit is 3",
            f"the container elasticjob-sidecar has a part in that: {RESOURCES}",
        ),
        (
            "memory max limit to request ratio per Container is 2, but provided ratio is 5.333333",
            f"change limits and requests in spec.template, or of the container elasticjob-sidecar by {RESOURCES}",
        ),
        (
            "exceeded quota: small, requested: requests.cpu=1050m, used: requests.cpu=0, limited: requests.cpu=1",
            f"the container elasticjob-sidecar of each pod has a part in that: {RESOURCES}",
        ),
        (
            'spec.initContainers[0].resources.requests: Invalid value: "50m": must be less than or equal to cpu limit',
            f"spec.initContainers[0] is the container elasticjob-sidecar; set {RESOURCES}",
        ),
        (
            f"unable to validate against any security context constraint: spec.initContainers[0].{RANGES}",
            "spec.initContainers[0] is the container elasticjob-sidecar; the container elasticjob-sidecar has the user "
            f"id 65532 and the group id 65532: set {SECURITY}",
        ),
        (
            f"ValidatingAdmissionPolicy 'ids' denied request: {RANGES}",
            f"the container elasticjob-sidecar has the user id 65532 and the group id 65532: set {SECURITY}",
        ),
    ],
)
def test_what_may_be_the_sidecars_fault_says_where_to_set_it(refusal: str, remedy: str) -> None:
    assert explained(refusal, POD) == f"{refusal}; {remedy}"


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (
            "no PriorityClass with name urgent was found",
            "make the PriorityClass urgent, or name another in spec.template.spec.priorityClassName",
        ),
        (
            'pod rejected: RuntimeClass "gvisor" not found',
            "make the RuntimeClass gvisor, or name another in spec.template.spec.runtimeClassName",
        ),
        (
            'error looking up service account ml/mine: serviceaccount "mine" not found',
            "make the serviceaccount mine, or name another in spec.template.spec.serviceAccountName",
        ),
    ],
)
def test_what_a_template_names_and_is_not_there_is_told_with_the_field(refusal: str, remedy: str) -> None:
    assert explained(refusal, POD) == f"{refusal}; {remedy}"


@pytest.mark.parametrize(
    "refusal",
    [
        "exceeded quota: full, requested: pods=1, used: pods=0, limited: pods=0",
        "failed quota: limits: must specify limits.cpu for: trainer",
        "maximum cpu usage per Container is 200m, but limit is 1",
        'violates PodSecurity "restricted:latest": runAsNonRoot != true (container "trainer" must set securityContext)',
        f"unable to validate against any security context constraint: spec.containers[0].securityContext.{RANGES}",
        "not on Sundays",
    ],
)
def test_what_is_not_the_sidecars_fault_stays_as_it_is(refusal: str) -> None:
    assert explained(refusal, POD) == refusal
