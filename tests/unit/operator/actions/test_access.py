# SPDX-License-Identifier: Apache-2.0
"""The access of a job's workers: made, kept as it should be, never taken from others. In virtual time."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from elasticjob.api import ElasticJobSpec
from elasticjob.kube.errors import ApiError
from elasticjob_operator.actions import access as access_module
from elasticjob_operator.actions.access import REFUSED_SECONDS, SOON_SECONDS, UNKNOWN_SECONDS, WITHOUT_BUDGET, Access
from elasticjob_operator.job.evictions import Budget
from elasticjob_operator.job.outcome import Done, LookAgain, Retry
from simulation.calls import Call
from simulation.validity import Refusal
from support.operator_objects import JOB_UID, Object, job
from support.recording_server import Announcements, RecordingServer

pytestmark = pytest.mark.looptime

KINDS = ("serviceaccounts", "roles", "rolebindings", "poddisruptionbudgets")
CLOSED = Budget.CLOSED
BUDGET, WELL = "poddisruptionbudgets/digits-worker", 10.0


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> RecordingServer:
    monkeypatch.setattr(access_module, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
    return RecordingServer()


def access_of(server: RecordingServer, events: list[str] | None = None) -> Access:
    announcer: Any = Announcements() if events is None else events
    return Access(server.client(), announcer, network_policy=False)


def owners(server: RecordingServer) -> set[str]:
    return {one["metadata"]["ownerReferences"][0]["uid"] for one in server.objects.values()}


def told(server: RecordingServer) -> Object:
    """The objects, less what only the server writes."""
    found = dict(server.objects)
    for body in found.values():
        kept = ("name", "labels", "ownerReferences")
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key in kept}
    return found


def spec(**pod: Any) -> ElasticJobSpec:
    body = job()["spec"]
    body["template"]["spec"] |= pod
    return ElasticJobSpec.parse(body)


async def given(server: RecordingServer, uid: str = JOB_UID) -> Access:
    made, body = access_of(server), job()
    body["metadata"]["uid"] = uid
    assert await made.give(body, spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    return made


def waits(kind: str, seconds: float) -> Retry | LookAgain:
    """For what a pod needs, and for what it can do without."""
    return LookAgain(seconds) if kind == "poddisruptionbudgets" else Retry(seconds)


def problem_of(made: Access, kind: str) -> str:
    if kind != "poddisruptionbudgets":
        assert made.problem is not None
        return made.problem
    assert made.budget_problem is not None
    assert made.budget_problem.endswith(WITHOUT_BUDGET)
    return made.budget_problem.removesuffix(f"; {WITHOUT_BUDGET}")


async def test_it_makes_what_is_missing_and_looks_no_more_for_a_while(server: RecordingServer) -> None:
    made = await given(server)
    assert sorted(server.objects) == sorted(f"{kind}/digits-worker" for kind in KINDS)
    server.calls.clear()
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert server.asked == []


async def test_a_budget_waits_for_pods_and_the_access_is_not_looked_at_again_for_it(server: RecordingServer) -> None:
    made = access_of(server)
    assert await made.give(job(), spec(), within=WELL, budget=None, min_available=2) == Done()
    assert sorted(server.objects) == sorted(f"{kind}/digits-worker" for kind in KINDS[:-1])
    assert made.owes(CLOSED, 2)
    server.calls.clear()
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert server.asked == ["GET poddisruptionbudgets", "POST poddisruptionbudgets"]
    assert not made.owes(CLOSED, 2)
    assert made.owes(Budget.OPEN, 2), "as once the grace of a drain is over"


async def test_the_budget_opens_and_closes_at_once(server: RecordingServer) -> None:
    made = await given(server)
    seen = []
    for budget in (Budget.CLOSED, Budget.OPEN, Budget.OPEN, Budget.CLOSED):
        assert await made.give(job(), spec(), within=WELL, budget=budget, min_available=2) == Done()
        seen.append(server.objects[BUDGET]["spec"]["minAvailable"] == 0)
    assert seen == [False, True, True, False]


async def test_the_budget_follows_the_pods_at_once_and_the_access_is_not_looked_at_for_it(
    server: RecordingServer,
) -> None:
    made = await given(server)
    for pods in (2, 3, 1, 0):
        server.calls.clear()
        await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=pods)
        assert server.objects[BUDGET]["spec"]["minAvailable"] == pods
        assert server.writes() == ["PUT poddisruptionbudgets"] * (pods != 2)
        assert not any("roles" in one for one in server.asked)
        assert not made.owes(CLOSED, pods)
        assert made.owes(CLOSED, pods + 1)
        assert made.has_budget


async def test_the_first_look_keeps_the_larger_number_of_the_budget_and_tells_it(server: RecordingServer) -> None:
    """Nobody in a new leader knows since when fewer pods exist."""
    await given(server)
    successor = access_of(server)
    server.calls.clear()
    assert await successor.give(job(), spec(), within=WELL, budget=CLOSED, min_available=1) == Done()
    assert (server.objects[BUDGET]["spec"]["minAvailable"], successor.found, server.writes()) == (2, 2, [])
    assert not successor.owes(CLOSED, 2)
    assert await successor.give(job(), spec(), within=WELL, budget=CLOSED, min_available=1) == Done()
    assert (server.objects[BUDGET]["spec"]["minAvailable"], successor.found) == (1, 0), "it is known by now"


@pytest.mark.parametrize(("budget", "number", "written"), [(CLOSED, 3, 3), (Budget.OPEN, 1, 0)])
async def test_the_first_look_writes_a_larger_number_and_opens_the_budget(
    server: RecordingServer, budget: Budget, number: int, written: int
) -> None:
    await given(server)
    successor = access_of(server)
    assert await successor.give(job(), spec(), within=WELL, budget=budget, min_available=number) == Done()
    assert (server.objects[BUDGET]["spec"]["minAvailable"], successor.found) == (written, 0)


@pytest.mark.parametrize("edited", ["100%", None])
async def test_the_first_look_mends_what_is_no_number(server: RecordingServer, edited: str | None) -> None:
    await given(server)
    with server.objects.edited(BUDGET) as budget:
        budget["spec"]["minAvailable"] = edited
    assert await access_of(server).give(job(), spec(), within=WELL, budget=CLOSED, min_available=1) == Done()
    assert server.objects[BUDGET]["spec"]["minAvailable"] == 1


async def test_a_budget_that_another_leader_writes_meanwhile_is_not_overwritten(server: RecordingServer) -> None:
    made = await given(server)

    def another_writes_first(call: Call) -> None:
        if call.method == "PUT":
            with server.objects.edited(BUDGET) as budget:
                budget["spec"]["minAvailable"] = 8
            server.on_call.remove(another_writes_first)

    server.on_call.append(another_writes_first)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=1) == Retry(SOON_SECONDS)
    assert server.objects[BUDGET]["spec"]["minAvailable"] == 8


async def test_a_budget_counts_the_jobs_own_pods_alone(server: RecordingServer) -> None:
    """Of ready pods that an earlier job of the name has left as many of this job's might be evicted."""
    await given(server)
    labels = server.objects[BUDGET]["spec"]["selector"]["matchLabels"]
    assert labels == {"elasticjob.io/job": "digits", "elasticjob.io/job-uid": JOB_UID}


