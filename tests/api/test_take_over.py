# SPDX-License-Identifier: Apache-2.0
"""What a new leader asks the API server for the jobs of the leader before it."""

from math import ceil

import pytest

from api.operators import JOBS, Operators, new_job
from elasticjob.objects import Object
from elasticjob_operator import memory as memory_module
from elasticjob_operator.cluster import client as kube_module
from support import ControlPlane

PODS = "/api/v1/namespaces/default/pods"
WORKERS = f"{JOBS.rpartition('/')[0]}/elasticworkers"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"


def spoil(plane: ControlPlane, name: str) -> None:
    """Suspend the job, without which nothing of it can be changed, and give it a template that cannot work."""
    for change in ({"suspend": True}, {"template": {"spec": {"hostNetwork": True}}}):
        plane.request("PATCH", f"{JOBS}/{name}", {"spec": change}, content_type="application/merge-patch+json")


def pages_of(plane: ControlPlane, path: str) -> int:
    """The requests that a listing of the kind takes, in all namespaces."""
    everywhere = path.replace("/namespaces/default", "")
    return max(1, ceil(len(plane.request("GET", everywhere)["items"]) / kube_module.PAGE))


def valid(status: Object) -> str:
    return str(next(one["status"] for one in status["conditions"] if one["type"] == "TemplateValid"))


async def test_what_a_leader_has_judged_the_next_does_not_ask_again(operators: Operators, plane: ControlPlane) -> None:
    names = [new_job(plane), new_job(plane)]
    first = await operators.lead()
    for name in names:
        assert valid(await first.see(name)) == "True"
    assert first.kube.asked.count("POST podtemplates?dryRun") == 4

    second = await operators.lead()
    told = [await second.see(name) for name in names]
    assert [(valid(status), status["term"]) for status in told] == [("True", second.leadership.term)] * 2
    assert [one for one in second.kube.asked if one.startswith("POST")] == []
    # one listing for both jobs, not one for each, in as many pages as the jobs of other tests need
    pages = [pages_of(plane, path) for path in (JOBS, PODS, WORKERS)]
    assert [second.kube.asked.count(f"GET {path.rpartition('/')[2]}") for path in (JOBS, PODS, WORKERS)] == pages


async def test_an_invalid_template_is_judged_again(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane, hostNetwork=True)
    assert valid(await (await operators.lead()).see(name)) == "False"
    second = await operators.lead()
    assert valid(await second.see(name)) == "False"
    assert second.kube.asked.count("POST podtemplates?dryRun") == 1
    assert "POST pods" not in second.kube.asked


async def test_a_template_changed_under_no_leader_is_judged(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane)
    assert valid(await (await operators.lead()).see(name)) == "True"
    spoil(plane, name)
    second = await operators.lead()
    assert valid(await second.see(name)) == "False"
    assert "POST podtemplates?dryRun" in second.kube.asked


async def test_a_template_changed_under_the_new_leader_is_judged(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane)
    await (await operators.lead()).see(name)
    second = await operators.lead()
    assert valid(await second.see(name)) == "True"
    assert "POST podtemplates?dryRun" not in second.kube.asked
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


async def test_the_access_of_a_job_that_was_taken_over_is_soon_looked_at(
    operators: Operators, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new leader's options may be other ones."""
    name = new_job(plane)
    await (await operators.lead()).see(name)
    plane.request("DELETE", f"{ROLES}/{name}-worker")
    monkeypatch.setattr(memory_module, "ACCESS_SECONDS", (0.0, 0.0))
    second = await operators.lead()
    await second.see(name)
    assert second.kube.asked.count("GET pods") == 1
    assert plane.request("GET", f"{ROLES}/{name}-worker")["rules"]
    assert "POST podtemplates?dryRun" not in second.kube.asked


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


async def test_the_api_server_keeps_who_wrote_which_field_of_a_job(operators: Operators, plane: ControlPlane) -> None:
    """The operator reads and keeps jobs without that, and so writes them."""
    name = new_job(plane)
    before = {one["manager"] for one in plane.request("GET", f"{JOBS}/{name}")["metadata"]["managedFields"]}
    await (await operators.lead()).see(name)
    found = plane.request("GET", f"{JOBS}/{name}")["metadata"]["managedFields"]
    assert before <= {one["manager"] for one in found}
    assert [one["subresource"] for one in found if "subresource" in one] == ["status"]
