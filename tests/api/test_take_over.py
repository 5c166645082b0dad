"""What a new leader asks the API server for the jobs of the leader before it."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from elasticjob.api import API_VERSION
from elasticjob.testing import ControlPlane
from elasticjob_operator import kube as kube_module
from elasticjob_operator import reconciler as reconciler_module
from elasticjob_operator.cache import Cache, Key
from elasticjob_operator.events import Announcer
from elasticjob_operator.kube import ApiError, Kube, Object
from elasticjob_operator.leader import Leadership
from elasticjob_operator.pods import SidecarImage
from elasticjob_operator.reconciler import Reconciler

JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
PODS = "/api/v1/namespaces/default/pods"
BUSY_SECONDS = 30.0
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"


class Witness(Kube):
    """Keeps what is asked, as `POST pods`, `POST pods?dryRun` or `GET elasticjobs`."""

    asked: list[str]

    async def request(
        self, method: str, path: str, body: Any = None, query: Any = None, *rest: Any, **more: Any
    ) -> Object:
        self.asked.append(f"{method} {path.rpartition('/')[2]}" + ("?dryRun" if "dryRun" in (query or {}) else ""))
        async with asyncio.timeout(BUSY_SECONDS):
            while True:
                try:
                    return await super().request(method, path, body, query, *rest, **more)
                except ApiError as error:
                    if error.status != 429:  # the API server makes a kind's storage anew when its CRD has changed
                        raise
                await asyncio.sleep(0.1)


class Leader:
    """An operator without kopf, from its term to the release of its Lease: `see` stands for a watch's event."""

    def __init__(self, kube: Witness, leadership: Leadership) -> None:
        self.kube, self.leadership = kube, leadership
        self._cache = Cache()
        image, announcer = SidecarImage("none", "Always"), Announcer(kube, "test")
        self._reconciler = Reconciler(kube, self._cache, leadership, announcer, image)
        kube.asked = []

    async def see(self, name: str) -> Object:
        """Work on the job once; returns its status."""
        key = Key("default", name)
        self._cache.note_job(await Kube.job(self.kube, *key))
        await self._reconciler.reconcile(key)
        status: Object = (await self.kube.job(*key))["status"]
        return status


class Operators:
    """Leaders, one after the other."""

    def __init__(self, kube: Witness) -> None:
        self._kube, self._lease = kube, f"lease-{secrets.token_hex(3)}"
        self._last: Leadership | None = None

    async def lead(self) -> Leader:
        if self._last is not None:
            await self._last.release()
        self._last = Leadership(self._kube, "default", self._lease, "test")
        await self._last.acquire()
        return Leader(self._kube, self._last)


@pytest.fixture
async def operators(with_crds: ControlPlane) -> AsyncIterator[Operators]:
    configuration = Configuration()
    await config.load_kube_config(str(with_crds.kubeconfig), client_configuration=configuration)
    kube = Witness(ApiClient(configuration))
    kube.asked = []
    yield Operators(kube)
    await kube.close()


@pytest.fixture
def plane(with_crds: ControlPlane) -> ControlPlane:
    return with_crds


def new_job(plane: ControlPlane, **pod: Any) -> str:
    containers = [{"name": "trainer", "image": "train:1", "command": ["torchrun", "train.py"]}]
    spec = {"replicas": 1, "template": {"spec": {"containers": containers, **pod}}}
    name = f"job-{secrets.token_hex(3)}"
    plane.request(
        "POST", JOBS, {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": name}, "spec": spec}
    )
    return name


def spoil(plane: ControlPlane, name: str) -> None:
    """Suspend the job, without which nothing of it can be changed, and give it a template that cannot work."""
    for change in ({"suspend": True}, {"template": {"spec": {"hostNetwork": True}}}):
        plane.request("PATCH", f"{JOBS}/{name}", {"spec": change}, content_type="application/merge-patch+json")


def valid(status: Object) -> str:
    return str(next(one["status"] for one in status["conditions"] if one["type"] == "TemplateValid"))


async def test_what_a_leader_has_judged_the_next_does_not_ask_again(operators: Operators, plane: ControlPlane) -> None:
    names = [new_job(plane), new_job(plane)]
    first = await operators.lead()
    for name in names:
        assert valid(await first.see(name)) == "True"
    assert first.kube.asked.count("POST pods?dryRun") == 4

    second = await operators.lead()
    told = [await second.see(name) for name in names]
    assert [(valid(status), status["term"]) for status in told] == [("True", second.leadership.term)] * 2
    assert [one for one in second.kube.asked if one.startswith("POST")] == []
    # one listing for both jobs, not one for each
    assert [second.kube.asked.count(f"GET {kind}") for kind in ("elasticjobs", "pods", "elasticworkers")] == [1, 1, 1]


async def test_an_invalid_template_is_judged_again(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane, hostNetwork=True)
    assert valid(await (await operators.lead()).see(name)) == "False"
    second = await operators.lead()
    assert valid(await second.see(name)) == "False"
    assert second.kube.asked.count("POST pods?dryRun") == 1
    assert "POST pods" not in second.kube.asked


async def test_a_template_changed_under_no_leader_is_judged(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane)
    assert valid(await (await operators.lead()).see(name)) == "True"
    spoil(plane, name)
    second = await operators.lead()
    assert valid(await second.see(name)) == "False"
    assert "POST pods?dryRun" in second.kube.asked


async def test_a_template_changed_under_the_new_leader_is_judged(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane)
    await (await operators.lead()).see(name)
    second = await operators.lead()
    assert valid(await second.see(name)) == "True"
    assert "POST pods?dryRun" not in second.kube.asked
    spoil(plane, name)
    assert valid(await second.see(name)) == "False"


async def test_a_leaders_first_pod_finds_its_access(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane)
    await (await operators.lead()).see(name)
    plane.request("DELETE", f"{ROLES}/{name}-worker")
    plane.request("DELETE", f"{PODS}/{name}-0-0?gracePeriodSeconds=0")

    second = await operators.lead()
    await second.see(name)
    assert second.kube.asked.count("POST pods") == 1
    assert second.kube.asked.index("POST roles") < second.kube.asked.index("POST pods")
    assert plane.request("GET", f"{ROLES}/{name}-worker")["rules"]


async def test_a_job_that_was_taken_over_is_soon_listed_alone_and_its_access_made(
    operators: Operators, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options may be other ones, and of what ended while it began to watch nobody told it."""
    name = new_job(plane)
    await (await operators.lead()).see(name)
    plane.request("DELETE", f"{ROLES}/{name}-worker")
    monkeypatch.setattr(reconciler_module, "SETTLE_SECONDS", 0.0)
    second = await operators.lead()
    await second.see(name)
    assert second.kube.asked.count("GET pods") == 2
    assert plane.request("GET", f"{ROLES}/{name}-worker")["rules"]
    assert "POST pods?dryRun" not in second.kube.asked


async def test_a_listing_of_many_pages_is_whole(
    operators: Operators, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {new_job(plane) for _ in range(3)}
    monkeypatch.setattr(kube_module, "PAGE", 1)
    leader = await operators.lead()
    listing = await leader.kube.jobs(None)
    assert names <= {job["metadata"]["name"] for job in listing.items}
    assert leader.kube.asked.count("GET elasticjobs") >= 3
    assert int(listing.version) > 0
