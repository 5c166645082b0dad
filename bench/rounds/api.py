# SPDX-License-Identifier: Apache-2.0
"""The administrator's calls to the API server, and what the API server counts of everybody's."""

import asyncio
import base64
import os
import re
import ssl
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from support.api_client import ApiClient

CUSTOM = "/apis/elasticjob.io/v1alpha1"
REQUEST_SECONDS = 60.0
WRITES = re.compile(
    r'^apiserver_request_total\{.*group="elasticjob.io",.*verb="(?:POST|PUT|PATCH|DELETE)".*\} (\S+)$', re.MULTILINE
)
EVENT_BYTES = re.compile(r'^apiserver_watch_events_sizes_sum\{group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)
BODY_BYTES = re.compile(r'^apiserver_request_body_size_bytes_sum\{group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)
ANSWER_BYTES = re.compile(r'^apiserver_response_sizes_sum\{.*group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)
CPU_SECONDS = re.compile(r"^process_cpu_seconds_total (\S+)$", re.MULTILINE)
REQUESTS = re.compile(r'^apiserver_request_total\{.*group="elasticjob.io",.*\} (\S+)$', re.MULTILINE)


class Counted(NamedTuple):
    """What the API server has served of this project's objects since it started."""

    requests: int
    writes: int
    bytes: int
    read_bytes: int  # of answers to reads; it does not count those to writes


class Api(ApiClient):
    """To be made inside of the event loop, and closed. Reads the file that KUBECONFIG names."""

    def __init__(self) -> None:
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        self.authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=self.authority)
        with tempfile.NamedTemporaryFile() as pair:
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[key]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        server = urlsplit(self.server)
        self.host, self.port = server.hostname or "", str(server.port or 443)
        super().__init__(self.server, tls, request_seconds=REQUEST_SECONDS)

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
