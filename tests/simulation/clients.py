# SPDX-License-Identifier: Apache-2.0
"""The product's own clients of the API server over a simulated network: all but the HTTP session is real."""

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from elasticjob_http.transport import Transport
from elasticjob_operator.cluster.client import Kube as OperatorKube
from elasticjob_sidecar.api_server.client import KubeApi as SidecarKube
from elasticjob_sidecar.api_server.client import connected
from elasticjob_sidecar.api_server.in_cluster import InCluster
from simulation.network import Network, Session

SERVER = "https://api"


def operator_client(network: Network) -> OperatorKube:
    return OperatorKube(Transport("operator", SERVER, cast("Any", Session(network)), authorization, named=True))


def sidecar_client(namespace: str, network: Network) -> SidecarKube:
    return SidecarKube(namespace, connected(InCluster("api", 443, token()), cast("Any", Session(network))))


async def authorization() -> str:
    return "Bearer someone's"


@cache
def token() -> Path:
    """A file with what pods show to the API server."""
    folder = TemporaryDirectory(prefix="elasticjob-simulation-")
    atexit.register(folder.cleanup)
    file = Path(folder.name) / "token"
    file.write_text("a pod's token")
    return file
