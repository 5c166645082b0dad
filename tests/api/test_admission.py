# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses of a job, and what it lets pass while no pods are made from it."""

import secrets
from typing import Any

import pytest

from elasticjob.api import API_VERSION
from support import ControlPlane
from support.control_plane import Refused

JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
TRAINER = {"name": "trainer", "image": "train:1", "command": ["torchrun", "a"]}
POD = {"containers": [TRAINER, {"name": "main", "image": "train:1"}], "hostPID": True}

CHANGES = pytest.mark.parametrize(
    ("field", "value"),
    [
        ("template", {"metadata": {"labels": {"a": "b"}}}),
        ("template", {"spec": {"hostPID": None, "hostIPC": True}}),
        ("template", {"spec": {"containers": [{"name": "trainer", "image": "train:1", "args": ["torchrun", "a"]}]}}),
        ("template", {"spec": {"containers": [TRAINER]}}),
        ("nprocPerNode", 2),
        ("trainerContainer", "main"),
        ("quotaAdmission", "Gang"),
    ],
    ids=[
        "label",
        "name of a field",
        "name of a container's field",
        "a container",
        "nprocPerNode",
        "trainerContainer",
        "quota",
    ],
)


class Jobs:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def make(self, **spec: Any) -> str:
        name = f"job-{secrets.token_hex(3)}"
        body = {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": name}}
        whole = {"replicas": 2, "template": {"spec": POD}, **spec}
        self._plane.request("POST", f"{JOBS}?fieldValidation=Strict", {**body, "spec": whole})
        return name

    def change(self, name: str, subresource: str = "", **spec: Any) -> Any:
        path = f"{JOBS}/{name}{subresource}"
        return self._plane.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")

    def refusal(self, name: str, subresource: str = "", **spec: Any) -> Refused:
        with pytest.raises(Refused) as refused:
            self.change(name, subresource, **spec)
        assert refused.value.code == 422
        return refused.value

    def tell(self, name: str, **conditions: str) -> None:
        """Write a status with these conditions, as the operator does."""
        job = self._plane.request("GET", f"{JOBS}/{name}")
        common = {"reason": "Told", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        told = [{"type": type, "status": status, **common} for type, status in conditions.items()]
        self._plane.request("PUT", f"{JOBS}/{name}/status", {**job, "status": {"conditions": told}})


@pytest.fixture
def jobs(with_crds: ControlPlane) -> Jobs:
    return Jobs(with_crds)


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({}, "spec.template.spec"),
        ("none", "spec.template"),
        ({"metadata": "x", "spec": POD}, "spec.template.metadata"),
        ({"metadata": {"labels": ["a"]}, "spec": POD}, "spec.template.metadata.labels"),
        ({"metadata": {"labels": {"a": 1}}, "spec": POD}, "spec.template.metadata.labels.a"),
        ({"metadata": {"annotations": {"a": {}}}, "spec": POD}, "spec.template.metadata.annotations.a"),
    ],
)
def test_a_template_of_another_shape_is_refused(jobs: Jobs, template: Any, field: str) -> None:
    with pytest.raises(Refused, check=lambda refused: refused.names(field)):
        jobs.make(template=template)


SUM = "saveSeconds {} and stopSeconds 10 together must be less than rejoinSeconds {}"
LOST = "workerLostSeconds {} must be less than rejoinSeconds {}"
A_NUMBER = "nprocPerNode is a number of at least 1"