async def test_a_budget_that_is_not_to_be_is_not_made_and_the_jobs_own_is_deleted(server: RecordingServer) -> None:
    made = await given(server)
    for access in (True, False):  # before the job's end and after
        server.calls.clear()
        assert await made.give(job(), spec(), within=-1, budget=Budget.NONE, min_available=2, access=access) == Done()
        assert BUDGET not in server.objects
        assert ("GET roles" in server.asked) is access
    assert server.writes() == []
    await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2)
    assert BUDGET in server.objects


async def test_a_users_own_budget_of_that_name_stays_where_there_is_to_be_none(server: RecordingServer) -> None:
    server.objects[BUDGET] = {"kind": "theirs", "spec": {}}
    assert await access_of(server).give(job(), spec(), within=WELL, budget=Budget.NONE, min_available=2) == Done()
    assert BUDGET in server.objects


async def test_a_budget_that_cannot_be_deleted_is_told(server: RecordingServer) -> None:
    made = access_of(server)
    server.refuses["GET poddisruptionbudgets"] = Refusal(403, "Forbidden", "no right")
    assert await made.give(job(), spec(), within=WELL, budget=Budget.NONE, min_available=2) == LookAgain(SOON_SECONDS)
    sentence = "the PodDisruptionBudget digits-worker is unwanted and cannot be deleted: no right"
    assert (made.budget_problem, made.problem) == (sentence, None)


