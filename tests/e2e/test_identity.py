# SPDX-License-Identifier: Apache-2.0
"""Who may write what, with real tokens against the real API server. The pods of these tests are never run.

RBAC refuses with "cannot", naming the right that is missing; what it leaves open the chart's admission policy refuses
with a sentence of its own. Each test says which of the two it means.
"""

from copy import deepcopy
from typing import NamedTuple

import pytest

from e2e.identity import Answer, Caller, idle_pod, path, record_of, token
from e2e.job import STARTED_SECONDS, manifest
from e2e.kube import Namespace, Object, wait_until
from e2e.scene import new_namespace
from elasticjob_operator.memory import ACCESS_SECONDS
from support.waiting import settled

REQUEST = {"spec": {"request": {"type": "Join", "after": 0, "cause": "Started"}}}
BEAT = {"status": {"heartbeat": 1}}
# until a leader that has taken over has looked at the access of a job without pods
LONGEST_SECONDS = max(ACCESS_SECONDS) + STARTED_SECONDS


class Pods(NamedTuple):
    """Two workers of the job `train`, whose records exist, and one of the job `other`."""

    namespace: Namespace
    zero: Object
    one: Object
    other: Object

    def caller(self, pod: Object) -> Caller:
        return Caller(token(self.namespace, pod["spec"]["serviceAccountName"], pod))


@pytest.fixture(scope="module")
def pods(operator: Namespace, module_namespace: Namespace) -> Pods:
    here = module_namespace
    here.apply(manifest("train", suspend=True), manifest("other", suspend=True))
    names = ("train-worker", "other-worker")
    ready = "the operator to make the jobs' service accounts and roles"
    wait_until(ready, lambda: all(here.has("rolebinding", name) for name in names), LONGEST_SECONDS)
    for name in ("train-0-0", "train-1-0", "other-0-0"):
        here.apply(idle_pod(name, f"{name.split('-', 1)[0]}-worker"))
    made = Pods(here, *(here.get("pod", name) for name in ("train-0-0", "train-1-0", "other-0-0")))
    for pod in (made.zero, made.one):
        create_record(made, pod)
    reads, name = made.caller(made.other), path("elasticjobs", here, "other")
    wait_until("the other job's role binding to count", lambda: reads.call("GET", name).status == 200, 30)
    return made


def create_record(pods: Pods, pod: Object) -> None:
    """As the pod's sidecar does; a role that was just made counts a little later."""
    caller = pods.caller(pod)

    def answered() -> Answer | None:
        answer = caller.create(pods.namespace, record_of(pod))
        return answer if answer.status != 403 else None

    answer = wait_until("the role binding to count", answered, 30)
    assert answer.status == 201, answer


@pytest.fixture(scope="module")
def zero(pods: Pods) -> Caller:
    """Whoever has the token of pod train-0-0."""
    return pods.caller(pods.zero)


def refused(answer: Answer, *words: str) -> None:
    assert answer.status == 403, answer
    for word in words:
        assert word in answer.said


# --- what a worker may do


def test_a_worker_makes_and_changes_its_own_record(pods: Pods, zero: Caller) -> None:
    assert zero.patch(pods.namespace, "train-0-0", REQUEST).status == 200
    assert zero.patch(pods.namespace, "train-0-0", BEAT, "status").status == 200
    found = settled(pods.namespace.get("elasticworker", "train-0-0"), "written above, and by nobody else")
    assert (found["spec"]["request"]["type"], found["status"]["heartbeat"]) == ("Join", 1)


def test_a_worker_takes_over_what_an_earlier_pod_of_its_name_left(pods: Pods) -> None:
    here = pods.namespace
    left = record_of(pods.other)
    left["metadata"]["ownerReferences"] = []  # else the garbage collector would be faster
    here.apply(left)
    owned = {key: value for key, value in record_of(pods.other).items() if key in ("metadata", "spec")}
    assert pods.caller(pods.other).patch(here, "other-0-0", owned).status == 200
    here.kubectl("delete", "elasticworker", "other-0-0")


