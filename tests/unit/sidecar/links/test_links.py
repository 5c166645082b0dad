# SPDX-License-Identifier: Apache-2.0
"""Links between two real sidecars, over real TLS: who has one, what a break or a silence makes of it, and answers."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest

from elasticjob_sidecar.links import links
from elasticjob_sidecar.membership.link_monitor import LinkTimes
from elasticjob_sidecar.store.credentials import Credentials, link_name, server_name
from support.faulty_kube import JOB_UID
from support.pod_life import new_credentials
from support.two_sidecars import TwoSidecars, Worker, two_workers, until
from support.waiting import within

NAME = link_name(JOB_UID, 1)
QUICK = LinkTimes(heartbeat=0.05, suspicion=0.5, earliest=0.0, latest=0.05, make=2.0)


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoSidecars]:
    monkeypatch.setattr(links, "times_of", lambda *_: QUICK)
    async with two_workers() as pair:
        yield pair


@pytest.fixture
async def formed(pair: TwoSidecars) -> TwoSidecars:
    zero, one = pair.workers
    form(pair)
    await until(lambda: open_links(zero) == open_links(one) == 1)
    return pair


def form(pair: TwoSidecars, round: int = 1, number: int = 0, members: str = "", **more: str) -> None:
    pair.job("Formed", round, *pair.workers, ping={"number": number, "members": members}, **more)


def open_links(worker: Worker) -> int:
    return int(worker.sidecar.metrics.links._value.get())


def status(pair: TwoSidecars, worker: Worker) -> dict[str, object]:
    found: dict[str, object] = pair.kube.workers[f"job-{worker.index}-0"].get("status", {})
    return found


def name(worker: Worker) -> str:
    me = worker.machine.me
    return f"{me.index}/{me.id}"


def writes(pair: TwoSidecars) -> int:
    return pair.kube.count("status") + pair.kube.count("patch") + pair.kube.count("create")


async def test_a_line_that_lives_costs_no_write(formed: TwoSidecars) -> None:
    before = writes(formed)
    heard = formed.workers[1].sidecar.links._round
    assert heard is not None
    link = next(iter(heard._links.values()))
    for _ in range(30):
        await until(lambda: link.unanswered > 0)
        await until(lambda: link.unanswered == 0)
    assert not link.closed.done()
    assert writes(formed) == before


async def test_a_line_that_breaks_is_made_anew(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    opened = one.sidecar.links._round
    assert opened is not None
    broken = next(iter(opened._links.values()))
    broken.abort()
    await until(lambda: broken not in opened._links.values() and open_links(zero) == open_links(one) == 1)
    assert "suspects" not in status(formed, zero)


async def test_the_watch_is_calm_while_lines_are_heard(pair: TwoSidecars) -> None:
    zero, one = pair.workers
    told: list[bool] = []
    zero.sidecar.watch.calm = told.append  # type: ignore[method-assign]
    assert not one.sidecar.watch._calm
    form(pair)
    await until(lambda: open_links(zero) == open_links(one) == 1 and one.sidecar.watch._calm and told[-1:] == [True])
    one.stopping.set()
    await until(lambda: told[-1] is False)
    await until(lambda: not one.sidecar.watch._calm)


async def test_after_rank_0_has_finished_nobody_tells_of_news_that_the_watch_misses(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    await until(lambda: one.sidecar.watch._calm)
    form(formed, finished=name(zero))
    zero.stopping.set()
    await until(lambda: not one.sidecar.watch._calm)


@pytest.mark.parametrize("finished", [True, False], ids=["after success", "in the midst"])
async def test_a_line_that_ends_with_the_training_is_no_trouble(
    pair: TwoSidecars, caplog: pytest.LogCaptureFixture, finished: bool
) -> None:
    zero, one = pair.workers
    await pair.form()
    form(pair)
    await until(lambda: open_links(zero) == open_links(one) == 1)
    if finished:
        assert await one.call("POST", "finish", trainer=one.trainer, round=1, timeout=60) == (204, None)
    caplog.clear()
    caplog.set_level("INFO", logger=links.__name__)
    zero.stopping.set()
    await until(lambda: "the link to rank 0's sidecar broke" in caplog.text)
    told = {record.levelname for record in caplog.records if "link to rank 0's sidecar broke" in record.msg}
    assert told == {"INFO" if finished else "WARNING"}


async def test_it_lasts_while_the_next_round_forms(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    formed.job("Forming", 2, zero, one, ping={})
    await until(lambda: not one.sidecar.watch._calm)
    assert open_links(zero) == open_links(one) == 1
    zero.stopping.set()
    await until(lambda: status(formed, one).get("suspects") == name(zero))


async def test_one_that_breaks_then_is_not_made_anew(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    formed.job("Forming", 2, zero, one, ping={})
    await until(lambda: not one.sidecar.watch._calm)
    round = one.sidecar.links._round
    assert round is not None
    next(iter(round._links.values())).abort()
    await until(lambda: round.calling is not None and round.calling.done())
    await until(lambda: status(formed, zero).get("suspects") == name(one))
    assert open_links(one) == 0


async def test_the_next_round_has_its_own(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    old = zero.sidecar.links._round
    form(formed, 2)
    await until(lambda: zero.sidecar.links._round is not old and open_links(zero) == open_links(one) == 1)


async def test_the_last_rounds_lines_are_closed_as_its_own_are_made(formed: TwoSidecars) -> None:
    """In no round's way; rank 0 closes what is left."""
    zero, one = formed.workers
    old, of_zero = one.sidecar.links._round, zero.sidecar.links._round
    assert old is not None
    assert of_zero is not None
    assert QUICK.earliest <= old.closing_seconds() <= QUICK.latest == of_zero.closing_seconds()
    [link] = old._links.values()
    form(formed, 2)
    await until(lambda: link.closed.done() and open_links(zero) == open_links(one) == 1)
    await until(lambda: not (zero.sidecar.links._past or one.sidecar.links._past))


