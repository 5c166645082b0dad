# SPDX-License-Identifier: Apache-2.0
"""etcd and the API server for a fleet, and what they take. There are no nodes, controllers or schedulers."""

import re
import ssl
import time
from pathlib import Path
from typing import NamedTuple

from rounds.processes import cpu_seconds

from fleet import objects
from fleet.lease import NAMESPACE
from support import ControlPlane
from support.api_client import ApiClient

CRDS = Path("crds")
DATABASE_BYTES = 8 * 2**30  # pods, and five minutes of heartbeats, until the API server compacts
REQUESTS = re.compile(r"^apiserver_request_total\{.*\} (\S+)$", re.MULTILINE)
REQUEST_SECONDS = 60.0


class Spent(NamedTuple):
    """Since the start, but for `at`, in monotonic seconds."""

    at: float
    api: float
    etcd: float
    requests: float


def started() -> ControlPlane:
    """With all that is there before the first job; to be stopped."""
    plane = ControlPlane(database_bytes=DATABASE_BYTES)
    plane.start()
    plane.install_crds(*sorted(CRDS.glob("*.yaml")))
    for name in (NAMESPACE, *(objects.namespace_of(number) for number in range(objects.NAMESPACES))):
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return plane


def token_file(plane: ControlPlane) -> Path:
    """For processes that would show it among their arguments."""
    file = plane.kubeconfig.with_name("token")
    file.touch(mode=0o600)
    file.write_text(token_of(plane))
    return file


def token_of(plane: ControlPlane) -> str:
    return (plane.kubeconfig.with_name("tokens.csv")).read_text().partition(",")[0]


def client(plane: ControlPlane) -> ApiClient:
    tls = ssl.create_default_context(cafile=plane.authority)
    return ApiClient(plane.server, tls, token_of(plane), REQUEST_SECONDS)


async def spent(plane: ControlPlane, api: ApiClient) -> Spent:
    text = await api.text("GET", "/metrics")
    etcd = next(pid for pid in plane.pids if pid != plane.server_pid)
    requests = sum(float(number) for number in REQUESTS.findall(text))
    return Spent(time.monotonic(), cpu_seconds(plane.server_pid), cpu_seconds(etcd), requests)
