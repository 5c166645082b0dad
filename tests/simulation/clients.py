# SPDX-License-Identifier: Apache-2.0
"""The product's own clients of the API server over a simulated network: all but the HTTP session is real."""

import atexit
import copy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from kubernetes.aio.client import ApiClient, Configuration

from elasticjob_operator.cluster.client import Kube as OperatorKube
from elasticjob_sidecar.api_server.client import Kube as SidecarKube
from elasticjob_sidecar.api_server.in_cluster import InCluster
from simulation.network import Network, Session

SERVER = "https://api"


def operator_client(network: Network) -> OperatorKube:
    """Over the Kubernetes client library."""
    client = copy.copy(_bare_client())
    client.rest_client = copy.copy(client.rest_client)
    client.rest_client.pool_manager = Session(network)
    return OperatorKube(client)


def sidecar_client(namespace: str, network: Network) -> SidecarKube:
    return SidecarKube(namespace, InCluster("api", 443, token()), cast("Any", Session(network)))


@cache
def _bare_client() -> ApiClient:
    """To make one reads certificates from files."""
    configuration = Configuration()
    configuration.host = SERVER
    return ApiClient(configuration)


@cache
def token() -> Path:
    """A file with what pods show to the API server."""
    folder = TemporaryDirectory(prefix="elasticjob-simulation-")
    atexit.register(folder.cleanup)
    file = Path(folder.name) / "token"
    file.write_text("a pod's token")
    return file