async def test_a_budget_that_is_refused_keeps_no_pod_from_being_made_and_is_told_once(server: RecordingServer) -> None:
    server.refuses["POST poddisruptionbudgets"] = Refusal(403, "Forbidden", "exceeded quota: no-budgets")
    events = Announcements()
    made = access_of(server, events)
    looks = [await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2)]
    await asyncio.sleep(SOON_SECONDS)
    looks.append(await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2))
    assert looks == [LookAgain(SOON_SECONDS), LookAgain(REFUSED_SECONDS)]
    why = f"the PodDisruptionBudget digits-worker cannot be had: exceeded quota: no-budgets; {WITHOUT_BUDGET}"
    assert (made.problem, made.budget_problem) == (None, why)
    assert events == [f"Warning BudgetRefused: {why}"]

    server.refuses.clear()
    await asyncio.sleep(REFUSED_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert BUDGET in server.objects
    assert made.budget_problem is None


async def test_no_pod_is_made_while_nobody_knows_whether_the_budget_keeps_it(server: RecordingServer) -> None:
    """A storm passes; a webhook that is away for budgets alone does not, and the job trains without one."""
    made = await given(server)
    server.refuses["PUT poddisruptionbudgets"] = Refusal(500, "InternalError", "etcdserver: leader changed")
    for _ in range(int(UNKNOWN_SECONDS)):
        assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=3) == Retry(SOON_SECONDS)
        assert made.budget_problem is None
        await asyncio.sleep(SOON_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=3) == LookAgain(SOON_SECONDS)
    assert made.budget_problem is not None
    assert "cannot be had: etcdserver: leader changed" in made.budget_problem
    server.refuses.clear()
    await asyncio.sleep(REFUSED_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=3) == Done()
    assert server.objects[BUDGET]["spec"]["minAvailable"] == 3
    assert made.budget_problem is None


async def test_what_an_earlier_job_of_the_name_left_is_replaced(server: RecordingServer) -> None:
    await given(server, "the former job's uid")
    await given(server)
    assert owners(server) == {JOB_UID}
    assert len(server.objects) == len(KINDS)


