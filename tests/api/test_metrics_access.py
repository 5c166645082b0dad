# SPDX-License-Identifier: Apache-2.0
"""Who may read the metrics, as a real API server judges it, with exactly the rights that the chart gives."""

import secrets
from collections.abc import AsyncIterator

import aiohttp
import pytest
from kubernetes.aio.client import Configuration

from api import chart
from elasticjob.kube.errors import Forbidden
from elasticjob_operator import certificate, health
from elasticjob_operator.cluster import reviews
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.reviews import Reviews, TokenVerdict
from elasticjob_operator.metrics_server import MetricsServer
from support import ControlPlane, waiting

SECURE = ("--set", "metrics.secure.enabled=true")
READER = "elasticjob-metrics-reader"
SECONDS = 60.0  # the API server itself holds whom it has known by a token for ten seconds


@pytest.fixture
async def kube(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kube]:
    """The operator's service account with the chart's rights."""
    chart.install(plane, "ClusterRole", "ClusterRoleBinding", options=SECURE)
    for name in ("GRANTED_SECONDS", "REFUSED_SECONDS"):
        monkeypatch.setattr(reviews, name, 0.0)
    token = chart.token(plane, chart.NAMESPACE, chart.OPERATOR)
    for plural, group in (("tokenreviews", "authentication.k8s.io"), ("subjectaccessreviews", "authorization.k8s.io")):
        chart.wait_for_right(plane, token, "create", plural, group)
    kube = as_account(plane, chart.NAMESPACE, chart.OPERATOR)
    yield kube
    await kube.close()


def as_account(plane: ControlPlane, namespace: str, name: str) -> Kube:
    configuration = Configuration(host=plane.server)
    configuration.ssl_ca_cert = str(plane.authority)
    configuration.api_key = {"BearerToken": chart.token(plane, namespace, name)}
    configuration.api_key_prefix = {"BearerToken": "Bearer"}
    return Kube.of(configuration)


def new_account(plane: ControlPlane) -> str:
    name = f"scraper-{secrets.token_hex(3)}"
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    return name


def let_read(plane: ControlPlane, account: str) -> str:
    """Bind the chart's ClusterRole; returns the binding's path."""
    group = "rbac.authorization.k8s.io"
    path = f"/apis/{group}/v1/clusterrolebindings"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": READER}
    plane.request("POST", path, {"metadata": {"name": account}, "roleRef": role, "subjects": [subject]})
    return f"{path}/{account}"


async def until(judge: Reviews, token: str, verdict: TokenVerdict) -> None:
    """The API server's authorizer learns of a binding by a watch of its own."""

    async def judged() -> bool:
        return await judge.judge(token) is verdict

    await waiting.until(judged, f"the verdict {verdict}", SECONDS, pause=0.05)


async def test_the_right_comes_and_goes_with_the_binding(kube: Kube, plane: ControlPlane) -> None:
    judge, account = Reviews(kube), new_account(plane)
    token = chart.token(plane, "default", account)
    assert await judge.judge(token) is TokenVerdict.FORBIDDEN
    binding = let_read(plane, account)
    await until(judge, token, TokenVerdict.GRANTED)
    plane.request("DELETE", binding)
    await until(judge, token, TokenVerdict.FORBIDDEN)
    assert await judge.judge(token[:-4] + "AAAA") is TokenVerdict.UNKNOWN
    assert await judge.judge("no token at all") is TokenVerdict.UNKNOWN
    assert await judge.judge("x" * 15_000) is TokenVerdict.UNKNOWN
    plane.request("DELETE", f"/api/v1/namespaces/default/serviceaccounts/{account}")
    await until(judge, token, TokenVerdict.UNKNOWN)


async def test_a_scraper_gets_the_metrics(kube: Kube, plane: ControlPlane) -> None:
    account = new_account(plane)
    let_read(plane, account)
    token = chart.token(plane, "default", account)
    await until(Reviews(kube), token, TokenVerdict.GRANTED)
    server = MetricsServer(health.metrics_page(), Reviews(kube).judge, certificate.contexts(""))
    await server.listen(0)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{server.port}") as http:
        for shown, status in ((token, 200), (chart.token(plane, "default", new_account(plane)), 403), ("x", 401)):
            async with http.get("/metrics", headers={"Authorization": f"Bearer {shown}"}, ssl=False) as response:
                assert response.status == status
                assert ("elasticjob_leader" in await response.text()) is (status == 200)
    server.close()


async def test_who_may_make_no_reviews_is_no_judge(plane: ControlPlane) -> None:
    """As the operator is where the chart's value is off."""
    kube = as_account(plane, "default", new_account(plane))
    with pytest.raises(Forbidden, match="tokenreviews"):
        await Reviews(kube).judge("x")
    await kube.close()