@pytest.mark.parametrize(
    ("spec", "field", "sentence"),
    [
        ({"replicas": 1, "minReplicas": 2}, "replicas", "replicas 1 is below minReplicas 2"),
        ({"replicas": 3, "maxReplicas": 2}, "replicas", "replicas 3 is above maxReplicas 2"),
        ({"minReplicas": 3, "maxReplicas": 2}, "minReplicas", "minReplicas 3 is above maxReplicas 2"),
        ({"nprocPerNode": 0}, "nprocPerNode", A_NUMBER),
        ({"nprocPerNode": "many"}, "nprocPerNode", A_NUMBER),
        ({"nprocPerNode": 1.5}, "nprocPerNode", ""),
        ({"hangPolicy": "Restart"}, "hangPolicy", "hangPolicy Restart needs progressDeadlineSeconds"),
        ({"rendezvous": {"saveSeconds": 65}}, "rendezvous.saveSeconds", SUM.format(65, 75)),
        ({"rendezvous": {"rejoinSeconds": 25}}, "rendezvous.saveSeconds", SUM.format(15, 25)),
        (
            {"rendezvous": {"workerLostSeconds": 80, "rejoinSeconds": 80}},
            "rendezvous.workerLostSeconds",
            LOST.format(80, 80),
        ),
        ({"rendezvous": {"workerLostSeconds": 75}}, "rendezvous.workerLostSeconds", LOST.format(75, 75)),
        ({"template": None}, "template", ""),
    ],
)
def test_fields_that_do_not_go_together_are_refused(jobs: Jobs, spec: Any, field: str, sentence: str) -> None:
    with pytest.raises(Refused, check=lambda refused: refused.names(f"spec.{field}", sentence)):
        jobs.make(**spec)


def test_a_field_of_another_name_is_refused(jobs: Jobs) -> None:
    with pytest.raises(Refused, match=r"spec\.minReplica\b"):
        jobs.make(minReplica=1)


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [
        (6, "replicas 6 is above maxReplicas 4"),
        (1, "replicas 1 is below minReplicas 2"),
        (3, "replicas 3 is none of the sizes that spec.sizes allows"),
    ],
)
def test_a_job_is_scaled_between_its_bounds_and_to_its_sizes(jobs: Jobs, replicas: int, sentence: str) -> None:
    name = jobs.make(minReplicas=2, maxReplicas=4, sizes={"step": 2})
    assert jobs.refusal(name, "/scale", replicas=replicas).names("spec.replicas", sentence)
    assert jobs.change(name, "/scale", replicas=4)["spec"]["replicas"] == 4


ONE_OF = "a rule has exactly one of onExitCodes and onPodConditions"


def rule(**rest: Any) -> dict[str, Any]:
    return {"action": "FailJob", **rest}


def codes(*values: int, operator: str = "In") -> dict[str, Any]:
    return {"operator": operator, "values": list(values)}


WHOLE = {
    "rules": [
        rule(onExitCodes={**codes(1, 42, 255), "containerName": "trainer"}),
        rule(onExitCodes=codes(0, 42, operator="NotIn")),
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}, {"type": "a.b/C", "status": "False"}]},
        {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "Unknown"}]},
    ]
}


@pytest.mark.parametrize("policy", [WHOLE, {"rules": []}, {"rules": [rule(onExitCodes=codes(*range(1, 256)))] * 20}])
def test_a_policy_for_failures_within_the_bounds_is_taken(jobs: Jobs, policy: Any) -> None:
    jobs.change(jobs.make(podFailurePolicy=policy), podFailurePolicy=None)


@pytest.mark.parametrize(
    ("rules", "field", "sentence"),
    [
        ([rule()], "[0].onExitCodes", ONE_OF),
        ([rule(onExitCodes=codes(1), onPodConditions=[{"type": "A"}])], "[0].onExitCodes", ONE_OF),
        (
            [rule(onExitCodes=codes(0, 1))],
            "[0].onExitCodes.values",
            "values must not have 0 with the operator In: exit code 0 is no failure",
        ),
        ([rule(onExitCodes=codes(2, 1))], "[0].onExitCodes.values", "values must be in ascending order"),
        ([rule(onExitCodes=codes(1, 1))], "[0].onExitCodes.values[1]", ""),
        ([rule(onExitCodes=codes())], "[0].onExitCodes.values", ""),
        ([rule(onExitCodes=codes(256))], "[0].onExitCodes.values[0]", ""),
        ([rule(onExitCodes=codes(1, operator="Is"))], "[0].onExitCodes.operator", ""),
        ([rule(onPodConditions=[])], "[0].onPodConditions", ""),
        ([rule(onPodConditions=[{"type": "A"}] * 21)], "[0].onPodConditions", ""),
        ([rule(onPodConditions=[{"status": "True"}])], "[0].onPodConditions[0].type", ""),
        ([{"onExitCodes": codes(1)}], "[0].action", ""),
        ([rule(onExitCodes=codes(1)) | {"action": "FailIndex"}], "[0].action", ""),
        ([rule(onExitCodes=codes(1))] * 21, "", ""),
    ],
)
def test_a_wrong_policy_for_failures_is_refused(jobs: Jobs, rules: Any, field: str, sentence: str) -> None:
    with pytest.raises(Refused, check=lambda refused: refused.names(f"spec.podFailurePolicy.rules{field}", sentence)):
        jobs.make(podFailurePolicy={"rules": rules})