async def test_an_object_on_its_way_out_is_waited_for(server: RecordingServer) -> None:
    await given(server, "the former job's uid")
    with server.objects.edited("roles/digits-worker") as role:
        role["metadata"]["finalizers"] = ["example.com/slow"]
    made = access_of(server)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Retry(SOON_SECONDS)
    await asyncio.sleep(SOON_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Retry(SOON_SECONDS)
    assert made.problem is None
    del server.objects["roles/digits-worker"]
    await asyncio.sleep(SOON_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert owners(server) == {JOB_UID}


async def test_an_object_that_does_not_go_is_named(server: RecordingServer) -> None:
    await given(server)
    with server.objects.edited("roles/digits-worker") as role:
        role["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    made = access_of(server)
    await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2)
    await asyncio.sleep(access_module.DELETING_SECONDS)
    await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2)
    assert made.problem == "the Role digits-worker is being deleted and does not go: see its metadata.finalizers"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_somebody_deletes_is_made_again(server: RecordingServer, kind: str) -> None:
    made = await given(server)
    del server.objects[f"{kind}/digits-worker"]
    await asyncio.sleep(WELL)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert f"{kind}/digits-worker" in server.objects


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("serviceaccounts", {"automountServiceAccountToken": True}),
        ("roles", {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
        ("rolebindings", {"subjects": []}),
        ("rolebindings", {"roleRef": {"kind": "ClusterRole", "name": "admin"}}),
    ],
)
async def test_what_somebody_edits_is_mended(server: RecordingServer, kind: str, change: Object) -> None:
    made = await given(server)
    before = told(server)
    server.objects[f"{kind}/digits-worker"] |= change
    await asyncio.sleep(WELL)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert told(server) == before


async def test_a_changed_service_account_is_bound_at_once(server: RecordingServer) -> None:
    made = await given(server)
    assert (
        await made.give(job(), spec(serviceAccountName="theirs"), within=WELL, budget=CLOSED, min_available=2) == Done()
    )
    (subject,) = server.objects["rolebindings/digits-worker"]["subjects"]
    assert subject["name"] == "theirs"


async def test_what_an_orphaning_deletion_left_becomes_the_new_jobs(server: RecordingServer) -> None:
    await given(server)
    for body in server.objects.all_edited():
        del body["metadata"]["ownerReferences"]
    made = await given(server)
    assert made.problem is None
    assert (owners(server), len(server.objects)) == ({JOB_UID}, len(KINDS))


async def test_what_an_orphaning_deletion_left_is_the_new_jobs_whatever_it_says(server: RecordingServer) -> None:
    """As of a job that let its pods be evicted, or of another version of the operator."""
    await given(server)
    for body in server.objects.all_edited():
        del body["metadata"]["ownerReferences"]
    server.objects["roles/digits-worker"] |= {"rules": []}
    server.objects[BUDGET] |= {"spec": {"minAvailable": 0}}
    await given(server)
    assert owners(server) == {JOB_UID}
    assert server.objects["roles/digits-worker"]["rules"] != []


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_nobodys_and_has_not_the_jobs_label_stays_and_is_told(server: RecordingServer, kind: str) -> None:
    """Whatever it says: any account that mounts no token says the same."""
    await given(server)
    server.objects[f"{kind}/digits-worker"] |= {"metadata": {"annotations": {"example.com/identity": "train"}}}
    before = server.objects[f"{kind}/digits-worker"]
    made = access_of(server)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == waits(kind, SOON_SECONDS)
    assert server.objects[f"{kind}/digits-worker"] == before
    assert problem_of(made, kind).endswith("exists and is not this job's: delete it, or give the job another name")


async def test_what_an_earlier_version_made_without_the_label_gets_it_once(server: RecordingServer) -> None:
    await given(server)
    for body in server.objects.all_edited():
        del body["metadata"]["labels"]
    with server.objects.edited("roles/digits-worker") as role:
        role["metadata"]["labels"] = {"team": "ml"}
    server.calls.clear()
    made = await given(server)
    assert server.writes() == [f"PUT {kind}" for kind in KINDS]
    assert all(body["metadata"]["labels"]["elasticjob.io/job"] == "digits" for body in server.objects.values())
    assert server.objects["roles/digits-worker"]["metadata"]["labels"]["team"] == "ml"
    assert owners(server) == {JOB_UID}
    server.calls.clear()
    await asyncio.sleep(WELL)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert server.writes() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_the_jobs_stays_and_is_told_once(server: RecordingServer, kind: str) -> None:
    server.objects[f"{kind}/digits-worker"] = {"kind": "theirs"}
    foreign, events = server.objects[f"{kind}/digits-worker"], Announcements()
    made = access_of(server, events)
    # until then the status has told it
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == waits(kind, SOON_SECONDS)
    await asyncio.sleep(SOON_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == waits(kind, REFUSED_SECONDS)
    assert server.objects[f"{kind}/digits-worker"] == foreign
    assert problem_of(made, kind).endswith("exists and is not this job's: delete it, or give the job another name")
    reason = "AccessRefused" if made.problem else "BudgetRefused"
    assert events == [f"Warning {reason}: {made.problem or made.budget_problem}"]

    del server.objects[f"{kind}/digits-worker"]
    await asyncio.sleep(REFUSED_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Done()
    assert (made.problem, made.budget_problem) == (None, None)


async def test_a_refusal_of_the_api_server_is_told(server: RecordingServer) -> None:
    server.refuses["POST roles"] = Refusal(403, "Forbidden", "exceeded quota: few-roles")
    made = access_of(server)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2) == Retry(SOON_SECONDS)
    assert made.problem == ("the Role digits-worker, which the workers need, cannot be had: exceeded quota: few-roles")


async def test_a_busy_api_server_is_no_answer(server: RecordingServer) -> None:
    made = await given(server)
    server.refuses["PUT rolebindings"] = Refusal(429, "TooManyRequests", "too many requests")
    for _ in range(2):
        with pytest.raises(ApiError, match="too many"):
            await made.give(job(), spec(serviceAccountName="theirs"), within=WELL, budget=CLOSED, min_available=2)
    assert made.problem is None


async def test_the_jobs_account_has_the_pull_secrets_of_the_namespaces_own(server: RecordingServer) -> None:
    server.objects["serviceaccounts/default"] = {"imagePullSecrets": [{"name": "registry"}]}
    made = access_of(server)
    await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2)
    with server.objects.edited("serviceaccounts/digits-worker") as account:
        assert account["imagePullSecrets"] == [{"name": "registry"}]
        account["imagePullSecrets"].insert(0, {"name": "of-a-controller"})
    server.objects["serviceaccounts/default"] = {"imagePullSecrets": [{"name": "another"}]}
    await asyncio.sleep(WELL)
    await made.give(job(), spec(), within=WELL, budget=CLOSED, min_available=2)
    found = [one["name"] for one in server.objects["serviceaccounts/digits-worker"]["imagePullSecrets"]]
    assert found == ["of-a-controller", "registry", "another"]
