# SPDX-License-Identifier: Apache-2.0
"""The sidecars' sockets: the trainer's API, the tunnel, health. See `two_sidecars`."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from elasticjob.api import TROUBLE_PATH
from elasticjob.kube.errors import Denied
from elasticjob_sidecar import app, sockets
from elasticjob_sidecar.api_server.in_cluster import InCluster
from elasticjob_sidecar.store import tunnel
from elasticjob_sidecar.store.connection import Connection, dial, listen
from elasticjob_torch import wire
from support.faulty_kube import FaultyKube, Json
from support.two_sidecars import TwoSidecars, Worker, next_event, store, until
from support.waiting import in_time, within

TCP_REPAIR = 19  # linux/tcp.h


async def test_a_round_from_join_to_store(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    asked = asyncio.create_task(one.call("GET", "store?round=1&timeout=10"))
    async with store() as server:
        await zero.serve_store(1, server)
        assert await asked == (200, {"host": "127.0.0.1", "port": one.ports.store})
        assert await zero.call("GET", "store?round=1&timeout=10") == (
            200,
            {"host": "127.0.0.1", "port": zero.ports.store},
        )
        for worker in pair.workers:
            reader, writer = await worker.connect()
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.write_eof()
            # half-closed: what the store still says arrives, unless TLS is in between, which knows no half-close
            assert await reader.read() == (b"bye" if worker is zero else b"")
            writer.close()


async def test_the_connection_that_found_the_store_serves_the_trainer(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    admitted = zero.sidecar.metrics.tunnels_opened.labels("peer")
    async with store() as server:
        await zero.serve_store(1, server)
        for expected in (1, 2):  # it is used once
            assert (await one.call("GET", "store?round=1&timeout=10"))[0] == 200
            reader, writer = await one.connect()
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            assert admitted._value.get() == expected
            writer.close()


async def test_a_join_is_answered_with_the_stores_address_and_does_not_wait_for_it(pair: TwoSidecars) -> None:
    await pair.form()
    addresses = [{"host": "127.0.0.1", "port": worker.ports.store} for worker in pair.workers]
    assert [answer["store"] for answer in pair.joined] == addresses


async def test_many_bytes_arrive_whole(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    data = os.urandom(1 << 20) * 8
    async with store() as server:
        await zero.serve_store(1, server)
        reader, writer = await one.connect()
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()


async def test_what_a_slow_reader_does_not_take_is_not_piled_up() -> None:
    loop = asyncio.get_running_loop()
    accepted: asyncio.Queue[Connection] = asyncio.Queue()
    server = await listen("127.0.0.1", 0, accepted.put_nowait)
    with socket.create_server(("127.0.0.1", 0)) as slow, socket.socket() as fast:
        fast.setblocking(False)
        await loop.sock_connect(fast, server.sockets[0].getsockname())
        near, far = await accepted.get(), await dial(*slow.getsockname())
        near.splice(far, lambda _: None)
        taker, _ = slow.accept()
        data, sent = memoryview(os.urandom(1 << 20)), 0
        goes_on = True
        while not (buffered := far._transport.get_write_buffer_size()) or goes_on:
            goes_on = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await loop.sock_sendall(fast, data)
                    sent, goes_on = sent + len(data), True
            assert sent < 64 << 20
        assert buffered < 512 * 1024  # what was read in one go beyond the 64 KiB at which reading pauses
        near.abort()
        far.abort()
        await asyncio.gather(near.closed, far.closed)
        taker.close()
    server.close()


async def test_a_connection_whose_other_end_takes_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "GONE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        near, far = await dial(*gone.getsockname()), await dial(*gone.getsockname())
        near.splice(far, lambda _: None)
        far.write(bytes(16 << 20))  # more than the kernel takes: the rest is under way for ever
        async with within("the end of a connection whose other end takes nothing"):
            await asyncio.gather(near.closed, far.closed)


async def test_a_half_open_connection_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end vanishes without a word, as that of a machine which loses its power."""
    for name in ("IDLE", "INTERVAL", "PROBES"):
        monkeypatch.setattr(sockets, name, 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        near, far = await dial(*server.getsockname()), await dial(*server.getsockname())
        near.splice(far, lambda _: None)
        vanishing, _ = server.accept()
        try:
            vanishing.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)  # closes without FIN or RST
        except PermissionError:
            pytest.skip("only root can let a connection vanish")
        vanishing.close()
        async with within("the end of a half-open connection"):
            await asyncio.gather(near.closed, far.closed)


