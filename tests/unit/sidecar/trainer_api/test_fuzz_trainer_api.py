# SPDX-License-Identifier: Apache-2.0
"""Anything that a process in the pod can send to the trainer API, over real HTTP.

Each request gets an answer in time: never an error of the server's own, and in the API's own form whenever it was HTTP
at all. Afterwards the sidecar is as it was, and a real trainer joins.
"""

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from urllib.parse import quote, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elasticjob_torch import wire
from support.fuzzing import Json, encoded, numbers, scalars, spoiled, texts, tried, values
from support.two_sidecars import TwoSidecars, until
from support.waiting import within

TRAINERS = st.sampled_from(["t" * 32, "x"])
SECONDS = st.sampled_from([0.001, 0.01])
SMALL = st.integers(1, 3)
BODIES = {
    "rendezvous": {
        "trainer": TRAINERS,
        "after": SMALL,
        "cause": st.just("Started"),
        "live": st.booleans(),
        "timeout": SECONDS,
    },
    "live": {"trainer": TRAINERS, "round": SMALL},
    "store": {"trainer": TRAINERS, "round": SMALL, "port": st.just(27400)},
    "leave": {"trainer": TRAINERS, "cause": st.just("TrainerLeft"), "timeout": SECONDS},
    "finish": {"trainer": TRAINERS, "round": SMALL, "timeout": SECONDS},
    "close": {"trainer": TRAINERS, "timeout": SECONDS},
    "imports": {"imports": st.lists(st.sampled_from(["torch", "sklearn.datasets"]) | texts)},
    "progress": {"trainer": TRAINERS, "step": SMALL, "total": SMALL, "metrics": st.dictionaries(texts, numbers)},
}
QUERIES = {"rendezvous": {}, "store": {"round": SMALL, "timeout": SECONDS}, "rendezvous/events": {"trainer": TRAINERS}}

