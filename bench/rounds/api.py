"""The administrator's calls to the API server, and what the API server counts of everybody's."""

import asyncio
import base64
import json
import os
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import yaml

Object = dict[str, Any]

CUSTOM = "/apis/elasticjob.io/v1alpha1"
REQUEST_SECONDS = 60.0
MERGE = "application/merge-patch+json"
WRITES = re.compile(
    r'^apiserver_request_total\{.*group="elasticjob.io",.*verb="(?:POST|PUT|PATCH|DELETE)".*\} (\S+)$', re.MULTILINE
)
EVENT_BYTES = re.compile(r'^apiserver_watch_events_sizes_sum\{group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)
BODY_BYTES = re.compile(r'^apiserver_request_body_size_bytes_sum\{group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)
ANSWER_BYTES = re.compile(r'^apiserver_response_sizes_sum\{.*group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)
CPU_SECONDS = re.compile(r"^process_cpu_seconds_total (\S+)$", re.MULTILINE)
REQUESTS = re.compile(r'^apiserver_request_total\{.*group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)


class ApiError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Counted(NamedTuple):
    """What the API server has served of this project's objects since it started."""

    requests: int
    writes: int
    bytes: int
    read_bytes: int  # of answers to reads; it does not count those to writes


class Api:
    """To be made inside of the event loop, and closed. Reads the file that KUBECONFIG names."""

    def __init__(self) -> None:
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=self.authority)
        with tempfile.NamedTemporaryFile() as pair:
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[key]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        server = urlsplit(cluster["server"])
        self.host, self.port = server.hostname or "", str(server.port or 443)
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self._http = aiohttp.ClientSession(cluster["server"], connector=connector)

    async def close(self) -> None:
        await self._http.close()

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        return dict(json.loads(await self.text(method, path, body, kind)))

    async def text(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> str:
        data = None if body is None else json.dumps(body)
        limit = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with self._http.request(method, path, data=data, headers={"Content-Type": kind}, timeout=limit) as answer:
            text = await answer.text()
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {answer.status}: {text}")
        return text

    async def patch(self, path: str, body: Object) -> Object:
        return await self.call("PATCH", path, body, MERGE)

    async def watch(self, path: str, opened: Callable[[], None] = lambda: None) -> AsyncIterator[Object]:
        """Events from now on, until the caller stops. Raises ApiError."""
        separator = "&" if "?" in path else "?"
        limit = aiohttp.ClientTimeout(total=None)
        async with self._http.get(f"{path}{separator}watch=true&timeoutSeconds=3600", timeout=limit) as answer:
            if answer.status != 200:
                raise ApiError(answer.status, f"watch of {path}: {answer.status}: {await answer.text()}")
            opened()
            while line := await answer.content.readline():
                yield json.loads(line)

    async def cpu_seconds(self) -> float:
        """What the API server has had of the processor since it started."""
        found = CPU_SECONDS.search(await self.text("GET", "/metrics"))
        assert found is not None
        return float(found[1])

    async def counted(self) -> Counted:
        text = await self.text("GET", "/metrics")

        def total(pattern: re.Pattern[str]) -> int:
            return int(sum(float(number) for number in pattern.findall(text)))

        sent = total(EVENT_BYTES) + total(BODY_BYTES)
        return Counted(total(REQUESTS), total(WRITES), sent, total(ANSWER_BYTES))


async def gather_in_turn(calls: list[Any], at_once: int = 64) -> list[Any]:
    """The results of awaitables, of which so many run at once."""
    slots = asyncio.Semaphore(at_once)

    async def one(call: Any) -> Any:
        async with slots:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))
