# SPDX-License-Identifier: Apache-2.0
"""What a gang's pods get from the quota that they take: of flavors and of checks, and never against the template."""

from typing import Any

from elasticjob.api import ElasticJobSpec
from elasticjob_operator.objects.admitted import Admission, admitted, of_check, of_flavor
from elasticjob_operator.objects.pods import SidecarImage, render_pod
from support.operator_objects import Object, job

IMAGE = SidecarImage("sidecar:1", "IfNotPresent")
SPOT = {"key": "example.com/spot", "operator": "Exists"}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
FLAVOR = of_flavor("spot", {"nodeLabels": {"pool": "spot", "zone": "a"}, "tolerations": [SPOT]})
CHECK = of_check(
    "machines",
    {
        "name": "workers",
        "labels": {"team": "vision"},
        "annotations": {"request": "r-1"},
        "nodeSelector": {"rack": "7"},
        "tolerations": [GPU, SPOT],
    },
)


def spec(**template: Any) -> ElasticJobSpec:
    body = job()["spec"]
    body["template"]["metadata"] = template.pop("metadata", {})
    body["template"]["spec"] |= template
    return ElasticJobSpec.parse(body)


def pod_of(wanted: ElasticJobSpec, given: Admission) -> Object:
    return render_pod(job(), wanted, 0, 0, IMAGE, batch="9f3c01d2", admitted=given)


def test_a_pod_gets_what_flavor_and_check_say_beside_what_the_template_says() -> None:
    wanted = spec(nodeSelector={"disk": "ssd"}, tolerations=[GPU], metadata={"labels": {"team": "vision", "a": "b"}})
    pod = pod_of(wanted, admitted("digits-0", [FLAVOR], [CHECK], wanted.template))
    assert pod["spec"]["nodeSelector"] == {"pool": "spot", "zone": "a", "rack": "7", "disk": "ssd"}
    assert [one for one in pod["spec"]["tolerations"] if one in (GPU, SPOT)] == [GPU, SPOT], "each once"
    assert pod["metadata"]["labels"].items() >= {"team": "vision", "a": "b", "elasticjob.io/job": "digits"}.items()
    assert pod["metadata"]["annotations"].items() >= {"request": "r-1", "elasticjob.io/workload": "digits-0"}.items()


def test_the_template_itself_is_left_alone() -> None:
    wanted = spec(nodeSelector={"disk": "ssd"})
    pod_of(wanted, admitted("digits-0", [FLAVOR], [CHECK], wanted.template))
    assert wanted.template["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert (
        "elasticjob.io/workload"
        not in render_pod(job(), wanted, 0, 0, IMAGE, batch="9f3c01d2")["metadata"]["annotations"]
    )


def test_of_flavors_that_differ_the_first_counts() -> None:
    """As to Kueue: one of the processors and one of the GPUs, of which the second is about the same nodes."""
    other = of_flavor("any", {"nodeLabels": {"zone": "b", "model": "x"}})
    found = admitted("digits-0", [FLAVOR, other], [], spec().template)
    assert found.words["nodeSelector"] == {"pool": "spot", "zone": "a", "model": "x"}
    assert not found.problem


def test_what_the_template_says_otherwise_is_told() -> None:
    found = admitted("digits-0", [FLAVOR], [], spec(nodeSelector={"zone": "b"}).template)
    assert found.problem == (
        "the ResourceFlavor spot, by which Kueue has admitted the job, wants zone=a, "
        "and spec.template.spec.nodeSelector says zone=b: change the template, or the queue"
    )


def test_a_check_that_says_otherwise_than_the_flavor_or_the_template_is_told() -> None:
    check = of_check("machines", {"nodeSelector": {"zone": "c"}})
    found = admitted("digits-0", [FLAVOR], [check], spec().template)
    assert "the admission check machines, " in found.problem
    assert "wants zone=c, and the nodeSelector of the ResourceFlavor spot says zone=a" in found.problem
    found = admitted("digits-0", [], [CHECK], spec(metadata={"labels": {"team": "speech"}}).template)
    assert "wants team=vision, and spec.template.metadata.labels says team=speech" in found.problem


def test_a_template_that_was_copied_from_a_pod_names_no_workload() -> None:
    wanted = spec(metadata={"annotations": {"elasticjob.io/workload": "digits-7", "mine": "1"}})
    annotations = render_pod(job(), wanted, 0, 0, IMAGE, batch="9f3c01d2")["metadata"]["annotations"]
    assert "elasticjob.io/workload" not in annotations
    assert annotations["mine"] == "1"