nested = st.integers(1, 60_000).map(lambda depth: b"[" * depth)
huge = st.sampled_from([b"0" * 70_000, b'{"trainer": "' + b"t" * 200_000 + b'"}'])
payloads = st.one_of(values.map(encoded), st.binary(max_size=200), nested, huge)
headers = st.dictionaries(
    st.sampled_from(["Content-Type", "Content-Encoding", "Accept", "Expect", "Origin", "Upgrade", "X-Long", "Cookie"]),
    st.sampled_from(["gzip", "deflate", "br", "text/html", "application/json; charset=utf-99", "100-continue", "no"])
    | st.sampled_from(["websocket", "y" * 8000, "\t", "é", ";;;=,"]),
    max_size=3,
)
framings = st.sampled_from(["length", "length", "length", "chunked", "short", "bad chunk", "deflate"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One well-formed or nearly well-formed request."""
    path = draw(st.sampled_from([*BODIES, *QUERIES]))
    if draw(st.integers(0, 3)):
        method = "POST" if path in BODIES and draw(st.booleans()) else "GET"
    else:
        method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "JUMP"]))
        path = draw(st.one_of(st.just(path), texts.map(lambda text: quote(text[:300])), st.just("../v1/" + path)))
    body = draw(st.one_of(spoiled(BODIES[path]).map(encoded), payloads)) if path in BODIES else draw(payloads)
    body = b"" if method in ("GET", "HEAD") and draw(st.booleans()) else body
    right = st.fixed_dictionaries(dict(QUERIES.get(path, {})))
    fields = draw(st.one_of(right, st.dictionaries(texts, scalars, max_size=3)))
    query = urlencode({name[:300]: str(value)[:300] for name, value in fields.items()}, errors="replace")
    more = draw(headers)
    # aiohttp answers this one with 500, before it asks anybody: it cannot write down what was expected
    more = {name: value for name, value in more.items() if name != "Expect" or value.isascii()}
    return framed(draw(framings), f"{method} /v1/{path}?{query} HTTP/1.1", more, body)


def framed(framing: str, line: str, more: dict[str, str], body: bytes) -> bytes:
    head = {"Host": "sidecar", **more}
    if framing == "deflate":
        head["Content-Encoding"], body = "deflate", zlib.compress(body)
    if framing in ("chunked", "bad chunk"):
        head["Transfer-Encoding"] = "chunked"
        size = b"%x" % len(body) if framing == "chunked" else b"zz"
        body = size + b"\r\n" + body + b"\r\n" + (b"0\r\n\r\n" if body else b"\r\n")
    else:
        head["Content-Length"] = str(len(body) + (framing == "short"))  # "short": one byte never comes
    lines = [line, *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body


async def answer_to(pair: TwoSidecars, raw: bytes) -> tuple[int, str, bytes]:
    """Status, content type and body of the first answer; 0 where the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.workers[0].ports.trainer_api)
    try:
        async with within("an answer"):
            with contextlib.suppress(ConnectionError):
                writer.write(raw)
                while True:
                    status, headers = await _head(reader)
                    if status != 100:
                        break
            if not status:
                return 0, "", b""
            kind = headers.get("content-type", "")
            if "event-stream" in kind or raw.startswith(b"HEAD"):
                return status, kind, b""
            return status, kind, await reader.readexactly(int(headers.get("content-length", 0)))
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, {}
    pairs = (line.split(": ", 1) for line in head[1:] if ": " in line)
    return int(head[0].split()[1]), {name.lower(): value for name, value in pairs}


def must_be_an_answer(raw: bytes, status: int, kind: str, body: bytes) -> None:
    assert status in (200, 204, 504) or 400 <= status < 500, (status, body)
    if status == 200 or (status >= 400 and not raw.startswith(b"HEAD") and "json" in kind):
        said: Json = json.loads(body) if body else {}
        if status >= 400:
            assert said["error"]["code"] in set(wire.Code), said
            assert said["error"]["message"], said
    elif status >= 400 and not raw.startswith(b"HEAD"):
        # not HTTP as aiohttp reads it: nobody's request, so it has nobody's form
        assert status in (400, 417), (status, body)


async def still_serves(pair: TwoSidecars) -> None:
    zero = pair.workers[0]
    async with within("an answer"):
        status, view = await zero.call("GET", "rendezvous")
    assert status == 200
    assert view["job"] == "job"
    request = zero.machine._request
    assert request is None or (request.after or 0) < 2**53


@pytest.fixture
async def target(pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoSidecars]:
    """After all that a real trainer joins, and its sidecar tells it the rank."""
    monkeypatch.setattr(wire, "BODY_SECONDS", 0.05)
    pair.job("Forming", 1)
    yield pair
    zero, one = pair.workers
    await zero.stream()
    join = asyncio.create_task(zero.join())
    await until(lambda: (pair.kube.request("job-0-0") or {}).get("cause") == "Started")
    pair.job("Formed", 1, one, zero)
    status, answer = await join
    assert (status, answer["rank"]) == (200, 1)


CANNOT_BE_UNPACKED = framed("length", "POST /v1/store HTTP/1.1", {"Content-Encoding": "gzip"}, b"no gzip")


@given(raw=requests())
@example(raw=CANNOT_BE_UNPACKED)
async def test_every_request_is_answered(target: TwoSidecars, raw: bytes) -> None:
    tried["requests to the trainer API"] += 1
    must_be_an_answer(raw, *await answer_to(target, raw))
    await still_serves(target)


@given(raw=st.binary(max_size=300) | st.builds(lambda raw, cut: raw[:cut], requests(), st.integers(0, 400)))
async def test_what_is_no_request_is_answered_or_closed_and_harms_nobody(target: TwoSidecars, raw: bytes) -> None:
    tried["other bytes to the trainer API"] += 1
    reader, writer = await asyncio.open_connection("127.0.0.1", target.workers[0].ports.trainer_api)
    writer.write(raw)
    writer.write_eof()  # nothing more will come, so the sidecar need not wait either
    async with within("an answer or the connection's end"):
        with contextlib.suppress(ConnectionError):
            head = await reader.readline()
            assert not head or head.startswith(b"HTTP/1."), head
            assert b" 500 " not in head, head
    writer.transport.abort()
    await still_serves(target)


@pytest.mark.parametrize(
    ("path", "more", "field"),
    [
        ("rendezvous", {"after": 2**53}, "after: "),
        ("finish", {"round": 2**63}, "round: "),
        ("progress", {"step": 10**30}, "step: "),
        ("progress", {"metrics": {"m" * 65: 1.0}}, "metrics."),
        ("imports", {"imports": ["torch", "a" * 129]}, "imports.1: "),
        ("imports", {"imports": ["torch", "torch,sklearn"]}, "imports.1: "),
        ("imports", {"imports": ["torch\n"]}, "imports.0: "),
        ("imports", {"imports": ["t" * 100] * 82}, "imports: "),
        ("imports", {"imports": ["t"] * 257}, "imports: "),
    ],
)
async def test_what_the_api_server_would_refuse_does_not_get_into_the_record(
    pair: TwoSidecars, path: str, more: Json, field: str
) -> None:
    """Nothing could be written any more, not even a heartbeat, and the worker would be lost."""
    status, answer = await pair.workers[0].call("POST", path, trainer="t", **more)
    assert (status, answer["error"]["code"]) == (400, "BadRequest")
    assert answer["error"]["message"].startswith(field)
