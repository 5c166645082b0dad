# SPDX-License-Identifier: Apache-2.0
"""Whether kopf's watches continue, by the requests that begin them.

The API server ends each watch after some seconds, and kopf begins it again. A watch that no longer begins hangs, is
refused, or was given up. kopf does not report that, so a session of the operator's own does.
"""

import time
from collections.abc import Callable
from typing import Any

import aiohttp
import kopf

from elasticjob.api import JOBS, WORKERS
from elasticjob.kube.names import user_agent
from elasticjob.kube.paths import verb_of
from elasticjob_operator.cluster.client import PART

# kopf retries after a silence of 12 s, and after a refusal within 5 s and the request's time
SILENT_SECONDS = 90.0
WATCHED = (JOBS, "pods", WORKERS)


class WatchTimes:
    """When each watch last began. The watch of a named namespace is counted by itself once it has begun."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.ended: Callable[[str, int], None] = lambda _, __: None  # called with verb and code, 0: no answer
        self._began: dict[str, float] | None = None

    def start(self) -> None:
        """Notes that the watches are about to begin."""
        self._began = dict.fromkeys(WATCHED, self._monotonic())

    def begins(self, path: str) -> None:
        """Notes that the API server has answered the watch at `path`."""
        if self._began is not None:
            now = self._monotonic()
            self._began[path] = self._began[path.rpartition("/")[2]] = now

    def unwanted(self, path: str) -> None:
        """Notes that the watch at `path` cannot begin, through no fault of this process."""
        if self._began is not None:
            self._began.pop(path, None)
            self._began[path.rpartition("/")[2]] = self._monotonic()

    def silence(self) -> tuple[float, str]:
        """The seconds since the oldest beginning of a watch, and that watch. Zero and empty while no watch is
        wanted."""
        if not self._began:
            return 0.0, ""
        which, began = min(self._began.items(), key=lambda item: item[1])
        return self._monotonic() - began, which

    def problem(self) -> str:
        """Why the process should be restarted; empty while all is well."""
        seconds, which = self.silence()
        return f"the watch of {which} has not begun for {seconds:.0f} s\n" if seconds > SILENT_SECONDS else ""

    def session(self, login: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        """The session that kopf would make from `login`, with its requests traced."""
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._answered)
        trace.on_request_exception.append(self._failed)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=login.as_ssl_context()),
            headers={**login.as_http_headers(), "User-Agent": user_agent(PART)},
            trust_env=login.trust_env,
            proxy=login.proxy_url,
            trace_configs=[trace],
        )
        return kopf.AiohttpSession(
            aiohttp_session=session,
            server=login.server,
            default_namespace=login.default_namespace,
            priority=login.priority,
            expiration=login.expiration,
        )

    async def _answered(self, _: Any, __: Any, answer: aiohttp.TraceRequestEndParams) -> None:
        path, status = answer.url.path, answer.response.status
        self.ended(verb_of(answer.method, path, answer.url.query), status)
        if "watch" not in answer.url.query:
            return
        if status == 200:
            self.begins(path)
        elif status in (403, 404) and "/namespaces/" in path:  # the namespace was deleted
            self.unwanted(path)

    async def _failed(self, _: Any, __: Any, failure: aiohttp.TraceRequestExceptionParams) -> None:
        self.ended(verb_of(failure.method, failure.url.path, failure.url.query), 0)