def test_a_worker_reads_its_own_job(pods: Pods, zero: Caller) -> None:
    assert zero.call("GET", path("elasticjobs", pods.namespace, "train")).status == 200
    watched = path("elasticjobs", pods.namespace) + "?fieldSelector=metadata.name=train"
    assert zero.call("GET", watched).status == 200


# --- what the admission policy refuses

ONLY_ITS_OWN = "pod train-0-0 writes no other ElasticWorker than train-0-0"


@pytest.mark.parametrize(("body", "part"), [(REQUEST, ""), (BEAT, "status")], ids=["spec", "status"])
def test_another_workers_record(pods: Pods, zero: Caller, body: Object, part: str) -> None:
    refused(zero.patch(pods.namespace, "train-1-0", body, part), ONLY_ITS_OWN)


def test_another_workers_record_as_a_whole(pods: Pods, zero: Caller) -> None:
    found = pods.namespace.get("elasticworker", "train-1-0")
    found["spec"]["id"] = "f" * 32
    refused(zero.call("PUT", path("elasticworkers", pods.namespace, "train-1-0"), found), ONLY_ITS_OWN)


def test_a_made_up_pod(pods: Pods, zero: Caller) -> None:
    made_up = deepcopy(pods.zero)
    made_up["metadata"]["name"] = "train-9-9"
    refused(zero.create(pods.namespace, record_of(made_up)), ONLY_ITS_OWN)


def test_a_name_that_the_server_is_to_make_up(pods: Pods, zero: Caller) -> None:
    record = record_of(pods.zero)
    record["metadata"] |= {"name": None, "generateName": "train-0-"}
    refused(zero.create(pods.namespace, record), ONLY_ITS_OWN)


def test_a_token_of_no_pod(pods: Pods) -> None:
    caller = Caller(token(pods.namespace, "train-worker"))
    refused(caller.patch(pods.namespace, "train-0-0", REQUEST), "this token belongs to no pod", "projected")


def test_a_record_that_says_it_is_another_pods(pods: Pods, zero: Caller) -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "train-1-0", "uid": pods.one["metadata"]["uid"]}]
    forged = {"metadata": {"ownerReferences": owners}}
    refused(zero.patch(pods.namespace, "train-0-0", forged), "metadata.ownerReferences", pods.zero["metadata"]["uid"])
    nobodys = {"metadata": {"ownerReferences": None}}
    refused(zero.patch(pods.namespace, "train-0-0", nobodys), "metadata.ownerReferences")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"job": "other"}, "job other has no worker 0 in a pod named train-0-0"),
        ({"job": "train", "index": 1}, "job train has no worker 1 in a pod named train-0-0"),
        ({"job": "trai"}, "job trai has no worker 0 in a pod named train-0-0"),
    ],
    ids=["another job", "another index", "part of a name"],
)
def test_a_record_of_ones_own_name_for_another_place(pods: Pods, zero: Caller, spec: Object, sentence: str) -> None:
    refused(zero.patch(pods.namespace, "train-0-0", {"spec": spec}), "spec.job and spec.index", sentence)


@pytest.mark.parametrize("label", ["job", "index"])
def test_a_record_with_the_labels_of_another(pods: Pods, zero: Caller, label: str) -> None:
    forged = {"metadata": {"labels": {f"elasticjob.io/{label}": "7"}}}
    refused(zero.patch(pods.namespace, "train-0-0", forged), "metadata.labels")


def test_a_finalizer_that_would_keep_the_namespace(pods: Pods, zero: Caller) -> None:
    forged = {"metadata": {"finalizers": ["example.com/stay"]}}
    tried = path("elasticworkers", pods.namespace, "train-0-0") + "?dryRun=All"  # or a failure would keep it, too
    refused(zero.call("PATCH", tried, forged), "metadata.finalizers")


