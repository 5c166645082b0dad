"""Health for the kubelet and metrics for Prometheus, on all addresses: only GET, only numbers."""

from collections.abc import Callable

from aiohttp import web


def health_app(ready: Callable[[], bool], metrics: Callable[[], bytes]) -> web.Application:
    """`/healthz`: the event loop runs. `/readyz`: the record is written and the job was seen. `/metrics`."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="ready\n")
        return web.Response(
            status=503, text="not ready: the ElasticWorker is not written or the ElasticJob not seen yet\n"
        )

    async def metrics_(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics_)])
    return app
