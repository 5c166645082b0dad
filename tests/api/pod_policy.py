# SPDX-License-Identifier: Apache-2.0
"""The chart's policies of pods in force, and users who try them."""

import secrets
from collections.abc import Sequence
from typing import Any

from api import chart
from support import ControlPlane
from support.control_plane import Refused
from support.waiting import wait_until

NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
MERGE = "application/merge-patch+json"
LABELS = {"elasticjob.io/job": "digits", "elasticjob.io/index": "1"}
SAID = "only who may write"  # in each of the policies' refusals


def pod(name: str, labels: dict[str, str], **spec: Any) -> Any:
    containers = [{"name": "trainer", "image": "none"}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers, **spec}}


def may(plane: ControlPlane, token: str, method: str, path: str, body: Any) -> bool:
    """Whether it gets through; a refusal has to be the policy's."""
    kind = MERGE if method == "PATCH" else "application/json"
    try:
        plane.request(method, path, body, content_type=kind, token=token)
    except Refused as refused:
        if refused.code != 403 or SAID not in str(refused):
            raise
        return False
    return True


def user(plane: ControlPlane, resources: Sequence[str], verbs: Sequence[str], group: str = "") -> str:
    """The token of one who may do just that in the namespace."""
    name = f"user-{secrets.token_hex(3)}"
    plane.request("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}})
    rule = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    plane.request("POST", f"{RBAC}/roles", {"metadata": {"name": name}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    plane.request("POST", f"{RBAC}/rolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    token = chart.token(plane, "default", name)
    for one in resources:
        chart.wait_for_right(plane, token, verbs[0], one, group, "default")
    return token


def enforce(plane: ControlPlane) -> str:
    """Waits until both policies of pods are in force; returns the operator's token."""
    kinds = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    chart.install(plane, *kinds)
    early = user(plane, ["pods"], ["create"])
    owned = pod("owned", {})
    owner = {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticJob", "name": "digits", "uid": "none"}
    owned["metadata"] |= {"ownerReferences": [owner]}
    for what, tried in (("pods", pod("early", LABELS)), ("claims", owned)):

        def refused(tried: Any = tried) -> bool:
            tried["metadata"]["name"] = f"early-{secrets.token_hex(3)}"
            return not may(plane, early, "POST", PODS, tried)

        wait_until(f"the policy of {what} to come into force", refused, pause=0.1)
    token = chart.token(plane, chart.NAMESPACE, chart.OPERATOR)
    chart.wait_for_right(plane, token, "create", "pods")
    return token