def test_what_tools_write_into_a_template_is_no_slip(jobs: Jobs) -> None:
    metadata = {"creationTimestamp": None, "labels": None, "annotations": {"a": "b"}, "name": "worker"}
    jobs.make(template={"metadata": metadata, "spec": {**POD, "initContainers": None}})


@CHANGES
def test_what_running_pods_were_made_from_cannot_be_changed(jobs: Jobs, field: str, value: Any) -> None:
    name = jobs.make()
    jobs.tell(name, TemplateValid="True", Rendezvoused="False")
    sentence = f"{field} can be changed only while the job is suspended or its template invalid: set spec.suspend"
    assert jobs.refusal(name, **{field: value}).names(f"spec.{field}", sentence)


def test_nor_before_the_operator_has_looked_at_it(jobs: Jobs) -> None:
    assert jobs.refusal(jobs.make(), nprocPerNode=2).names("spec.nprocPerNode", "can be changed only while")


@CHANGES
def test_it_can_be_changed_while_the_job_is_suspended(jobs: Jobs, field: str, value: Any) -> None:
    jobs.change(jobs.make(suspend=True), **{field: value})


@CHANGES
def test_it_can_be_changed_while_it_is_invalid(jobs: Jobs, field: str, value: Any) -> None:
    name = jobs.make()
    jobs.tell(name, TemplateValid="False")
    jobs.change(name, **{field: value})


MANAGERS = [None, "elasticjob.io/elasticjob-controller", "kueue.x-k8s.io/multikueue"]


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize("manager", MANAGERS)
def test_who_manages_a_job_stays(jobs: Jobs, manager: str | None, suspend: bool) -> None:
    name = jobs.make(managedBy=manager, suspend=suspend)
    jobs.change(name, managedBy=manager, suspend=not suspend)
    for other in MANAGERS:
        if other != manager:
            refusal = jobs.refusal(name, managedBy=other)
            assert refusal.names("spec.managedBy", "managedBy can never be changed: make a new job")


def test_a_manager_has_a_domain_and_a_name(jobs: Jobs) -> None:
    for manager in ("", "me", "me/", "/me", "A/b", "a/" + "b" * 62):
        with pytest.raises(Refused, check=lambda refused: refused.names("spec.managedBy")):
            jobs.make(managedBy=manager)


def test_warm_restart_is_automatic_and_can_be_changed_at_any_time(jobs: Jobs) -> None:
    """It counts for the next pods: those that run are as good as they were."""
    name = jobs.make()
    jobs.tell(name, TemplateValid="True")
    found = [jobs.change(name, **given)["spec"]["warmRestart"] for given in ({}, {"warmRestart": "Disabled"})]
    assert found == ["Auto", "Disabled"]
    assert jobs.refusal(name, warmRestart=True).names("spec.warmRestart", "")


def test_suspended_in_the_same_edit_is_too_late(jobs: Jobs) -> None:
    """The pods that run would be those of another template than the one that the job then shows."""
    refusal = jobs.refusal(jobs.make(), suspend=True, nprocPerNode=2)
    assert refusal.names("spec.nprocPerNode", "nprocPerNode can be changed only while")


