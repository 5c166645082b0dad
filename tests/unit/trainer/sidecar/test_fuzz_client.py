# SPDX-License-Identifier: Apache-2.0
"""Anything in the place of the sidecar's answers: torchrun's plug-in reads it, or says what it cannot read, in time."""

import io
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elasticjob_torch.sidecar import events
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.client import SidecarClient
from elasticjob_torch.sidecar.errors import SidecarError
from elasticjob_torch.wire import JoinCause, LeaveCause, Ours, Round, StoreAddress
from support.fuzzing import encoded, numbers, spoiled, texts, tried, values
from support.waiting import in_time

IN_TIME = 60.0
SMALL = st.integers(0, 5)
ANSWERS = st.one_of(
    spoiled({"round": SMALL, "rank": SMALL, "worldSize": SMALL, "runId": texts}),
    spoiled({"host": st.just("127.0.0.1"), "port": st.just(27400)}),
    spoiled({"error": spoiled({"code": st.sampled_from(["Closed", "RoundBroken", "Leaving"]), "message": texts})}),
    spoiled({"round": numbers, "phase": texts, "waiting": numbers}),
    values,
)
BODIES = st.one_of(
    ANSWERS.map(encoded), st.binary(max_size=100), st.integers(1, 60_000).map(lambda depth: b"[" * depth)
)
STATUSES = st.sampled_from([200, 200, 200, 204, 400, 404, 409, 410, 500, 503, 504, 100, 999])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """HTTP, or nearly."""
    body = draw(BODIES)
    length = draw(st.sampled_from([len(body), len(body), len(body), len(body) + 1, 0, -1, "many", None]))
    lines = [f"HTTP/1.1 {draw(STATUSES)} {draw(st.sampled_from(['OK', '', 'x' * 100]))}", "Connection: close"]
    lines += [] if length is None else [f"Content-Length: {length}"]
    lines += draw(st.sampled_from([[], ["Transfer-Encoding: chunked"], ["Content-Type: text/html"], ["nonsense"]]))
    return "\r\n".join([*lines, "", ""]).encode() + body


class Stranger:
    """Whatever is asked of it, it answers with `says`, and closes."""

    def __init__(self) -> None:
        self.says = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(IN_TIME)
                asked = connection.recv(65536)
                if not asked:  # the end of the test
                    return
                try:
                    connection.sendall(self.says)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except OSError:
                    pass

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(IN_TIME)
        self._listener.close()


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    yield made
    made.close()


def outcome(call: Callable[[], object]) -> object:
    """What the call returns, or the kind of error that its callers know."""
    with in_time("the answer, or an error", IN_TIME):
        try:
            return call()
        except SidecarError as error:
            return error


@given(says=answers() | st.binary(max_size=200))
@example(says=b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 60_000)
@example(says=b'HTTP/1.1 200 OK\r\n\r\n{"round": Infinity, "rank": 0, "worldSize": 1, "runId": ""}')
@example(says=b'HTTP/1.1 200 OK\r\n\r\n{"host": "127.0.0.1", "port": 1e999}')
def test_an_answer_is_read_or_refused(stranger: Stranger, says: bytes) -> None:
    tried["answers of a sidecar"] += 1
    stranger.says = says
    client = SidecarClient(Address("127.0.0.1", stranger.port), "t", patience=0.01)
    view = outcome(client.view)
    assert isinstance(view, Ours | SidecarError)
    joined = outcome(lambda: client.join(0, JoinCause.STARTED, 1))
    if isinstance(joined, Round):
        assert all(isinstance(number, int) for number in (joined.number, joined.rank, joined.world_size))
        assert isinstance(joined.run_id, str)
    else:
        assert isinstance(joined, SidecarError)
    assert isinstance(outcome(lambda: client.await_store(1, 1)), StoreAddress | SidecarError)
    outcome(lambda: client.leave(LeaveCause.TRAINER_LEFT, 1))


LINES = st.one_of(
    ANSWERS.map(lambda answer: b"data: " + encoded(answer) + b"\n\n"),
    BODIES.map(lambda body: b"data:" + body.replace(b"\n", b"\ndata:") + b"\n\n"),
    st.sampled_from([b": still here\n\n", b"\n", b"data\n\n", b"event: other\ndata: {}\n\n"]),
    st.binary(max_size=30),
)


@given(lines=st.lists(LINES, max_size=4))
@example(lines=[b"[" * 60_000])
@example(lines=[b"data: " + b"[" * 60_000 + b"\n\n"])
@example(lines=[b'data: {"round": Infinity, "phase": "Formed"}\n\n'])
def test_an_event_is_read_or_passed_over(lines: list[bytes]) -> None:
    tried["event streams of a sidecar"] += 1
    stream = events.EventStream(Address("127.0.0.1", 1), "t")
    stream._read(io.BytesIO(b"".join(lines)))
    view = stream.view
    assert view is None or (type(view.round), type(view.handed), type(view.reason)) == (int, int, str)
    assert events._names_superseded(b"".join(lines)) in (True, False)
