# SPDX-License-Identifier: Apache-2.0
"""The sidecar's pages for the kubelet and Prometheus."""

from collections.abc import Callable
from http import HTTPStatus

from elasticjob.api import TROUBLE_PATH
from elasticjob.health import HealthServer, Page, kept

METRICS = "text/plain; version=0.0.4; charset=utf-8"
NOT_YET = "its ElasticWorker is not written or its ElasticJob not seen yet"


def health_server(ready: Callable[[], bool], trouble: Callable[[], str], metrics: Callable[[], bytes]) -> HealthServer:
    """`/healthz`: the event loop runs. `/readyz`: `ready`: the record is written, the job was seen, and the API server
    has refused nothing since. `/trouble`, for the operator: a sentence on what keeps this worker from taking part,
    ready or not; empty if nothing does. `/metrics`."""

    def readyz() -> Page:
        if ready():
            return Page(b"ready\n")
        return Page(f"not ready: {trouble() or NOT_YET}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)

    return HealthServer(
        {
            "/healthz": lambda: Page(b"ok\n"),
            "/readyz": readyz,
            TROUBLE_PATH: lambda: Page(trouble().encode()),
            "/metrics": kept(lambda: Page(metrics(), kind=METRICS)),
        }
    )
