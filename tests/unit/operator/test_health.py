"""The operator's health port."""

import aiohttp

from elasticjob_operator import health


async def test_health_and_metrics() -> None:
    server = await health.serve(0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http:
        for path in ("/healthz", "/readyz"):
            async with http.get(path) as response:
                assert (response.status, await response.text()) == (200, "ok\n")
        async with http.get("/metrics") as response:
            assert "elasticjob_leader" in await response.text()
    server.close()
