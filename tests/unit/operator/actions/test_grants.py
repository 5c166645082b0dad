"""The access of a job's workers: made, kept as it should be, never taken from others. In virtual time."""

import asyncio
from copy import deepcopy
from typing import Any, cast

import pytest

from elasticjob.api import ElasticJobSpec
from elasticjob_operator.actions import grants as grants_module
from elasticjob_operator.actions.grants import REFUSED_SECONDS, SOON_SECONDS, Grants
from elasticjob_operator.cluster.client import ApiError, Busy, Conflict, Forbidden, NotFound
from elasticjob_operator.job.drain import Budget
from elasticjob_operator.job.outcome import Done, Retry
from support.operator_objects import JOB_UID, Object, job

pytestmark = pytest.mark.looptime

KINDS = ("serviceaccounts", "roles", "rolebindings", "poddisruptionbudgets")
CLOSED = Budget.CLOSED
BUDGET, WELL = "poddisruptionbudgets/digits-worker", 10.0


class Server:
    """Objects by `kind/name`, as an API server keeps them."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.asked: list[str] = []
        self.events: list[str] = []
        self.refuses: dict[str, Exception] = {}

    async def request(self, method: str, path: str, body: Object | None = None) -> Object:
        kind, _, name = path.partition("/ml/")[2].partition("/")
        key = f"{kind}/{name or (body or {})['metadata']['name']}"
        self.asked.append(f"{method} {kind}")
        if error := self.refuses.get(f"{method} {kind}"):
            raise error
        if method == "POST":
            if key in self.objects:
                raise Conflict(409, "AlreadyExists")
            assert body is not None
            self.objects[key] = deepcopy(body)
            self.objects[key]["metadata"]["uid"] = f"{key} {len(self.asked)}"
        elif key not in self.objects:
            raise NotFound(404, "not found")
        elif method == "PUT":
            assert body is not None
            assert body.get("roleRef") == self.objects[key].get("roleRef"), "immutable"
            self.objects[key] = deepcopy(body)
        return deepcopy(self.objects[key])

    async def delete(self, path: str, uid: str) -> None:
        kind, _, name = path.partition("/ml/")[2].partition("/")
        self.asked.append(f"DELETE {kind}")
        found = self.objects[f"{kind}/{name}"]
        assert found["metadata"]["uid"] == uid
        if "finalizers" in found["metadata"]:
            found["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        else:
            del self.objects[f"{kind}/{name}"]

    def announce(self, _: Object, reason: str, message: str, *, warning: bool = False) -> None:
        assert warning
        self.events.append(f"{reason}: {message}")

    def owners(self) -> set[str]:
        return {one["metadata"]["ownerReferences"][0]["uid"] for one in self.objects.values()}

    def writes(self) -> list[str]:
        return [one for one in self.asked if not one.startswith("GET")]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(grants_module, "time", _Loop)
    return Server()


class _Loop:
    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


def grants(server: Server) -> Grants:
    return Grants(cast(Any, server), cast(Any, server), network_policy=False)


def spec(**pod: Any) -> ElasticJobSpec:
    body = job()["spec"]
    body["template"]["spec"] |= pod
    return ElasticJobSpec.parse(body)


async def given(server: Server, uid: str = JOB_UID) -> Grants:
    made, body = grants(server), job()
    body["metadata"]["uid"] = uid
    assert await made.give(body, spec(), within=WELL, budget=CLOSED) == Done()
    return made


async def test_it_makes_what_is_missing_and_looks_no_more_for_a_while(server: Server) -> None:
    made = await given(server)
    assert sorted(server.objects) == sorted(f"{kind}/digits-worker" for kind in KINDS)
    server.asked.clear()
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Done()
    assert server.asked == []


async def test_the_budget_opens_and_closes_at_once(server: Server) -> None:
    made = await given(server)
    seen = []
    for budget in (Budget.CLOSED, Budget.OPEN, Budget.OPEN, Budget.CLOSED):
        assert await made.give(job(), spec(), within=WELL, budget=budget) == Done()
        seen.append(server.objects[BUDGET]["spec"]["minAvailable"] == 0)
    assert seen == [False, True, True, False]


async def test_a_budget_that_is_not_to_be_is_not_made_and_the_jobs_own_is_deleted(server: Server) -> None:
    made = await given(server)
    for access in (True, False):  # before the job's end and after
        server.asked.clear()
        assert await made.give(job(), spec(), within=-1, budget=Budget.NONE, access=access) == Done()
        assert BUDGET not in server.objects
        assert ("GET roles" in server.asked) is access
    assert server.writes() == []
    await made.give(job(), spec(), within=WELL, budget=CLOSED)
    assert BUDGET in server.objects


async def test_a_users_own_budget_of_that_name_stays_where_there_is_to_be_none(server: Server) -> None:
    server.objects[BUDGET] = {"kind": "theirs", "metadata": {"name": "digits-worker", "uid": "x"}, "spec": {}}
    assert await grants(server).give(job(), spec(), within=WELL, budget=Budget.NONE) == Done()
    assert BUDGET in server.objects


async def test_a_budget_that_cannot_be_deleted_is_told(server: Server) -> None:
    made = grants(server)
    server.refuses["GET poddisruptionbudgets"] = Forbidden(403, "no right")
    await made.give(job(), spec(), within=WELL, budget=Budget.NONE)
    assert made.problem == "the PodDisruptionBudget digits-worker, which is not to be, cannot be deleted: no right"


async def test_what_an_earlier_job_of_the_name_left_is_replaced(server: Server) -> None:
    await given(server, "the former job's uid")
    await given(server)
    assert server.owners() == {JOB_UID}
    assert len(server.objects) == len(KINDS)


async def test_an_object_on_its_way_out_is_waited_for(server: Server) -> None:
    await given(server, "the former job's uid")
    role = server.objects["roles/digits-worker"]
    role["metadata"]["finalizers"] = ["example.com/slow"]
    made = grants(server)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Retry(SOON_SECONDS)
    await asyncio.sleep(SOON_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Retry(SOON_SECONDS)
    assert made.problem is None
    del server.objects["roles/digits-worker"]
    await asyncio.sleep(SOON_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Done()
    assert server.owners() == {JOB_UID}


async def test_an_object_that_does_not_go_is_named(server: Server) -> None:
    await given(server)
    server.objects["roles/digits-worker"]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    made = grants(server)
    await made.give(job(), spec(), within=WELL, budget=CLOSED)
    await asyncio.sleep(grants_module.GOING_SECONDS)
    await made.give(job(), spec(), within=WELL, budget=CLOSED)
    assert made.problem == "the Role digits-worker is being deleted and does not go: see its metadata.finalizers"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_somebody_deletes_is_made_again(server: Server, kind: str) -> None:
    made = await given(server)
    del server.objects[f"{kind}/digits-worker"]
    await asyncio.sleep(WELL)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Done()
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
async def test_what_somebody_edits_is_mended(server: Server, kind: str, change: Object) -> None:
    made = await given(server)
    before = deepcopy(server.objects)
    server.objects[f"{kind}/digits-worker"] |= change
    await asyncio.sleep(WELL)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Done()
    for key, body in before.items():
        del body["metadata"]["uid"], server.objects[key]["metadata"]["uid"]
    assert server.objects == before


async def test_a_changed_service_account_is_bound_at_once(server: Server) -> None:
    made = await given(server)
    assert await made.give(job(), spec(serviceAccountName="theirs"), within=WELL, budget=CLOSED) == Done()
    (subject,) = server.objects["rolebindings/digits-worker"]["subjects"]
    assert subject["name"] == "theirs"


async def test_what_an_orphaning_deletion_left_becomes_the_new_jobs(server: Server) -> None:
    await given(server)
    for body in server.objects.values():
        del body["metadata"]["ownerReferences"]
    made = await given(server)
    assert made.problem is None
    owners = [body["metadata"]["ownerReferences"][0]["uid"] for body in server.objects.values()]
    assert owners == [JOB_UID] * len(KINDS)


async def test_what_an_orphaning_deletion_left_is_the_new_jobs_whatever_it_says(server: Server) -> None:
    """As of a job that let its pods be evicted, or of another version of the operator."""
    await given(server)
    for body in server.objects.values():
        del body["metadata"]["ownerReferences"]
    server.objects["roles/digits-worker"]["rules"] = []
    server.objects["poddisruptionbudgets/digits-worker"]["spec"]["minAvailable"] = 0
    await given(server)
    assert server.owners() == {JOB_UID}
    assert server.objects["roles/digits-worker"]["rules"] != []


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_nobodys_and_has_not_the_jobs_label_stays_and_is_told(server: Server, kind: str) -> None:
    """Whatever it says: any account that mounts no token says the same."""
    await given(server)
    theirs = server.objects[f"{kind}/digits-worker"]
    theirs["metadata"] = {"name": "digits-worker", "uid": "x", "annotations": {"example.com/identity": "train"}}
    before = deepcopy(theirs)
    made = grants(server)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Retry(SOON_SECONDS)
    assert server.objects[f"{kind}/digits-worker"] == before
    assert made.problem is not None
    assert made.problem.endswith("exists and is not this job's: delete it, or give the job another name")


async def test_what_an_earlier_version_made_without_the_label_gets_it_once(server: Server) -> None:
    await given(server)
    for body in server.objects.values():
        del body["metadata"]["labels"]
    server.objects["roles/digits-worker"]["metadata"]["labels"] = {"team": "ml"}
    server.asked.clear()
    made = await given(server)
    assert server.writes() == [f"PUT {kind}" for kind in KINDS]
    assert all(body["metadata"]["labels"]["elasticjob.io/job"] == "digits" for body in server.objects.values())
    assert server.objects["roles/digits-worker"]["metadata"]["labels"]["team"] == "ml"
    assert server.owners() == {JOB_UID}
    server.asked.clear()
    await asyncio.sleep(WELL)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Done()
    assert server.writes() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_the_jobs_stays_and_is_told_once(server: Server, kind: str) -> None:
    foreign = {"kind": "theirs", "metadata": {"name": "digits-worker", "uid": "x"}}
    server.objects[f"{kind}/digits-worker"] = deepcopy(foreign)
    made = grants(server)
    # until then the status has told it
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Retry(SOON_SECONDS)
    await asyncio.sleep(SOON_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Retry(REFUSED_SECONDS)
    assert server.objects[f"{kind}/digits-worker"] == foreign
    assert made.problem is not None
    assert made.problem.endswith("exists and is not this job's: delete it, or give the job another name")
    assert server.events == [f"AccessRefused: {made.problem}"]

    del server.objects[f"{kind}/digits-worker"]
    await asyncio.sleep(REFUSED_SECONDS)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Done()
    assert made.problem is None


async def test_a_refusal_of_the_api_server_is_told(server: Server) -> None:
    server.refuses["POST roles"] = Forbidden(403, "exceeded quota: few-roles")
    made = grants(server)
    assert await made.give(job(), spec(), within=WELL, budget=CLOSED) == Retry(SOON_SECONDS)
    assert made.problem == ("the Role digits-worker, which the workers need, cannot be had: exceeded quota: few-roles")


async def test_a_busy_api_server_is_no_answer(server: Server) -> None:
    made = await given(server)
    server.refuses["PUT rolebindings"] = Busy(429, "too many requests")
    for _ in range(2):
        with pytest.raises(ApiError, match="too many"):
            await made.give(job(), spec(serviceAccountName="theirs"), within=WELL, budget=CLOSED)
    assert made.problem is None


async def test_the_jobs_account_has_the_pull_secrets_of_the_namespaces_own(server: Server) -> None:
    default: Object = {"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "registry"}]}
    server.objects["serviceaccounts/default"] = default
    made = grants(server)
    await made.give(job(), spec(), within=WELL, budget=CLOSED)
    account = server.objects["serviceaccounts/digits-worker"]
    assert account["imagePullSecrets"] == [{"name": "registry"}]

    account["imagePullSecrets"].insert(0, {"name": "of-a-controller"})
    default["imagePullSecrets"] = [{"name": "another"}]
    await asyncio.sleep(WELL)
    await made.give(job(), spec(), within=WELL, budget=CLOSED)
    found = [one["name"] for one in server.objects["serviceaccounts/digits-worker"]["imagePullSecrets"]]
    assert found == ["of-a-controller", "registry", "another"]
