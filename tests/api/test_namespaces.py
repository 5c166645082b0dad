# SPDX-License-Identifier: Apache-2.0
"""An operator that looks after named namespaces, one of which is not there: the whole process, with its watches."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from api import chart
from api.operators import GROUP, job_body
from support import ControlPlane
from support.ports import free_port
from support.waiting import exit_code, wait_until

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Namespaces(NamedTuple):
    plane: ControlPlane
    account: str
    there: str
    missing: str

    def make(self, name: str) -> None:
        """As an administrator and the chart do."""
        self.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.bind(name, "ClusterRole", chart.OPERATOR)

    def bind(self, namespace: str, kind: str, role: str) -> None:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
        subject = {"kind": "ServiceAccount", "name": self.account, "namespace": chart.NAMESPACE}
        body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
        self.plane.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", body)

    def start_job(self, namespace: str) -> str:
        name = f"job-{secrets.token_hex(3)}"
        self.plane.request("POST", f"{GROUP}/namespaces/{namespace}/elasticjobs", job_body(name))
        return name

    def wait_for_pod(self, namespace: str, job: str) -> None:
        wait_until(f"a pod of {job} in {namespace}", lambda: f"{job}-0-0" in self._pods(namespace), pause=0.1)

    def _pods(self, namespace: str) -> set[str]:
        found = self.plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {pod["metadata"]["name"] for pod in found}


@pytest.fixture
def namespaces(with_crds: ControlPlane, tmp_path: Path) -> Iterator[Namespaces]:
    plane, mark = with_crds, secrets.token_hex(3)
    made = Namespaces(plane, f"operator-{mark}", f"there-{mark}", f"missing-{mark}")
    chart.install(plane, "ClusterRole")
    accounts = f"/api/v1/namespaces/{chart.NAMESPACE}/serviceaccounts"
    plane.request("POST", accounts, {"metadata": {"name": made.account}})
    made.make(made.there)
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    roles = f"{RBAC}/namespaces/{made.there}/roles"
    plane.request("POST", roles, {"metadata": {"name": "lease"}, "rules": [rule]})
    made.bind(made.there, "Role", "lease")
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": chart.token(plane, chart.NAMESPACE, made.account)}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    flags = [
        "--sidecar-image=none",
        f"--namespaces={made.missing},{made.there}",
        f"--lease-namespace={made.there}",
        f"--health-port={free_port()}",
    ]
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    operator = subprocess.Popen([sys.executable, "-m", "elasticjob_operator", *flags], env=environment)
    yield made
    operator.terminate()
    assert exit_code(operator) == 0


def test_a_missing_namespace_stops_no_other_and_is_served_once_it_is_there(namespaces: Namespaces) -> None:
    namespaces.wait_for_pod(namespaces.there, namespaces.start_job(namespaces.there))
    namespaces.make(namespaces.missing)
    namespaces.wait_for_pod(namespaces.missing, namespaces.start_job(namespaces.missing))


def test_one_that_vanishes_stops_no_other_and_is_served_when_it_is_back(namespaces: Namespaces) -> None:
    namespaces.make(namespaces.missing)
    namespaces.wait_for_pod(namespaces.missing, namespaces.start_job(namespaces.missing))
    binding = f"{RBAC}/namespaces/{namespaces.missing}/rolebindings/{chart.OPERATOR}"
    namespaces.plane.request("DELETE", binding)
    namespaces.wait_for_pod(namespaces.there, namespaces.start_job(namespaces.there))
    late = namespaces.start_job(namespaces.missing)
    namespaces.bind(namespaces.missing, "ClusterRole", chart.OPERATOR)
    namespaces.wait_for_pod(namespaces.missing, late)
