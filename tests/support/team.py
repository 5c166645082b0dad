# SPDX-License-Identifier: Apache-2.0
"""A namespace with a service account that may do what an example's Role says, and a pod's access to the API."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from elasticjob_torch.kubernetes.access import InClusterConfig
from elasticjob_torch.kubernetes.api import ApiClient
from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.config_map import ConfigMap
from elasticjob_torch.kubernetes.owner import Owner
from support import ControlPlane

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PODS, JOBSET = EXAMPLES / "kubernetes-backend/digits.yaml", EXAMPLES / "jobset/jobset.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Team:
    """A namespace with what an example's manifest says of ConfigMaps and access to them."""

    def __init__(self, plane: ControlPlane, directory: Path, example: Path = PODS) -> None:
        self.plane = plane
        self.namespace = f"team-{secrets.token_hex(3)}"
        self.core = f"/api/v1/namespaces/{self.namespace}"
        self.directory = directory
        self.clients: list[ApiClient] = []
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        bodies = yaml.safe_load_all(example.read_text())
        for item in (item for body in bodies for item in body.get("items", [body])):
            if item["kind"] in ("ConfigMap", "Role", "RoleBinding", "ServiceAccount"):
                group = f"{RBAC}/namespaces/{self.namespace}" if "rbac" in item["apiVersion"] else self.core
                for subject in item.get("subjects", []):
                    subject["namespace"] = self.namespace
                plane.request("POST", f"{group}/{item['kind'].lower()}s", item)

    def new_token(self, name: str = "digits") -> str:
        answer = self.plane.request("POST", f"{self.core}/serviceaccounts/{name}/token", {"spec": {}})
        return str(answer["status"]["token"])

    def access(self, token: str | None = None) -> InClusterConfig:
        """As the kubelet gives it to a pod with the example's service account."""
        for name, text in {
            "token": self.new_token() if token is None else token,
            "ca.crt": self.plane.authority.read_text(),
            "namespace": self.namespace,
        }.items():
            (self.directory / name).write_text(text)
        server = urlsplit(self.plane.server)
        return InClusterConfig(str(server.hostname), int(server.port or 0), self.directory)

    def config_map(
        self,
        name: str,
        kind: type[ApiClient] = ApiClient,
        clock: SharedClock | None = None,
        owner: Owner | None = None,
    ) -> ConfigMap:
        self.clients.append(kind(self.access(), clock or SharedClock()))
        return ConfigMap(self.clients[-1], self.namespace, name, owner)

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def administer(self, method: str, name: str, body: Any = None) -> Any:
        merge = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self.plane.request(method, f"{self.core}/configmaps/{name}", body, content_type=merge)


def new_team(control_plane: ControlPlane, tmp_path: Path, example: Path = PODS) -> Iterator[Team]:
    """To be made a fixture, beside a fixture `control_plane`."""
    made = Team(control_plane, tmp_path, example)
    yield made
    made.close()
