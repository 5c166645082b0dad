"""Liveness, readiness and metrics over HTTP. A standby is ready too: it could lead at any moment."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


async def serve(port: int) -> web.AppRunner:
    """Serves on all addresses of the pod, for the kubelet and Prometheus; returns what to clean up. Raises OSError."""
    app = web.Application()
    app.router.add_get("/healthz", _fine)
    app.router.add_get("/readyz", _fine)
    app.router.add_get("/metrics", _metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)  # nobody's request may hold up a stop
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner


async def _fine(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
