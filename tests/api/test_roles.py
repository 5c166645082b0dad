# SPDX-License-Identifier: Apache-2.0
"""What the chart's roles for people let them do. A controller, which is not here, adds them to Kubernetes' own."""

import secrets

import pytest

from api import chart
from support import ControlPlane
from support.control_plane import Refused

RBAC = "rbac.authorization.k8s.io"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{chart.NAMESPACE}/leases"
JOBS = f"/apis/elasticjob.io/v1alpha1/namespaces/{chart.NAMESPACE}/elasticjobs"


def person(plane: ControlPlane, role: str) -> str:
    """The token of somebody who has that ClusterRole of the chart in the release's namespace."""
    name, core = f"person-{secrets.token_hex(3)}", f"/api/v1/namespaces/{chart.NAMESPACE}"
    plane.request("POST", f"{core}/serviceaccounts", {"metadata": {"name": name}})
    body = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": chart.NAMESPACE}],
    }
    plane.request("POST", f"/apis/{RBAC}/v1/namespaces/{chart.NAMESPACE}/rolebindings", body)
    token = chart.token(plane, chart.NAMESPACE, name)
    chart.wait_for_right(plane, token, "list", "elasticjobs", "elasticjob.io", chart.NAMESPACE)
    return token


def test_whoever_may_view_sees_whether_an_operator_leads(plane: ControlPlane) -> None:
    """`kubectl elasticjob` tells by it that none does."""
    chart.install(plane, "ClusterRole")
    token = person(plane, "elasticjob-view")
    with pytest.raises(Refused) as nobody_leads:
        plane.request("GET", f"{LEASES}/{chart.OPERATOR}", token=token)
    assert nobody_leads.value.code == 404
    with pytest.raises(Refused) as of_others:
        plane.request("GET", f"{LEASES}/another", token=token)
    assert of_others.value.code == 403
    assert plane.request("GET", JOBS, token=token)["items"] == []
    with pytest.raises(Refused) as changed:
        plane.request("DELETE", f"{LEASES}/{chart.OPERATOR}", token=token)
    assert changed.value.code == 403


def test_roles_are_added_to_those_that_people_have() -> None:
    """Whoever has admin or edit has view as well."""
    labels = {body["metadata"]["name"]: body["metadata"]["labels"] for body in chart.render()}
    added = f"{RBAC}/aggregate-to-"
    given = {name: {key for key in of if key.startswith(added)} for name, of in labels.items()}
    assert given["elasticjob-view"] == {f"{added}view"}
    assert given["elasticjob-edit"] == {f"{added}edit", f"{added}admin"}
