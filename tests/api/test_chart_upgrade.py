# SPDX-License-Identifier: Apache-2.0
"""From the last version's chart to this one's and back, object by object, with a job in a round: what an API server
would refuse of it (a selector or a role reference that has changed, a right that is not given) is refused here."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from api import chart, test_crd_upgrade
from api.operators import JOBS, Operators, Witness
from api.test_last_version import LAST, Story, looks_again, written  # noqa: F401 - a fixture
from elasticjob.objects import Object
from support import ControlPlane
from support.control_plane import Refused

CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "FlowSchema", "PriorityLevelConfiguration")


def path_of(body: Object) -> str:
    """Of the collection."""
    version, kind = body["apiVersion"], body["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    everywhere = kind in CLUSTER_WIDE or kind.startswith("ValidatingAdmission")
    return f"{root}/{'' if everywhere else f'namespaces/{chart.NAMESPACE}/'}{plural.lower()}"


def key_of(body: Object) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


class Release:
    """What helm does with a chart's objects, without its own store."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane, self._there = plane, dict[tuple[str, str], Object]()

    def become(self, objects: list[Object]) -> None:
        wanted = {key_of(body): body for body in objects}
        for key, body in wanted.items():
            path = path_of(body)
            if key in self._there:
                query = "fieldManager=helm&force=true&fieldValidation=Strict"
                content = yaml.safe_dump(body).encode()
                self._plane.request(
                    "PATCH", f"{path}/{key[1]}?{query}", content, content_type="application/apply-patch+yaml"
                )
            else:
                self._plane.request("POST", f"{path}?fieldManager=helm&fieldValidation=Strict", body)
        for key in [key for key in self._there if key not in wanted]:
            self._remove(self._there[key])
        self._there = wanted

    def _remove(self, body: Object) -> None:
        if body["metadata"].get("annotations", {}).get("helm.sh/resource-policy") != "keep":
            self._plane.request("DELETE", f"{path_of(body)}/{body['metadata']['name']}")


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """One where the last version's CRDs are installed."""
    with ControlPlane() as own:
        own.install_crds(*sorted(LAST.glob("elastic*.yaml")))
        own.request("POST", "/api/v1/namespaces", {"metadata": {"name": chart.NAMESPACE}})
        yield own


account = test_crd_upgrade.account


@pytest.fixture
async def operators(plane: ControlPlane) -> AsyncIterator[Operators]:
    configuration = Configuration()
    await config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
    kube = Witness.of(configuration)
    kube.asked = []
    yield Operators(kube)
    await kube.close()


def this_chart() -> list[Object]:
    """Without its hooks, which are no part of a release."""
    return chart.render("--no-hooks")


async def test_a_round_outlives_upgrade_rollback_and_uninstall(
    plane: ControlPlane, account: Path, operators: Operators
) -> None:
    last: list[Any] = [body for body in yaml.safe_load_all((LAST / "chart.yaml").read_text()) if body]
    release = Release(plane)
    release.become(last)
    story = Story(plane, await operators.lead())
    await story.start()
    story.put_record(written()["records"][0])
    formed = (await story.come_to("Formed"))["rendezvous"]
    uids = crds(plane)

    done = test_crd_upgrade.run(account, chart.CHART / "crds")
    assert done.returncode == 0, done.stderr
    release.become(this_chart())
    assert same(formed, await still(story, operators)) == formed
    release.become(last)
    assert same(formed, await still(story, operators)) == formed
    release.become([])

    assert crds(plane) == uids
    job = plane.request("GET", f"{JOBS}/{story.job}")
    assert same(formed, job["status"]) == formed
    kept = plane.request("GET", f"/api/v1/namespaces/{chart.NAMESPACE}/configmaps")["items"]
    assert "elasticjob-crds-and-jobs-are-kept" in {one["metadata"]["name"] for one in kept}
    with pytest.raises(Refused) as gone:
        plane.request("GET", f"/apis/apps/v1/namespaces/{chart.NAMESPACE}/deployments/{chart.OPERATOR}")
    assert gone.value.code == 404


async def still(story: Story, operators: Operators) -> Object:
    """The job's status when a new leader has looked at it."""
    story.leader = await operators.lead()
    return await story.come_to("Formed")


def same(before: Object, status: Object) -> Object:
    """Of a later rendezvous what the earlier one had: the new CRDs may add fields to it, and change none."""
    return {name: value for name, value in status["rendezvous"].items() if name in before}


def crds(plane: ControlPlane) -> set[str]:
    return {one["metadata"]["uid"] for one in plane.request("GET", test_crd_upgrade.CRDS)["items"]}
