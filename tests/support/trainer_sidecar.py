# SPDX-License-Identifier: Apache-2.0
"""A sidecar for the plug-in's tests: real HTTP on loopback, its answers set by the test."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from support.waiting import DEADLINE, Deadline

RUN_ID = "3f0c-uid"
Answer = tuple[int, dict[str, Any]]
STREAMS = ("/v1/rendezvous/events", "/v1/rendezvous/watch")


def refusal(status: int, code: str, message: str = "because", **more: str) -> Answer:
    return status, {"error": {"code": code, "message": message, **more}}


def handed(number: int, rank: int = 0, world_size: int = 2, run_id: str = RUN_ID) -> Answer:
    store = {"host": "127.0.0.1", "port": 27400}
    where = {"store": store, "masterAddress": f"10.0.0.{number}"}
    return 200, {"round": number, "rank": rank, "worldSize": world_size, "runId": run_id, **where}


class Sidecar:
    """Requests are kept as ("POST /v1/leave", body or query); `answers` holds what each path says, in turn."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, list[Answer]] = {}
        self.default: Callable[[str], Answer] = lambda path: (204, {})
        self.view: dict[str, Any] = {"round": 0, "phase": "Forming", "waiting": 0, "worldSize": 0, "reason": ""}
        self.streams = 0
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.sidecar = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        """Close the port and end every stream, as a killed sidecar does."""
        if self._server is None or self._thread is None:
            return
        with self.changed:
            server, self._server = self._server, None
            self.changed.notify_all()
        server.shutdown()
        self._thread.join()
        server.server_close()

    def tell(self, **view: Any) -> None:
        """Change the view and send it on every open stream."""
        with self.changed:
            self.view = {**self.view, **view}
            self.changed.notify_all()

    def await_(self, condition: Callable[[], bool], what: str) -> None:
        with self.changed:
            if not self.changed.wait_for(condition, DEADLINE):
                raise Deadline(what, DEADLINE, self.requests)

    def said(self, path: str) -> list[dict[str, Any]]:
        return [body for name, body in self.requests if name == path]

    def _answer(self, path: str, body: dict[str, Any]) -> Answer:
        with self.changed:
            self.requests.append((path, body))
            self.changed.notify_all()
            waiting = self.answers.get(path, [])
            if waiting:
                return waiting.pop(0)
            if path == "GET /v1/rendezvous":
                return 200, {**self.view, "rank": None, "job": "digits", "runId": RUN_ID}
            return self.default(path)

    def _events(self, server: ThreadingHTTPServer) -> Iterator[dict[str, Any]]:
        """Until the server is stopped; none if a stream opens later."""
        last: dict[str, Any] | None = None
        with self.changed:
            while self._server is server:
                if self.view != last:
                    last = self.view
                    yield last
                self.changed.wait(0.02)  # short, so that the caller may look whether its client has gone
                yield {}


class _Server(ThreadingHTTPServer):
    sidecar: Sidecar
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        status, answer = self.server.sidecar._answer(f"GET {url.path}", query)
        if url.path in STREAMS and status == 204:
            self._stream()
        else:
            self._send(status, answer)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(*self.server.sidecar._answer(f"POST {self.path}", body))

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        payload = b"" if status == 204 else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self) -> None:
        sidecar = self.server.sidecar
        self.close_connection = True
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        with sidecar.changed:
            sidecar.streams += 1
            sidecar.changed.notify_all()
        self.connection.setblocking(False)
        try:
            for view in sidecar._events(self.server):
                if view:
                    self.wfile.write(f"data: {json.dumps(view)}\n\n".encode())
                with contextlib.suppress(BlockingIOError):
                    if not self.connection.recv(1):
                        break
        except ConnectionError:
            pass
        finally:
            with sidecar.changed:
                sidecar.streams -= 1
                sidecar.changed.notify_all()