def test_another_namespace_even_with_a_role_there(pods: Pods, zero: Caller) -> None:
    with new_namespace("identity-elsewhere") as there:
        there.apply(manifest("train", suspend=True))
        ready = "the operator to make the role of the same job elsewhere"
        wait_until(ready, lambda: there.has("rolebinding", "train-worker"), LONGEST_SECONDS)
        refused(zero.create(there, record_of(pods.zero)), "cannot create resource")
        account = f"--serviceaccount={pods.namespace.name}:train-worker"
        there.kubectl("create", "rolebinding", "stranger", "--role=train-worker", account)
        role = "the role binding to count"
        wait_until(role, lambda: "cannot" not in zero.create(there, record_of(pods.zero)).said, 10)
        refused(zero.create(there, record_of(pods.zero)), "this token belongs to no pod of the namespace")


# --- what RBAC refuses


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"status": {"phase": "Complete"}}, "status"),
        ({"spec": {"replicas": 9}}, ""),
        ({"spec": {"replicas": 9}}, "scale"),
    ],
    ids=["status", "spec", "scale"],
)
def test_its_job(pods: Pods, zero: Caller, body: Object, part: str) -> None:
    refused(zero.call("PATCH", path("elasticjobs", pods.namespace, "train", part).rstrip("/"), body), "cannot patch")


@pytest.mark.parametrize(
    ("method", "kind", "name"),
    [
        ("GET", "elasticjobs", "other"),
        ("GET", "elasticjobs", ""),
        ("DELETE", "elasticjobs", "train"),
        ("DELETE", "elasticworkers", "train-0-0"),
        ("DELETE", "elasticworkers", ""),
    ],
)
def test_what_no_worker_needs(pods: Pods, zero: Caller, method: str, kind: str, name: str) -> None:
    refused(zero.call(method, path(kind, pods.namespace, name)), "cannot")


def test_no_token(pods: Pods) -> None:
    nobody = Caller(None)
    assert nobody.patch(pods.namespace, "train-0-0", REQUEST).status in (401, 403)
    assert nobody.call("GET", path("elasticjobs", pods.namespace, "train")).status in (401, 403)


def test_an_invented_token(pods: Pods) -> None:
    assert Caller("e30.e30.e30").patch(pods.namespace, "train-0-0", REQUEST).status == 401


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_users_manage_jobs_but_write_no_state(pods: Pods, role: str) -> None:
    here, user = pods.namespace, f"user-{role}"
    here.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")

    def may(*what: str) -> bool:
        return here.try_kubectl("auth", "can-i", *what, f"--as={user}", "--quiet").code == 0

    wait_until("the role binding to count", lambda: may("patch", "elasticjobs"), 10)
    assert may("patch", "elasticjobs", "--subresource=scale")
    for verb in ("update", "patch"):
        assert not may(verb, "elasticjobs", "--subresource=status")
        assert not may(verb, "elasticworkers", "--subresource=status")
        assert not may(verb, "elasticworkers")
    assert not may("create", "elasticworkers")


# --- what has to stay possible


def test_the_record_goes_with_its_pod(pods: Pods) -> None:
    """The garbage collector is a service account too."""
    here = pods.namespace
    here.apply(idle_pod("train-2-0", "train-worker"))
    pod = here.get("pod", "train-2-0")
    assert pods.caller(pod).create(here, record_of(pod)).status == 201
    here.delete("pod", "train-2-0")
    gone = "the garbage collector to delete the record of a pod that is gone"
    wait_until(gone, lambda: not here.has("elasticworker", "train-2-0"), 60)


def test_an_administrator_mends_by_hand(pods: Pods) -> None:
    patch = '{"spec": {"request": null}}'
    pods.namespace.kubectl("patch", "elasticworker", "train-1-0", "--type=merge", f"--patch={patch}")
    pods.namespace.kubectl("delete", "elasticworker", "train-1-0", "--dry-run=server")