async def test_a_killed_trainer_is_noticed_at_once(pair: TwoSidecars) -> None:
    pair.job("Forming", 1)
    zero, one = pair.workers
    client = (
        "import http.client, json, sys\n"
        f"c = http.client.HTTPConnection('127.0.0.1', {zero.ports.trainer_api})\n"
        "c.request('GET', '/v1/rendezvous/events?trainer=killed&round=0')\n"
        "r = c.getresponse(); print(r.status, flush=True); r.read()\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", client, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"200\n"
    zero.trainer = "killed"
    await one.stream()
    joins = [asyncio.create_task(worker.join()) for worker in pair.workers]
    await until(lambda: all((pair.kube.request(f"job-{i}-0") or {}).get("type") == "Join" for i in (0, 1)))
    pair.job("Formed", 1, zero, one)
    await asyncio.gather(*joins)
    process.send_signal(signal.SIGKILL)
    with in_time("the trainer's end to be noticed, before it is silent for long", 4):
        await until(lambda: (pair.kube.request("job-0-0") or {}).get("type") == "Leave")
    assert pair.kube.request("job-0-0") == {"type": "Leave", "cause": "AgentLost"}
    await process.wait()


async def test_the_stream_tells_each_change_once(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    stream = await zero.stream()  # a reconnect of the same trainer
    event = await next_event(stream)
    assert (event["round"], event["phase"], event["handed"], event["changed"]) == (1, "Formed", 1, False)
    pair.job("Formed", 1, zero, one)  # nothing new
    pair.job("Formed", 1, zero, one, waiting=1)
    event = await next_event(stream)
    assert (event["waiting"], event["changed"]) == (1, False)
    pair.job("Forming", 2, zero, one, reason="scaled from 2 to 3")
    event = await next_event(stream)
    assert (event["round"], event["changed"], event["reason"]) == (2, True, "scaled from 2 to 3")
    pair.job("Closed", 2, zero, one, outcome="Failed", reason="enough")
    event = await next_event(stream)
    assert (event["closed"], event["outcome"]) == (True, "Failed")
    status, body = await zero.join(after=1, cause="MembershipChanged")
    assert (status, body) == (410, {"error": {"code": "Closed", "message": "enough", "outcome": "Failed"}})


async def test_a_second_trainer_waits_for_the_end_of_the_first(pair: TwoSidecars) -> None:
    pair.job("Forming", 1)
    zero, _ = pair.workers
    first = await zero.stream()
    zero.trainer = "newer"
    second = asyncio.create_task(zero.stream())
    status, body = await zero.join()
    assert (status, body["error"]["code"]) == (409, "NoTrainer")
    first.close()
    async with within("the stream of the second"):
        await second
    zero.trainer = "trainer-0"
    status, body = await zero.join()
    assert (status, body["error"]["code"]) == (409, "Superseded")


async def test_a_change_of_round_ends_what_waits_for_its_store_and_what_is_connected_to_it(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    async with store() as server:
        await zero.serve_store(1, server)
        reader, writer = await one.connect()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        asked = asyncio.create_task(one.call("GET", "store?round=2&timeout=10"))
        status, body = await asked
        assert (status, body["error"]["code"]) == (409, "RoundBroken")
        pair.job("Forming", 2, zero, one)
        await until(lambda: one.machine.job is not None and one.machine.job.round == 2)
        writer.write(b"y")
        assert await reader.readexactly(1) == b"y"  # workers may still save what they have
        late, late_writer = await one.connect()
        with contextlib.suppress(ConnectionError):
            assert await late.read() == b""  # but nobody new gets in
        late_writer.close()
        join = asyncio.create_task(one.join(after=1, cause="MembershipChanged"))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        join.cancel()


async def test_a_broken_round_ends_the_wait_for_its_store(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    asked = asyncio.create_task(one.call("GET", "store?round=1&timeout=10"))
    await until(lambda: bool(zero.sidecar.tunnel))
    pair.job("Forming", 2, zero, one)
    status, body = await asked
    assert (status, body["error"]["code"]) == (409, "RoundBroken")


async def test_a_store_that_never_comes(pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "HOLD_SECONDS", 0.02)
    await pair.form()
    status, body = await pair.workers[1].call("GET", "store?round=1&timeout=1")
    assert (status, body["error"]["code"]) == (504, "StoreTimeout")
    assert body["error"]["message"].endswith("the store of round 1 is not served yet, after 0.02 s")


async def test_a_process_that_comes_before_the_store_is_held_until_it_is_there(
    pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed, torch's client writes two C++ stacks to the script's log, and comes again."""
    monkeypatch.setattr(tunnel, "HOLD_SECONDS", 0.02)
    await pair.form()
    zero, _ = pair.workers
    early = [await worker.connect() for worker in pair.workers]
    for _, writer in early:
        writer.write(b"x")
    await asyncio.sleep(0.3)  # rank 0's sidecar has turned the other's away some times
    async with store() as server:
        await zero.serve_store(1, server)
        for reader, writer in early:
            async with within("an answer of the store"):
                assert await reader.readexactly(1) == b"x"
            writer.close()


async def test_a_process_is_not_held_beyond_the_end_of_its_round(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    reader, writer = await one.connect()
    await until(lambda: bool(one.sidecar.tunnel._trainers))
    pair.job("Forming", 2, zero, one)
    async with within("the end of the connection", tunnel.HELD_SECONDS / 3):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_a_process_is_not_held_for_ever(pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLD_SECONDS", "HELD_SECONDS", "MARGIN_SECONDS"):
        monkeypatch.setattr(tunnel, name, 0.02)
    monkeypatch.setattr(tunnel, "admission_seconds", lambda _: 0.02)
    await pair.form()
    reader, writer = await pair.workers[1].connect()
    async with within("the end of the connection"):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_without_a_round_a_connection_to_the_store_is_closed(pair: TwoSidecars) -> None:
    reader, writer = await pair.workers[0].connect()
    async with within("the end of the connection"):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_finish_is_answered_once_the_api_has_it(pair: TwoSidecars) -> None:
    await pair.form()
    zero, _ = pair.workers
    pair.kube.open.clear()
    finish = asyncio.create_task(zero.call("POST", "finish", trainer=zero.trainer, round=1))
    await until(lambda: zero.machine.mode.value == "Finished")
    assert not finish.done()
    pair.kube.open.set()
    assert await finish == (204, None)
    assert pair.kube.request("job-0-0") == {"type": "Finish", "round": 1}


async def test_an_api_server_that_stays_away_is_told(pair: TwoSidecars) -> None:
    await pair.form()
    zero, _ = pair.workers
    pair.kube.open.clear()
    status, body = await zero.call("POST", "leave", trainer=zero.trainer, timeout=0.05)
    message = "the API server did not take the leave within 0.05 s; it is still to be sent"
    assert (status, body["error"]) == (504, {"code": "ApiServerAway", "message": message})
    pair.kube.open.set()
    await until(lambda: pair.kube.request("job-0-0") == {"type": "Leave", "cause": "TrainerLeft"})


async def test_a_join_interrupted_by_the_client_stands_until_it_asks_again(pair: TwoSidecars) -> None:
    pair.job("Forming", 1)
    zero, one = pair.workers
    await zero.stream()
    first = asyncio.create_task(zero.join())
    await until(lambda: zero.machine._request is not None)
    first.cancel()
    await until(lambda: not zero.machine._waiter)
    pair.job("Formed", 1, zero, one)
    assert (await zero.join())[1]["rank"] == 0


async def test_the_record_of_a_join_names_its_limits_also_when_it_is_renewed(pair: TwoSidecars) -> None:
    pair.job("Forming", 1)
    zero, one = pair.workers
    await zero.stream()
    said = {"trainer": zero.trainer, "lastCall": 5, "workerLost": 20}
    asked = asyncio.create_task(zero.call("POST", "rendezvous", **said))
    limits = {"lastCallSeconds": 5, "workerLostSeconds": 20}
    await until(lambda: pair.kube.request("job-0-0") == {"type": "Join", "after": 0, "cause": "Started", **limits})
    pair.job("Formed", 1, one)
    await until(lambda: pair.kube.request("job-0-0") == {"type": "Join", "after": 1, "cause": "Renewed", **limits})
    asked.cancel()


async def test_the_record_of_a_join_says_what_failed_in_few_plain_words(pair: TwoSidecars) -> None:
    pair.job("Forming", 1)
    zero, _ = pair.workers
    await zero.stream()
    detail = "rank 3, exit code 1: ValueError:\n\x00 no data\u2028" + 9000 * "!"
    asked = asyncio.create_task(
        zero.call("POST", "rendezvous", trainer=zero.trainer, cause="WorkerFailed", detail=detail)
    )
    await until(lambda: pair.kube.request("job-0-0") is not None)
    told = pair.kube.request("job-0-0")["detail"]
    assert (told[:44], len(told)) == ("rank 3, exit code 1: ValueError: no data !!!", 300)
    asked.cancel()


async def test_a_body_that_does_not_come_is_not_awaited(pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "BODY_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.workers[0].ports.trainer_api)
    writer.write(b"POST /v1/leave HTTP/1.1\r\nHost: sidecar\r\nContent-Length: 10\r\n\r\n")
    async with within("a refusal of the body"):
        answer = await reader.readuntil(b"}}")
    assert b"408 Request Timeout" in answer
    assert b'"code": "BodyLate"' in answer
    assert b"the request's body did not come within 0.05 s" in answer
    writer.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "rendezvous", {"trainer": "t"}, 409, "this trainer has no open events stream"),
        ("POST", "rendezvous", {}, 400, "the request's body must be JSON"),
        ("POST", "rendezvous", {"after": 0}, 400, "trainer: is missing"),
        ("POST", "rendezvous", {"trainer": "t", "cause": "AgentLost"}, 400, "cause: must be one of Started, WorkerFai"),
        ("POST", "rendezvous", {"trainer": "t", "lastCall": 0}, 400, "lastCall: "),
        ("POST", "rendezvous", {"trainer": "t", "workerLost": 9}, 400, "workerLost: "),
        ("POST", "store", {"trainer": "t", "round": 1, "port": 0}, 400, "port: "),
        ("GET", "store?round=1&timeout=forever", {}, 400, "timeout: "),
        ("GET", "store?round=1", {}, 409, "round 1 is over for this worker"),
        ("POST", "finish", {"trainer": "t", "round": 0}, 400, "round: "),
        ("POST", "nowhere", {}, 404, "POST /v1/nowhere"),
        ("DELETE", "rendezvous", {}, 405, "DELETE /v1/rendezvous"),
    ],
)
async def test_a_wrong_request_is_answered_with_a_sentence(
    pair: TwoSidecars, method: str, path: str, body: Json, status: int, message: str
) -> None:
    got, answer = await pair.workers[0].call(method, path, **body)
    assert got == status
    assert message in answer["error"]["message"]


async def test_progress_is_shown_and_a_nan_is_no_error(pair: TwoSidecars) -> None:
    zero, _ = pair.workers
    body = '{"trainer": "t", "step": 7, "total": 9, "metrics": {"loss": 0.5, "broken": NaN}}'
    async with zero.http.post(zero.url("progress"), data=body) as response:
        assert response.status == 204
    progress = zero.sidecar.record._status.progress
    assert (progress.step, progress.total, progress.metrics) == (7, 9, {"loss": 0.5})


async def test_health_and_metrics(pair: TwoSidecars) -> None:
    await pair.form()
    zero, _ = pair.workers
    base = f"http://127.0.0.1:{zero.ports.health}"
    async with zero.http.get(f"{base}/healthz") as response:
        assert (response.status, await response.text()) == (200, "ok\n")
    async with zero.http.get(f"{base}/readyz") as response:
        assert response.status == 200
    async with zero.http.get(f"{base}/metrics") as response:
        text = await response.text()
    assert "elasticjob_sidecar_rounds_handed_total 1.0" in text
    assert 'elasticjob_sidecar_joins_total{cause="Started"} 1.0' in text
    zero.sidecar.record._ours = False
    async with zero.http.get(f"{base}/readyz") as response:
        assert response.status == 503


async def test_what_keeps_a_sidecar_from_joining_is_at_a_page_of_its_own(pair: TwoSidecars) -> None:
    zero, _ = pair.workers

    async def page(path: str) -> str:
        async with zero.http.get(f"http://127.0.0.1:{zero.ports.health}{path}") as response:
            return await response.text()

    assert await page(TROUBLE_PATH) == ""
    zero.sidecar.record._ours = False
    pair.kube.fail["get"] = [Denied("the API server answered 403: not here", 403)] * 99
    zero.sidecar.record._pending.set()
    await until(lambda: zero.sidecar.record.trouble)
    why = "its ElasticWorker cannot be written: the API server answered 403: not here"
    assert await page(TROUBLE_PATH) == why
    assert await page("/readyz") == f"not ready: {why}\n"


async def test_the_pod_stops(pair: TwoSidecars) -> None:
    await pair.form()
    zero, _ = pair.workers
    zero.stopping.set()
    await until(lambda: pair.kube.request("job-0-0") == {"type": "Leave", "cause": "PodStopping"})


async def test_the_pod_stops_though_the_api_server_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "GOODBYE_SECONDS", 0.05)
    kube = FaultyKube()
    kube.open.clear()
    async with aiohttp.ClientSession() as http, within("the sidecar's end"):
        worker = Worker(kube, 0, http)
        worker.stopping.set()
        await worker.sidecar.run(worker.stopping)
    assert "the API server did not take the Leave within 0.05 s" in caplog.text


async def test_a_part_that_does_not_stop_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "STOP_SECONDS", 0.05)
    freed = asyncio.Event()

    async def stubborn() -> None:
        while not freed.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await freed.wait()

    async with aiohttp.ClientSession() as http, within("the sidecar's end"):
        worker = Worker(FaultyKube(), 0, http)
        monkeypatch.setattr(worker.sidecar.watch, "run", stubborn)
        worker.stopping.set()
        await worker.sidecar.run(worker.stopping)
    assert "the sidecar's tasks did not stop within 0.05 s" in caplog.text
    freed.set()


class ClosableKube(FaultyKube):
    def __init__(self, *_: object) -> None:
        super().__init__()

    async def close(self) -> None:
        pass


async def started(http: aiohttp.ClientSession, folder: Path) -> None:
    """A whole sidecar."""
    worker = Worker(FaultyKube(), 0, http)
    config = worker.sidecar._config.model_copy(update={"state_dir": folder})
    await app.run(config, worker.credentials, worker.ports, InCluster("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("part", "error"), [("serve", app.StartError), ("run", OSError)], ids=["while it starts", "while it runs"]
)
async def test_a_port_that_is_taken_is_told_and_nothing_else_as_that(
    part: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(app, "KubeApi", ClosableKube)
    monkeypatch.setattr(app, "connected", lambda _: None)
    monkeypatch.setattr(app.Sidecar, part, fail)
    async with aiohttp.ClientSession() as http, within("the sidecar's failure"):
        with pytest.raises(error, match="Too many open files"):
            await started(http, tmp_path)


async def test_a_trainer_is_told_to_look_at_its_processes_and_what_it_finds_is_recorded(pair: TwoSidecars) -> None:
    await pair.form()
    one = pair.workers[1]
    stream = await one.stream(round=1)
    assert (await next_event(stream))["stalled"] is False
    assert await one.call("POST", "progress", step=7) == (204, None)
    pair.job("Formed", 1, *pair.workers, stalled=1)
    assert (await next_event(stream))["stalled"] is True
    looked = {"trainer": one.trainer, "round": 1, "state": "Computes", "local_rank": 2}
    assert await one.call("POST", "processes", **looked) == (204, None)
    said = {"round": 1, "stalled": False, "step": 7, "process": "Computes", "localRank": 2}
    await until(lambda: pair.kube.workers["job-1-0"].get("status", {}).get("stall") == said)
    status, answer = await one.call("POST", "processes", **looked | {"round": 2})
    assert (status, answer["error"]["code"]) == (409, "RoundBroken")
    status, answer = await one.call("POST", "processes", **looked | {"state": "Sleeps"})
    assert (status, answer["error"]["code"]) == (400, "BadRequest")


async def test_the_record_says_whose_processes_live_through_changes(pair: TwoSidecars) -> None:
    await pair.form()
    one = pair.workers[1]
    stream = await one.stream(round=1)
    assert (await next_event(stream))["live"] is False
    opted_in = {"trainer": one.trainer, "round": 1}
    assert await one.call("POST", "live", **opted_in) == (204, None)
    await until(lambda: pair.kube.workers["job-1-0"].get("status", {}).get("live") == 1)
    pair.job("Formed", 1, *pair.workers, live="0-1")
    assert (await next_event(stream))["live"] is True
    pair.job("Forming", 2, *pair.workers, live="0-1")
    assert (await next_event(stream))["changed"] is True
    join = {"trainer": one.trainer, "after": 1, "cause": "MembershipChanged", "live": True}
    asked = asyncio.create_task(one.call("POST", "rendezvous", **join))
    said = {"type": "Join", "after": 1, "cause": "MembershipChanged", "live": True}
    await until(lambda: pair.kube.request("job-1-0") == said)
    pair.job("Forming", 2, *pair.workers, live="0-1", restartRound=2, reason="a restart was asked for")
    status, answer = await asked
    assert (status, answer["error"]["code"]) == (409, "NewProcesses")
    assert answer["error"]["message"].endswith("have to be new: a restart was asked for")
    event = await next_event(stream)
    assert (event["live"], event["restart"]) == (False, True)
    status, answer = await one.call("POST", "live", **opted_in)
    assert (status, answer["error"]["code"]) == (409, "RoundBroken")
    mends = {"trainer": one.trainer, "cause": "WorkerFailed", "detail": "exit code 1: no data", "exitCode": 1}
    assert await one.call("POST", "leave", **mends) == (204, None)
    said = {"type": "Leave", "cause": "WorkerFailed", "detail": "exit code 1: no data", "exitCode": 1}
    assert pair.kube.request("job-1-0") == said | {"failureKind": "Unknown"}
