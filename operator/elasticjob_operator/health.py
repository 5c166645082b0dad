# SPDX-License-Identifier: Apache-2.0
"""Liveness, readiness and metrics over HTTP. A standby is ready too, because it may lead at any moment."""

from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from elasticjob.health import HealthServer, Page, kept


async def serve(port: int, problem: Callable[[], str] = str, *, with_metrics: bool = True) -> HealthServer:
    """Serves on all addresses of the pod, for the kubelet and Prometheus. Returns the server, to be closed. Raises
    OSError.

    `problem`: why the kubelet should restart the process, empty while all is well. The metrics are open to all here; if
    they must not be, `metrics_server` serves them.
    """

    def healthz() -> Page:
        found = problem()
        return Page(found.encode(), HTTPStatus.SERVICE_UNAVAILABLE) if found else _fine()

    pages = {"/healthz": healthz, "/readyz": _fine}
    server = HealthServer(pages | ({"/metrics": metrics_page()} if with_metrics else {}))
    await server.listen(port)
    return server


def _fine() -> Page:
    return Page(b"ok\n")


def metrics_page() -> Callable[[], Page]:
    """Returns a function that gives the metrics, rendered at most once a second."""
    return kept(lambda: Page(generate_latest(), kind=CONTENT_TYPE_LATEST))
