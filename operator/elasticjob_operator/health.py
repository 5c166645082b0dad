# SPDX-License-Identifier: Apache-2.0
"""Liveness, readiness and metrics over HTTP. A standby is ready too: it could lead at any moment."""

from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from elasticjob.health import HealthServer, Page, kept


async def serve(port: int, problem: Callable[[], str] = str, *, with_metrics: bool = True) -> HealthServer:
    """Serves on all addresses of the pod, for the kubelet and Prometheus; returns what to close. Raises OSError.

    `problem`: why the kubelet should start the process anew, empty while all is well. The metrics are open to all here:
    where they must not be, `metrics_server` has them.
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
    """What gives the metrics, made at most once in a second."""
    return kept(lambda: Page(generate_latest(), kind=CONTENT_TYPE_LATEST))
