"""What the sidecar tells the kubelet and Prometheus."""

from collections.abc import Callable
from http import HTTPStatus

from elasticjob.api import TROUBLE_PATH
from elasticjob.health import HealthServer, Page, kept

METRICS = "text/plain; version=0.0.4; charset=utf-8"
NOT_YET = "its ElasticWorker is not written or its ElasticJob not seen yet"


def health_server(ready: Callable[[], bool], trouble: Callable[[], str], metrics: Callable[[], bytes]) -> HealthServer:
    """`/healthz`: the event loop runs. `/readyz`: it is `ready`, and nothing troubles it. `/trouble`, for the operator:
    a sentence on what keeps this worker from its part in the job; empty where nothing does. `/metrics`."""

    def readyz() -> Page:
        if told := trouble() or ("" if ready() else NOT_YET):
            return Page(f"not ready: {told}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        return Page(b"ready\n")

    return HealthServer(
        {
            "/healthz": lambda: Page(b"ok\n"),
            "/readyz": readyz,
            TROUBLE_PATH: lambda: Page(trouble().encode()),
            "/metrics": kept(lambda: Page(metrics(), kind=METRICS)),
        }
    )
