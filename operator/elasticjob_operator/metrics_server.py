# SPDX-License-Identifier: Apache-2.0
"""`/metrics` over TLS, for callers with a token that may read it. Decides nothing itself: `judge` does.

Like the health port, it cannot be exhausted: a caller has five seconds and one of 64 slots, and a caller that floods
the port displaces itself. The slots are fewer than there, because a TLS connection takes a quarter of a MiB.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from elasticjob.connection_slots import ConnectionSlots
from elasticjob.health import WAITING, Page, Pages, error_page, listener, page_for
from elasticjob.kube.errors import ApiError
from elasticjob_operator.cluster.reviews import METRICS_PATH, TokenVerdict

SLOTS, AT_ONCE = 64, 16
CALL_SECONDS = 5.0
HEAD_BYTES = 16384  # an identity provider's token may have several KiB

# errors that a caller may cause on its own connection
ENDED = (OSError, TimeoutError, asyncio.IncompleteReadError)

log = logging.getLogger(__name__)


class MetricsServer:
    """Serves `metrics` to callers whose token `judge` accepts. `tls` gives the settings for each connection."""

    def __init__(
        self,
        metrics: Callable[[], Page],
        judge: Callable[[str], Awaitable[TokenVerdict]],
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self.port = 0
        self.slots = ConnectionSlots(SLOTS)
        self._pages: Pages = {METRICS_PATH: metrics}
        self._judge, self._tls = judge, tls
        self._calls: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        """Listens on all addresses of either family. `port` 0 takes a free port. Raises OSError."""
        opened = listener(port)
        self._server = await asyncio.start_server(self._accept, sock=opened, backlog=AT_ONCE, limit=HEAD_BYTES)
        opened.listen(WAITING)
        self.port = opened.getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.ensure_future(self._serve(reader, writer))
        self._calls.add(call)

        def displaced() -> None:
            call.cancel()

        peer = writer.get_extra_info("peername")
        slot = self.slots.take(peer[0] if peer else "", displaced)

        def ended(_: asyncio.Task[None]) -> None:
            self._calls.discard(call)
            slot.release()
            writer.transport.abort()

        call.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await writer.start_tls(self._tls())
                try:
                    page, with_body = await self._page(await reader.readuntil(b"\r\n\r\n"))
                except asyncio.LimitOverrunError:
                    page, with_body = error_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), True
                writer.write(page.head() + (page.body if with_body else b""))
                writer.close()
                await writer.wait_closed()
        except ENDED as error:
            log.debug("a caller of the metrics got no answer: %s", error)

    async def _page(self, head: bytes) -> tuple[Page, bool]:
        token = bearer_of(head)
        refusal = await self._refusal(token) if token else _refused(HTTPStatus.UNAUTHORIZED, "show a bearer token")
        return (refusal, True) if refusal else page_for(head, self._pages)

    async def _refusal(self, token: str) -> Page | None:
        """The page that is sent instead; None if the caller may read the metrics."""
        try:
            verdict = await self._judge(token)
        except ApiError as error:
            log.warning("who asks for the metrics could not be found out: %s", error)
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "the API server could not be asked whose token this is")
        if verdict is TokenVerdict.UNKNOWN:
            return _refused(HTTPStatus.UNAUTHORIZED, "the API server knows nobody by this token")
        if verdict is TokenVerdict.FORBIDDEN:
            sentence = f"this user may not get {METRICS_PATH}: the chart's ClusterRole ...-metrics-reader lets it"
            return _refused(HTTPStatus.FORBIDDEN, sentence)
        return None


def bearer_of(head: bytes) -> str:
    """The bearer token in the request's head; empty if there is none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"authorization":
            kind, _, token = value.strip().partition(b" ")
            return token.strip().decode("ascii", "replace") if kind.lower() == b"bearer" else ""
    return ""


def _refused(status: HTTPStatus, sentence: str) -> Page:
    return Page(f"{sentence}\n".encode(), status)
