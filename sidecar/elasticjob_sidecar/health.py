"""What the sidecar tells the kubelet and Prometheus."""

from collections.abc import Callable
from http import HTTPStatus

from elasticjob.health import HealthServer, Page, kept

METRICS = "text/plain; version=0.0.4; charset=utf-8"
NOT_READY = b"not ready: the ElasticWorker is not written or the ElasticJob not seen yet\n"


def health_server(ready: Callable[[], bool], metrics: Callable[[], bytes]) -> HealthServer:
    """`/healthz`: the event loop runs. `/readyz`: the record is written and the job was seen. `/metrics`."""

    def readyz() -> Page:
        return Page(b"ready\n") if ready() else Page(NOT_READY, HTTPStatus.SERVICE_UNAVAILABLE)

    return HealthServer(
        {
            "/healthz": lambda: Page(b"ok\n"),
            "/readyz": readyz,
            "/metrics": kept(lambda: Page(metrics(), kind=METRICS)),
        }
    )
