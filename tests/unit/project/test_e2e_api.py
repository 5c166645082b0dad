# SPDX-License-Identifier: Apache-2.0
"""The cluster tests' own way to the API server: its watches go on, its connections come back, its refusals are told."""

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from e2e import api, kube
from e2e.api import Refused, Resource
from e2e.kube import Namespace, Watch
from support.waiting import Deadline, happened, wait_until

PODS = Resource("v1", "pods", "Pod", namespaced=True)
HERE = Namespace("here")


class Server(ThreadingHTTPServer):
    """Answers watches with `streams`, each a list of events, in turn, of which the last goes on until `over`; and all
    else with `answers`, each a status and a body, in turn."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.streams: list[list[object]] = []
        self.answers: list[tuple[int, object]] = []
        self.asked: list[tuple[str, str, dict[str, str], object]] = []
        self.silent, self.over = threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def versions(self) -> list[str | None]:
        return [query.get("resourceVersion") for _, _, query, _ in self.asked]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        self.do_GET = self.do_POST = self._serve
        super().handle_one_request()

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, url.path, query, json.loads(data or "null")))
        if "watch" in query:
            self._stream(self.server.streams.pop(0))
        else:
            status, body = self.server.answers.pop(0)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.close_connection = status == http.client.CREATED  # without a word of it before

    def _stream(self, events: list[object]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        text = "".join(json.dumps(event) + "\n" for event in events).encode()
        for part in (text[:7], text[7:]):  # a line may come in parts
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if not self.server.streams:
            self.server.silent.set()
            self.server.over.wait(60)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()

    def connect(seconds: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*made.server_address[:2], timeout=seconds)

    monkeypatch.setattr(api, "connect", connect)
    monkeypatch.setattr(api, "token", lambda: "secret")
    monkeypatch.setattr(api, "_by_name", {"pods": PODS, "v1/Pod": PODS})
    monkeypatch.setattr(api, "_of_thread", threading.local())
    yield made
    made.over.set()
    made.shutdown()
    made.server_close()


def event(kind: str, version: int, name: str = "one") -> object:
    meta = {"name": name, "resourceVersion": str(version), "managedFields": []}
    return {"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", "metadata": meta}}


def test_a_watch_goes_on_where_it_ended_and_begins_anew_where_that_is_forgotten(server: Server) -> None:
    server.streams = [
        [event("ADDED", 1), event("BOOKMARK", 5)],
        [event("MODIFIED", 7), {"type": "ERROR", "object": {"code": 410}}],
        [event("ADDED", 9), event("ADDED", 8, "other"), event("DELETED", 10)],
    ]
    watch = Watch(HERE, "pods")
    happened(server.silent, "the last watch")
    wait_until("its events", lambda: len(watch.sightings) == 5)
    assert server.versions() == [None, "5", None]
    assert [one.body["metadata"]["resourceVersion"] for one in watch.of("one")] == ["1", "7", "9", "10"]
    assert watch.present() == {"other": {"kind": "Pod", "apiVersion": "v1", "metadata": watch_meta(8)}}
    watch.close()  # while the API server says nothing


def watch_meta(version: int) -> object:
    return {"name": "other", "resourceVersion": str(version)}


def test_a_connection_that_ended_meanwhile_is_made_anew(server: Server) -> None:
    server.answers = [(201, {"number": number}) for number in (1, 2)]
    assert [api.call("POST", "/there", {})["number"] for _ in range(2)] == [1, 2]


def test_a_refusal_is_told_in_the_words_of_the_api_server(server: Server) -> None:
    server.answers = [(403, {"message": "no such right"})]
    with pytest.raises(Refused, match=r"GET /api/v1/namespaces/here/pods/one: no such right") as refused:
        HERE.get("pods", "one")
    assert refused.value.code == 403


def test_only_who_is_told_to_tries_again(server: Server) -> None:
    full = {"message": "it would violate the budget", "details": {}}
    server.answers = [(429, {"details": {"retryAfterSeconds": 1}}), (200, {}), (429, full)]
    assert api.call("GET", "/there") == {}
    with pytest.raises(Refused, match="it would violate the budget"):
        api.call("GET", "/there")


def test_an_answer_that_does_not_come_is_a_wait_that_timed_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "CALL_SECONDS", 0.1)
    server.streams = [[event("ADDED", 1)]]
    with pytest.raises(Deadline, match=r"waited 0\.1 s for an answer to GET /there"):
        api.call("GET", "/there", watch="true")


def test_what_is_there_kubectl_changes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[tuple[str, ...]] = []
    monkeypatch.setattr(kube, "kubectl", lambda *words, stdin: typed.append((*words, stdin)) or "")
    server.answers = [(201, {}), (409, {"message": "it exists"})]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
    HERE.apply(body)
    HERE.apply(body)
    method, path, query, made = server.asked[0]
    assert (method, path, query["fieldValidation"]) == ("POST", "/api/v1/namespaces/here/pods", "Strict")
    assert isinstance(made, dict)
    applied = json.loads(made["metadata"]["annotations"].pop(kube.LAST_APPLIED))
    assert applied == made, "what kubectl compares the next manifest with"
    assert typed == [("--namespace", "here", "apply", "--filename", "-", json.dumps(body))]
