# SPDX-License-Identifier: Apache-2.0
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


async def test_what_only_a_new_process_mends_is_not_alive() -> None:
    found = [""]
    server = await health.serve(0, lambda: found[0])
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http:
        async with http.get("/healthz") as response:
            assert response.status == 200
        found[0] = "the watch of pods has not begun for 100 s\n"
        async with http.get("/healthz") as response:
            assert (response.status, await response.text()) == (503, found[0])
        async with http.get("/readyz") as response:
            assert response.status == 200
    server.close()
