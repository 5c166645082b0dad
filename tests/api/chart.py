# SPDX-License-Identifier: Apache-2.0
"""What the chart puts into a cluster, rendered by helm, as far as an API server without nodes has a use for it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from support import ControlPlane
from support.control_plane import Refused
from support.waiting import run, wait_until

CHART = Path(__file__).parents[2] / "charts/elasticjob"
NAMESPACE, OPERATOR = "elasticjob-system", "elasticjob-operator"
GROUPS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


def render(*options: str) -> list[Any]:
    """The chart's objects, hooks too."""
    command = [
        "helm",
        "template",
        "elasticjob",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.35",
        *options,
    ]
    rendered = run(command, check=True).stdout
    return [body for body in yaml.load_all(rendered, yaml.CSafeLoader) if body]


def install(plane: ControlPlane, *kinds: str, options: Sequence[str] = ()) -> None:
    """The chart's objects of `kinds`, as helm's `options` say, and the operator's service account."""
    core = f"/api/v1/namespaces/{NAMESPACE}"
    ensure(plane, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    ensure(plane, f"{core}/serviceaccounts", {"metadata": {"name": OPERATOR}})
    for body in render(*options):
        if body["kind"] in kinds:
            ensure(plane, GROUPS[body["kind"]], body)


def ensure(plane: ControlPlane, path: str, body: Any) -> None:
    try:
        plane.request("POST", path, body)
    except Refused as refused:
        if refused.code != 409:
            raise


def token(plane: ControlPlane, namespace: str, account: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str(plane.request("POST", path, {"spec": {}})["status"]["token"])


def wait_for_right(
    plane: ControlPlane, token: str, verb: str, plural: str, group: str = "", namespace: str = "", name: str = ""
) -> None:
    """Until the API server lets who has the token do it: it learns of roles and bindings by watches of its own.

    `namespace`, `name`: where and of which object, if not of all.
    """
    asked = {"verb": verb, "resource": plural, "group": group, "namespace": namespace, "name": name}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def allowed() -> bool:
        answer = plane.request("POST", path, {"spec": {"resourceAttributes": asked}}, token=token)
        return bool(answer["status"]["allowed"])

    wait_until(f"the right to {verb} {plural}", allowed, pause=0.05)
