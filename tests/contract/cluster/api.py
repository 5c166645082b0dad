# SPDX-License-Identifier: Apache-2.0
"""The administrator's calls to the API server."""

import asyncio
import ssl
from collections.abc import Callable

from support.api_client import ApiClient, Object

CORE = "/api/v1/namespaces/default"
JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
WORKERS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticworkers"
WATCH_SECONDS = 300


class WatchingClient(ApiClient):
    def __init__(self, server: str, authority: str, token: str) -> None:
        super().__init__(server, ssl.create_default_context(cafile=authority), token)

    async def follow(self, path: str, seen: Callable[[str, Object], None]) -> None:
        """Tell `seen` each change of each object at `path` ("ADDED", "MODIFIED", "DELETED"), for ever."""
        listing = await self.call("GET", path)
        for item in listing["items"]:
            seen("ADDED", item)
        version = listing["metadata"]["resourceVersion"]
        while True:
            async for event in self.watch(path, seconds=WATCH_SECONDS, resourceVersion=version):
                version = event["object"]["metadata"]["resourceVersion"]
                seen(event["type"], event["object"])
            await asyncio.sleep(0)
