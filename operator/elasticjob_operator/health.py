"""Liveness, readiness and metrics over HTTP. A standby is ready too: it could lead at any moment."""

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from elasticjob.health import HealthServer, Page, kept


async def serve(port: int) -> HealthServer:
    """Serves on all addresses of the pod, for the kubelet and Prometheus; returns what to close. Raises OSError."""
    server = HealthServer({"/healthz": _fine, "/readyz": _fine, "/metrics": kept(_metrics)})
    await server.listen(port)
    return server


def _fine() -> Page:
    return Page(b"ok\n")


def _metrics() -> Page:
    return Page(generate_latest(), kind=CONTENT_TYPE_LATEST)