# --- suspicion


@pytest.mark.parametrize("gone", [0, 1])
async def test_who_is_gone_is_suspected_by_the_other(formed: TwoSidecars, gone: int) -> None:
    lost, other = formed.workers[gone], formed.workers[1 - gone]
    lost.stopping.set()
    await until(lambda: status(formed, other).get("suspects") == name(lost))
    assert other.sidecar.metrics.suspicions._value.get() == 1


async def test_a_way_that_falls_silent_is_suspected_at_both_ends_until_it_is_heard_again(pair: TwoSidecars) -> None:
    zero, one = pair.workers
    async with Way(zero.ports.tunnel) as way:
        form(pair, store=zero.store.replace(str(zero.ports.tunnel), str(way.port), 1))
        await until(lambda: open_links(zero) == open_links(one) == 1)
        way.passes.clear()
        await until(lambda: status(pair, zero).get("suspects") == name(one))
        await until(lambda: status(pair, one).get("suspects") == name(zero))
        way.passes.set()
        await until(lambda: "suspects" not in status(pair, zero) and "suspects" not in status(pair, one))


async def test_a_worker_that_cannot_be_reached_from_the_start_is_suspected(pair: TwoSidecars) -> None:
    zero, one = pair.workers
    form(pair, store=zero.store.replace(str(zero.ports.tunnel), "1", 1))
    await until(lambda: status(pair, zero).get("suspects") == name(one))
    await until(lambda: status(pair, one).get("suspects") == name(zero))


class Way:
    """Between a caller and a port of this machine: while nothing passes, nobody is told so."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.passes = asyncio.Event()
        self.passes.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> "Way":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.passes.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        for one, other in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._forward(one, other))
            self._tasks.add(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(4096):
                await self.passes.wait()
                writer.write(data)


# --- answers


async def test_who_is_asked_answers(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    form(formed, number=3, members=name(one))
    await until(lambda: status(formed, one).get("ack") == 3)
    form(formed, number=4, members=f"{name(zero)} {name(one)}")
    await until(lambda: [status(formed, worker).get("ack") for worker in formed.workers] == [4, 4])
    assert [worker.sidecar.metrics.acks._value.get() for worker in formed.workers] == [1, 2]


async def test_who_is_not_asked_writes_nothing(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    form(formed, number=3, members=name(one))
    await until(lambda: status(formed, one).get("ack") == 3)
    assert zero.machine.job is not None
    assert zero.machine.job.ping is not None
    assert zero.machine.job.ping.number == 3
    assert not status(formed, zero).get("ack")


# --- who may have one


@contextlib.asynccontextmanager
async def a_line(
    worker: Worker, asked: str, who: Credentials
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A caller's connection with `who`'s certificate, after rank 0's first word."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", worker.ports.tunnel, ssl=who.client_context(), server_hostname=asked
    )
    with contextlib.closing(writer):
        with contextlib.suppress(ConnectionError):  # a newer one may have come already
            await reader.readline()
        yield reader, writer


async def ask(worker: Worker, asked: str, who: Credentials, say: bytes = b".") -> bytes:
    """What comes back to such a caller."""
    try:
        async with within("an answer of the tunnel"), a_line(worker, asked, who) as (reader, writer):
            writer.write(say)
            return await reader.read(1)
    except (ConnectionError, ssl.SSLError):
        return b""


async def test_a_members_sign_is_answered(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    assert await ask(zero, NAME, one.credentials) == b"."


async def test_a_strangers_is_not(formed: TwoSidecars) -> None:
    assert await ask(formed.workers[0], NAME, new_credentials()) == b""


async def test_a_line_of_another_round_is_not(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    assert await ask(zero, link_name(JOB_UID, 2), one.credentials) == b""


async def test_other_bytes_end_it(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    assert await ask(zero, NAME, one.credentials, b".\x00.") == b""


async def test_a_members_newer_line_takes_the_place_of_the_older(formed: TwoSidecars) -> None:
    """So a member holds no more than one, however many it keeps open."""
    zero, one = formed.workers
    async with contextlib.AsyncExitStack() as kept:
        for _ in range(5):
            _, writer = await kept.enter_async_context(a_line(zero, NAME, one.credentials))
            writer.write(b".")
        await until(lambda: open_links(zero) <= 1)


async def test_a_line_is_no_way_to_the_store(formed: TwoSidecars) -> None:
    """Nor the other way round: the name that TLS has checked says which of the two it is."""
    zero, one = formed.workers
    assert await ask(zero, server_name(JOB_UID, 1), one.credentials) == b""
