# SPDX-License-Identifier: Apache-2.0
"""The administrator's calls to the API server."""

import ssl
from collections.abc import Callable

from support.api_client import ApiClient, ApiError, Object

CORE = "/api/v1/namespaces/default"
JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
WORKERS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticworkers"
WATCH_SECONDS = 300
GONE = 410  # the API server has forgotten what has happened since
REQUEST_SECONDS = 60.0  # many jobs may be at work on two cores


class WatchingClient(ApiClient):
    def __init__(self, server: str, authority: str, token: str) -> None:
        super().__init__(server, ssl.create_default_context(cafile=authority), token, REQUEST_SECONDS)

    async def follow(self, path: str, seen: Callable[[str, Object], None]) -> None:
        """Tell `seen` each change of each object at `path` ("ADDED", "MODIFIED", "DELETED"), for ever."""
        there: dict[str, Object] = {}
        while True:
            listing = await self.call("GET", path)
            now = {item["metadata"]["uid"]: item for item in listing["items"]}
            for uid in there.keys() - now.keys():
                seen("DELETED", there[uid])
            for item in now.values():
                seen("ADDED", item)
            there = now
            version = listing["metadata"]["resourceVersion"]
            try:
                async for event in self.watch(path, seconds=WATCH_SECONDS, resourceVersion=version):
                    uid, kind = event["object"]["metadata"]["uid"], event["type"]
                    there.pop(uid, None)
                    there |= {} if kind == "DELETED" else {uid: event["object"]}
                    seen(kind, event["object"])
            except ApiError as error:
                if error.status != GONE:
                    raise