ON_THE_NODE = {"acknowledged": True, "tunnelPort": 30601}


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        ({}, "spec.hostNetwork.acknowledged", ""),
        ({"acknowledged": False}, "spec.hostNetwork.acknowledged", "its other processes reach the round's store"),
        ({**ON_THE_NODE, "storePort": 30601}, "spec.hostNetwork.storePort", "must be three different ports"),
        ({**ON_THE_NODE, "healthPort": 80}, "spec.hostNetwork.healthPort", ""),
    ],
    ids=["nothing", "no acknowledgement", "one port twice", "a port below 1024"],
)
def test_the_nodes_network_has_to_be_acknowledged(jobs: Jobs, given: Any, field: str, sentence: str) -> None:
    with pytest.raises(Refused, check=lambda refused: refused.names(field, sentence)):
        jobs.make(hostNetwork=given)


def test_the_ports_in_the_nodes_network_stay_while_pods_run(jobs: Jobs) -> None:
    name = jobs.make(hostNetwork=ON_THE_NODE)
    refusal = jobs.refusal(name, hostNetwork={"tunnelPort": 30602})
    assert refusal.names("spec.hostNetwork", "hostNetwork can be changed only while the job is suspended")
    assert jobs.refusal(name, hostNetwork=None).names("spec.hostNetwork", "set spec.suspend to true first")
    jobs.change(name, suspend=True)
    jobs.change(name, hostNetwork=None)


TIMES = [("restartedAt", "2026-01-01T00:00:00Z"), ("activeDeadlineSeconds", 60)]


@pytest.mark.parametrize(("field", "value"), TIMES)
def test_restarts_and_the_deadline_can_be_changed_until_the_job_has_ended(jobs: Jobs, field: str, value: Any) -> None:
    name = jobs.make()
    assert jobs.change(name, **{field: value})["spec"][field] == value
    jobs.tell(name, Failed="True")
    sentence = f"the job has ended, and {field} changes nothing any more: make a new job"
    for other in (None, "2026-01-02T00:00:00+01:00" if field == "restartedAt" else 61):
        assert jobs.refusal(name, **{field: other}).names(f"spec.{field}", sentence)


@pytest.mark.parametrize(("field", "value"), [("restartedAt", "now"), ("activeDeadlineSeconds", 0)])
def test_what_is_no_time_is_refused(jobs: Jobs, field: str, value: Any) -> None:
    assert jobs.refusal(jobs.make(), **{field: value}).names(f"spec.{field}", "")


@CHANGES
@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_of_an_ended_job_nothing_can_be_changed_that_would_have_no_effect(
    jobs: Jobs, end: str, field: str, value: Any
) -> None:
    name = jobs.make(suspend=True)
    jobs.tell(name, TemplateValid="False", **{end: "True"})
    sentence = f"the job has ended, and {field} changes nothing any more: make a new job"
    assert jobs.refusal(name, **{field: value}).names(f"spec.{field}", sentence)


@pytest.mark.parametrize("subresource", ["", "/scale"])
def test_an_ended_job_cannot_be_scaled(jobs: Jobs, subresource: str) -> None:
    name = jobs.make()
    jobs.change(name, subresource, replicas=3)
    jobs.tell(name, Complete="True")
    refusal = jobs.refusal(name, subresource, replicas=4)
    assert refusal.names("spec.replicas", "the job has ended, and replicas changes nothing any more")


def test_an_ended_job_can_be_told_of_applied_again_and_given_another_time_to_live(jobs: Jobs) -> None:
    name = jobs.make()
    jobs.tell(name, Failed="True")
    jobs.tell(name, Failed="True", TemplateValid="True")
    jobs.change(name, replicas=2, template={"spec": POD}, ttlSecondsAfterFinished=60)


@pytest.mark.parametrize("spec", [{"replicas": 4000}, {"replicas": 2, "maxReplicas": 4000}], ids=["now", "at most"])
def test_a_job_has_no_more_workers_with_its_spares_than_any_may_have(jobs: Jobs, spec: dict[str, int]) -> None:
    jobs.make(**spec, spareReplicas=96)
    sentence = "spareReplicas 97 and up to 4000 replicas are more than the 4096 workers"
    with pytest.raises(Refused, check=lambda refused: refused.names("spec.spareReplicas", sentence)):
        jobs.make(**spec, spareReplicas=97)
