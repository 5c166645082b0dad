# SPDX-License-Identifier: Apache-2.0
"""Whether kopf's watches go on, by the requests that begin them.

The API server ends each after some seconds and kopf begins it anew, so one that does not begin any more hangs, is
refused, or was given up. kopf tells nobody: a session of ours does.
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

# kopf comes back after a silence of 12 s, and after a refusal within 5 s and the request's time
SILENT_SECONDS = 90.0
WATCHED = (JOBS, "pods", WORKERS)


class WatchTimes:
    """When each watch of a term last began. A named namespace's counts by itself from its first time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.ended: Callable[[str, int], None] = lambda _, __: None  # told each request's verb and code, 0: no answer
        self._began: dict[str, float] | None = None

    def start(self) -> None:
        """The watches are about to begin."""
        self._began = dict.fromkeys(WATCHED, self._monotonic())

    def stop(self) -> None:
        """None is wanted any more."""
        self._began = None

    def begins(self, path: str) -> None:
        """The API server has answered the watch at `path`."""
        if self._began is not None:
            now = self._monotonic()
            self._began[path] = self._began[path.rpartition("/")[2]] = now

    def unwanted(self, path: str) -> None:
        """The one at `path` cannot begin, by no fault of this process."""
        if self._began is not None:
            self._began.pop(path, None)
            self._began[path.rpartition("/")[2]] = self._monotonic()

    def silence(self) -> tuple[float, str]:
        """Seconds since the one that began longest ago did so, and which it is; none is silent while none is wanted."""
        if not self._began:
            return 0.0, ""
        which, began = min(self._began.items(), key=lambda item: item[1])
        return self._monotonic() - began, which

    def problem(self) -> str:
        """Why the process had better be started anew; empty while all is well."""
        seconds, which = self.silence()
        return f"the watch of {which} has not begun for {seconds:.0f} s\n" if seconds > SILENT_SECONDS else ""

    def session(self, login: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        """What kopf makes of `login`, and listened to."""
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
        elif status in (403, 404) and "/namespaces/" in path:  # of a namespace that was deleted
            self.unwanted(path)

    async def _failed(self, _: Any, __: Any, failure: aiohttp.TraceRequestExceptionParams) -> None:
        self.ended(verb_of(failure.method, failure.url.path, failure.url.query), 0)
