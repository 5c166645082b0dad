# SPDX-License-Identifier: Apache-2.0
"""The API server as a worker's pod may use it."""

from pathlib import Path
from urllib.parse import urlsplit

from elasticjob.objects import Object
from elasticjob_sidecar.api_server.client import KubeApi, connected
from elasticjob_sidecar.api_server.in_cluster import InCluster
from support import ControlPlane

CORE = "/api/v1/namespaces/default"


def pod_client(plane: ControlPlane, job: str, pod: Object, directory: Path) -> KubeApi:
    """With the pod's own token, which is kept in `directory`."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    path = f"{CORE}/serviceaccounts/{job}-worker/token"
    token = directory / f"{name}.token"
    token.write_text(plane.request("POST", path, {"spec": {"boundObjectRef": bound}})["status"]["token"])
    server = urlsplit(plane.server)
    place = InCluster(str(server.hostname), int(server.port or 0), token, plane.authority)
    return KubeApi("default", connected(place))
