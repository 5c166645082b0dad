# SPDX-License-Identifier: Apache-2.0
"""What `kubectl elasticjob` says of what an API server alone can make: refusals, rights, the Lease, wrong arguments.

RECORD_SCENES=1 keeps what was seen of each cause for the unit tests of `why`.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from kubernetes.aio.client import Configuration

from api import chart
from api.operators import JOBS, Leader, Operators, Witness, job_body, new_job
from api.test_refusals import broken_webhook, policy, quota
from elasticjob.blocker_reasons import Reason
from elasticjob.kube import paths
from elasticjob_cli.app import cli
from elasticjob_cli.cluster.access import KubectlFlags
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.gather import gather
from elasticjob_cli.reading.scene import Scene
from elasticjob_cli.why.answer import Explanation, why
from elasticjob_cli.why.rows import LocalReason
from support import ControlPlane
from support.control_plane import Refused
from support.credentials import kubeconfig
from support.scenes import record
from support.waiting import within

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SECONDS = 90.0
HOLDER = "test"  # the identity of `Operators`


def ej(plane: ControlPlane, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments[:1], f"--kubeconfig={plane.kubeconfig}", *arguments[1:]])


def place(plane: ControlPlane) -> KubectlFlags:
    return KubectlFlags(str(plane.kubeconfig), None, "default")


async def seen(plane: ControlPlane, name: str, lease: str) -> Scene:
    return await asyncio.to_thread(lambda: gather(Cluster.connect(place(plane)), name, lease))


async def told(plane: ControlPlane, leader: Leader, name: str, cause: str, words: str, kept: str) -> Explanation:
    """What `why` says once it names the cause in these words, while the operator looks at the job again and again."""
    holding = asyncio.create_task(leader.leadership.hold())
    try:
        async with within("the cause to be told", SECONDS):
            while True:
                await leader.see(name)
                scene = await seen(plane, name, lease_of(leader))
                reply = why(scene)
                if cause in [one.reason for one in reply.causes] and words in reply.paragraph:
                    record(kept, scene)
                    return reply
                await asyncio.sleep(0.1)
    finally:
        holding.cancel()


def lease_of(leader: Leader) -> str:
    return f"default/{leader.leadership._name}"


@pytest.fixture
def obstacle(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    path = request.param(plane)
    yield path
    with suppress(Refused):
        plane.request("DELETE", path)


@pytest.fixture
async def limited(plane: ControlPlane) -> AsyncIterator[Operators]:
    """Operators with all that the chart gives but the making of pods."""
    chart.install(plane, "ClusterRole")
    rules = plane.request("GET", f"{RBAC}/clusterroles/elasticjob-operator")["rules"]
    for rule in rules:
        if rule["resources"] == ["pods"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "create"]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    group, name = "rbac.authorization.k8s.io", "limited"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    chart.ensure(plane, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    chart.ensure(plane, f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [*rules, leases]})
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    chart.ensure(plane, f"{RBAC}/clusterrolebindings", binding)
    configuration = Configuration(host=plane.server)
    configuration.ssl_ca_cert = str(plane.authority)
    token = chart.token(plane, "default", name)
    chart.wait_for_right(plane, token, "create", "leases", "coordination.k8s.io")
    configuration.api_key = {"BearerToken": token}
    configuration.api_key_prefix = {"BearerToken": "Bearer"}
    kube = Witness.of(configuration)
    kube.asked = []
    yield Operators(kube)
    await kube.close()


@pytest.mark.parametrize(
    ("obstacle", "cause", "words", "kept"),
    [
        (quota, Reason.QUOTA_EXCEEDED, "exceeded quota: full", "quota"),
        (broken_webhook, Reason.ADMISSION_REFUSED, 'failed calling webhook "broken.example.com"', "webhook"),
        (policy, Reason.ADMISSION_REFUSED, "not on Sundays", "policy"),
    ],
    ids=["quota", "webhook", "policy"],
    indirect=["obstacle"],
)
async def test_what_refuses_a_pod(
    operators: Operators, plane: ControlPlane, obstacle: str, cause: str, words: str, kept: str
) -> None:
    name, leader = await refused_job(plane), await operators.lead()
    reply = await told(plane, leader, name, cause, words, kept)
    assert [one.reason for one in reply.causes] == [cause]


async def refused_job(plane: ControlPlane) -> str:
    """A job whose pods are refused by now: an obstacle counts a moment after it was made."""
    async with within("the refusal of pods", SECONDS):
        while True:
            try:
                plane.request(
                    "POST",
                    f"{PODS}?dryRun=All",
                    {"metadata": {"name": "tried"}, "spec": {"containers": [{"name": "trainer", "image": "train:1"}]}},
                )
            except Refused:
                return new_job(plane)
            await asyncio.sleep(0.1)


async def test_an_operator_that_may_not_make_pods(limited: Operators, plane: ControlPlane) -> None:
    name, leader = new_job(plane), await limited.lead()
    words = 'User "system:serviceaccount:default:limited" cannot create resource "pods"'
    await told(plane, leader, name, Reason.OPERATOR_WITHOUT_RIGHTS, words, "rights-refused")


async def test_an_operator_that_may_not_see_the_job(operators: Operators, plane: ControlPlane) -> None:
    """Its Lease is renewed and nothing else happens; its rights are asked for by the account of its pod."""
    leader = await operators.lead()
    holding = asyncio.create_task(leader.leadership.hold())
    pod = {
        "metadata": {"name": HOLDER},
        "spec": {"serviceAccountName": "nobody", "containers": [{"name": "operator", "image": "none"}]},
    }
    plane.request("POST", PODS, pod)
    try:
        name = new_job(plane)
        scene = await seen(plane, name, lease_of(leader))
    finally:
        holding.cancel()
        plane.request("DELETE", f"{PODS}/{HOLDER}?gracePeriodSeconds=0")
    record("rights-lacking", scene)
    (found,) = why(scene).causes
    assert found.reason is Reason.OPERATOR_WITHOUT_RIGHTS
    assert "it may not list elasticjobs, watch elasticjobs, update elasticjobs/status" in found.sentence


async def test_a_pod_that_is_about_to_be_made(operators: Operators, plane: ControlPlane) -> None:
    leader = await operators.lead()
    holding = asyncio.create_task(leader.leadership.hold())
    try:
        scene = await seen(plane, new_job(plane), lease_of(leader))
    finally:
        holding.cancel()
    record("no-pod", scene)
    assert [one.reason for one in why(scene).causes] == [Reason.POD_MISSING]


async def test_a_job_that_another_controller_manages(operators: Operators, plane: ControlPlane) -> None:
    leader = await operators.lead()
    holding = asyncio.create_task(leader.leadership.hold())
    body = job_body(name := f"job-{secrets.token_hex(3)}")
    plane.request("POST", JOBS, {**body, "spec": {**body["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}})
    try:
        scene = await seen(plane, name, lease_of(leader))
    finally:
        holding.cancel()
    record("managed", scene)
    assert [one.reason for one in why(scene).causes] == [LocalReason.MANAGED]


async def test_an_operator_that_has_given_its_lease_up(operators: Operators, plane: ControlPlane) -> None:
    leader = await operators.lead()
    name = new_job(plane)
    await leader.leadership.release()
    scene = await seen(plane, name, lease_of(leader))
    record("no-leader", scene)
    assert why(scene).causes[0].sentence == f"No operator leads: nobody holds the Lease {lease_of(leader)}."


async def test_an_operator_that_no_longer_renews_its_lease(operators: Operators, plane: ControlPlane) -> None:
    leader = await operators.lead()
    name = new_job(plane)
    await leader.see(name)
    path = f"{LEASES}/{leader.leadership._name}"
    lease = plane.request("GET", path)
    lease["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    plane.request("PUT", path, lease)
    scene = await seen(plane, name, lease_of(leader))
    record("no-operator", scene)
    assert why(scene).causes[0].reason is LocalReason.NO_OPERATOR
    assert f"{HOLDER} has not renewed the Lease {lease_of(leader)} for" in why(scene).paragraph


async def test_a_template_that_cannot_work(operators: Operators, plane: ControlPlane) -> None:
    name, leader = new_job(plane, hostNetwork=True), await operators.lead()
    await told(plane, leader, name, Reason.TEMPLATE_INVALID, "hostNetwork", "host-network")


async def test_a_role_that_is_somebody_elses(operators: Operators, plane: ControlPlane) -> None:
    name, leader = new_job(plane), await operators.lead()
    plane.request("POST", f"{RBAC}/namespaces/default/roles", {"metadata": {"name": f"{name}-worker"}})
    words = f"the Role {name}-worker exists and is not this job's"
    await told(plane, leader, name, Reason.ACCESS_REFUSED, words, "access")


async def test_a_pod_of_somebody_elses(operators: Operators, plane: ControlPlane) -> None:
    name, leader = new_job(plane), await operators.lead()
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"{name}-0", "uid": "theirs"}
    pod = {
        "metadata": {"name": f"{name}-0-0", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "trainer", "image": "train:1"}]},
    }
    plane.request("POST", PODS, pod)
    words = f"there is a pod {name}-0-0 that is not of this job"
    await told(plane, leader, name, Reason.NAME_TAKEN, words, "name-taken")


def test_a_user_who_may_see_nothing_but_the_job(plane: ControlPlane, tmp_path: Path) -> None:
    group, name, job = "rbac.authorization.k8s.io", "looker", new_job(plane)
    rule = {"apiGroups": ["elasticjob.io"], "resources": ["elasticjobs"], "verbs": ["get"]}
    here = f"{RBAC}/namespaces/default"
    chart.ensure(plane, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    chart.ensure(plane, f"{here}/roles", {"metadata": {"name": name}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role = {"apiGroup": group, "kind": "Role", "name": name}
    chart.ensure(plane, f"{here}/rolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    config = tmp_path / "config"
    token = chart.token(plane, "default", name)
    chart.wait_for_right(plane, token, "get", "elasticjobs", "elasticjob.io", "default")
    config.write_text(kubeconfig(plane.server, plane.authority.read_text(), token))
    done = CliRunner().invoke(cli, ["why", job, "--kubeconfig", str(config)])
    assert done.exit_code == 0
    assert done.stdout.endswith(
        "You may not see its pods, events and elasticworkers, so nothing can be said of its workers.\n"
    )
    refused = CliRunner().invoke(cli, ["suspend", job, "--kubeconfig", str(config)])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert 'cannot patch resource "elasticjobs"' in refused.stderr


def test_status_of_what_is_not_there(plane: ControlPlane) -> None:
    done = ej(plane, "status", "nothing")
    assert (done.exit_code, done.stderr) == (3, 'error: elasticjobs.elasticjob.io "nothing" not found\n')


def test_all_jobs_in_a_list(plane: ControlPlane) -> None:
    name = new_job(plane)
    assert name in ej(plane, "status").stdout
    assert ["default", name] in [line.split()[:2] for line in ej(plane, "status", "-A").stdout.splitlines()]
    assert name in [one["metadata"]["name"] for one in json.loads(ej(plane, "status", "-o", "json").stdout)["items"]]
    labels = {"metadata": {"labels": {"team": name}}}
    plane.request("PATCH", f"{JOBS}/{name}", labels, content_type="application/merge-patch+json")
    chosen = ej(plane, "status", "-l", f"team={name}", "-A", "-o", "name")
    assert chosen.stdout == f"elasticjob.elasticjob.io/{name}\n"
    done = ej(plane, "status", "-n", "empty")
    assert done.stderr == "There is no ElasticJob in the namespace empty; -A looks in all.\n"


def test_kubectls_flags_name_the_cluster_and_who_asks(plane: ControlPlane, tmp_path: Path) -> None:
    name = new_job(plane)
    (tmp_path / "config").write_text("")
    token = json.loads(plane.kubeconfig.read_text())["users"][0]["user"]["token"]
    where = ["--server", plane.server, "--certificate-authority", str(plane.authority), "--token", token]

    def asked(*words: str) -> Result:
        return CliRunner().invoke(cli, [*where, *words], env={"KUBECONFIG": str(tmp_path / "config")})

    assert name in asked("status").stdout
    assert name in asked("status", "--as", "jane", "--as-group", "system:masters").stdout
    refused = asked("status", "--as", "jane")
    assert (refused.exit_code, 'User "jane" cannot list resource "elasticjobs"' in refused.stderr) == (1, True)
    assert asked("status", "--insecure-skip-tls-verify", "--request-timeout", "20s").exit_code == 0


def test_a_cluster_without_the_crds_is_told(monkeypatch: pytest.MonkeyPatch, plane: ControlPlane) -> None:
    monkeypatch.setattr(paths, "JOBS", paths.JOBS._replace(group="none.example.com"))
    done = ej(plane, "status")
    assert (done.exit_code, done.stderr) == (
        3,
        "error: the cluster has no ElasticJobs: install the chart, or choose another --context\n",
    )


def test_an_api_server_that_is_away(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "away", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "none"}}],
        "contexts": [{"name": "away", "context": {"cluster": "away", "user": "me"}}],
        "current-context": "away",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    done = CliRunner().invoke(cli, ["why", "digits", "--kubeconfig", str(path)])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the API server does not answer: ")


def test_a_kubeconfig_without_that_context(plane: ControlPlane) -> None:
    done = ej(plane, "why", "digits", "--context", "tomorrow")
    assert done.exit_code == 1
    assert "error: the kubeconfig cannot be used: " in done.stderr


def test_run_and_what_the_api_server_says_of_it(plane: ControlPlane) -> None:
    name = f"job-{secrets.token_hex(3)}"
    words = ["run", name, "--image", "train:1", "--replicas", "2"]
    printed = yaml.safe_load(ej(plane, *words, "--dry-run=server", "--", "train.py").stdout)
    assert printed["spec"]["template"]["spec"]["containers"][0]["command"] == ["torchrun", "train.py"]
    assert ej(plane, *words, "--", "train.py").stdout == f"elasticjob.elasticjob.io/{name} created\n"
    assert plane.request("GET", f"{JOBS}/{name}")["spec"]["replicas"] == 2
    assert ej(plane, "run", f"{name}-2", *words[2:], "-o", "name", "--", "train.py").stdout == (
        f"elasticjob.elasticjob.io/{name}-2\n"
    )
    made = json.loads(ej(plane, "run", f"{name}-3", *words[2:], "-o", "json", "--", "train.py").stdout)
    assert made["metadata"]["uid"] == plane.request("GET", f"{JOBS}/{name}-3")["metadata"]["uid"]
    assert "managedFields" not in made["metadata"]
    wrong = ej(plane, "run", name, "--image", "train:1", "--min-replicas", "2", "--", "train.py")
    assert wrong.exit_code == 1
    assert "replicas 1 is below minReplicas 2" in wrong.stderr


def test_scale_and_suspend_without_waiting(plane: ControlPlane) -> None:
    name = new_job(plane)
    done = ej(plane, "scale", name, "3", "--no-wait")
    follows = "What follows: 2 pods are made; round 1, which is forming, waits"
    assert done.stdout.startswith(f"spec.replicas of {name} is 3 now, and was 1. {follows}")
    assert plane.request("GET", f"{JOBS}/{name}")["spec"]["replicas"] == 3
    ej(plane, "suspend", name, "--no-wait")
    assert plane.request("GET", f"{JOBS}/{name}")["spec"]["suspend"] is True
    assert "It is suspended" in ej(plane, "scale", name, "2").stdout
    ej(plane, "resume", name, "--no-wait")
    assert plane.request("GET", f"{JOBS}/{name}")["spec"]["suspend"] is False


def test_a_wait_that_is_too_long_ends_with_why(plane: ControlPlane) -> None:
    name = new_job(plane)
    done = ej(plane, "scale", name, "2", "--timeout", "0.1", "--operator", "default/nobody")
    assert done.exit_code == 4
    assert "error: waited 0.1 s for a round of 2 workers; what was asked for stays." in done.stderr
    assert "workers 0 and 1, which have no pod yet" in done.stderr


def test_names_are_completed(plane: ControlPlane) -> None:
    name = new_job(plane)
    words: dict[str, Any] = {
        "COMP_WORDS": f"kubectl-elasticjob status --kubeconfig {plane.kubeconfig} {name[:6]}",
        "COMP_CWORD": "4",
    }
    done = CliRunner().invoke(
        cli,
        prog_name="kubectl-elasticjob",
        complete_var="_KUBECTL_ELASTICJOB_COMPLETE",
        env=words | {"_KUBECTL_ELASTICJOB_COMPLETE": "bash_complete"},
    )
    assert f"plain,{name}" in done.stdout
