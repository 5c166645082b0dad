# SPDX-License-Identifier: Apache-2.0
"""Who is let in to the round's store by another sidecar, over real TLS: exactly the round's other members."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from elasticjob.api import Member
from elasticjob.kube.errors import Denied, Unavailable
from elasticjob.kube.retry import Backoff
from elasticjob.members import Members
from elasticjob_sidecar.api_server.worker_status import ScriptProgress
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_sidecar.store import transport
from elasticjob_sidecar.store.credentials import Credentials, CredentialsError, CredentialsMaker, server_name
from elasticjob_sidecar.store.transport import PeerTransport
from support.faulty_kube import JOB_UID, Json
from support.pod_life import new_credentials
from support.two_sidecars import DEADLINE, TwoSidecars, Worker, store, two_workers, until
from support.waiting import within

NAME = server_name(JOB_UID, 1)
TWO = Member(2, "2")


def record_of_2(certificate: str) -> Json:
    return {
        "metadata": {"labels": {"elasticjob.io/job": "job", "elasticjob.io/index": str(TWO.index)}},
        "spec": {"job": "job", "index": TWO.index, "id": TWO.id, "certificate": certificate},
    }


def listings(pair: TwoSidecars) -> int:
    """How many of records the API server has answered."""
    calls = pair.kube.server.calls
    return sum((call.method, call.plural, call.name) == ("GET", "elasticworkers", "") for call in calls)


@pytest.fixture
async def pair(patient: None) -> AsyncIterator[TwoSidecars]:
    async with two_workers() as pair:
        yield pair


@pytest.fixture
async def formed(pair: TwoSidecars) -> AsyncIterator[TwoSidecars]:
    """Round 1 is formed of both workers, and worker 0 serves its store."""
    await pair.form()
    async with store() as server:
        await pair.workers[0].serve_store(1, server)
        yield pair


def own(worker: Worker) -> Credentials:
    return worker.credentials


async def ask(worker: Worker, name: str | None, who: Credentials | None) -> str:
    """What a caller with `who`'s certificate is told when it asks for `name`: `ok`, or why the connection ended."""
    context = ssl.create_default_context() if who is None else who.client_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with within("an answer of the tunnel"):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", worker.ports.tunnel, ssl=context, server_hostname=name or ""
            )
            with contextlib.closing(writer):
                line = await reader.readline()
    except (ConnectionError, ssl.SSLError):
        return "closed"
    answer = json.loads(line) if line else {"code": "closed"}
    return "ok" if answer.get("ok") else str(answer["code"])


async def test_a_member_is_let_in(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    assert await ask(zero, NAME, own(one)) == "ok"


async def test_a_port_after_the_stores_at_which_nothing_serves(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    assert await ask(zero, server_name(JOB_UID, 1, 1), own(one)) == "NotYet"


async def test_rank_0s_record_says_when_the_processes_of_all_have_connected(formed: TwoSidecars) -> None:
    """Here of each worker two, as the number is not known."""
    zero, one = formed.workers
    connections = [await worker.connect() for worker in (one, zero, one)]
    said = lambda: formed.kube.workers["job-0-0"].get("status", {})  # noqa: E731
    await until(lambda: zero.sidecar.metrics.tunnels._value.get() == 3)
    assert zero.sidecar.record._status.connected is None
    connections.append(await zero.connect())
    await until(lambda: said().get("connected") == 1)
    assert not formed.kube.workers["job-1-0"].get("status", {}).get("connected")
    for _, writer in connections:
        writer.close()


async def test_a_connection_to_a_port_after_the_stores_is_no_training_process(formed: TwoSidecars) -> None:
    """What serves there is a library's or the script's own, and may be called before there is a process group."""
    zero, one = formed.workers
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", zero.ports.store + 1)
    async with server:
        for _ in range(2):
            assert await ask(zero, server_name(JOB_UID, 1, 1), own(one)) == "ok"
    connections = [await zero.connect() for _ in range(2)]
    await until(lambda: zero.sidecar.tunnel._callers._came[zero.sidecar.driver.standing.me] == 2)
    assert zero.sidecar.record._status.connected is None
    for _, writer in connections:
        writer.close()


async def refusal(caplog: pytest.LogCaptureFixture, worker: Worker, name: str | None, who: Credentials | None) -> str:
    """Why the listener closed the connection; the caller is not told."""
    with caplog.at_level("INFO", logger=transport.__name__):
        assert await ask(worker, name, who) == "closed"
        await until(lambda: "not let in" in caplog.text)
    return caplog.text


async def test_no_certificate(formed: TwoSidecars, caplog: pytest.LogCaptureFixture) -> None:
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in await refusal(caplog, formed.workers[0], NAME, None)


async def test_a_certificate_that_is_no_members(formed: TwoSidecars, caplog: pytest.LogCaptureFixture) -> None:
    """Of another job, of an earlier incarnation, of a lost member: none of them is the round's."""
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(caplog, formed.workers[0], NAME, new_credentials())


@pytest.mark.parametrize(
    "name",
    [server_name(JOB_UID, 2), server_name("another-job", 1), server_name(JOB_UID, 1, 129), "elasticjob", None],
    ids=["another round", "another job", "a port too far", "none of them", "no name"],
)
async def test_another_server_name(formed: TwoSidecars, name: str | None, caplog: pytest.LogCaptureFixture) -> None:
    zero, one = formed.workers
    assert "does not ask for round 1 of this job" in await refusal(caplog, zero, name, own(one))


async def test_another_server_name_that_tells_of_the_right_one(
    formed: TwoSidecars, caplog: pytest.LogCaptureFixture
) -> None:
    """What is looked at before TLS is no more than a look: TLS itself goes by the whole name."""
    zero, one = formed.workers
    assert "CALLBACK_FAILED" in await refusal(caplog, zero, f"{NAME}.elsewhere", own(one))


async def test_a_certificate_that_a_member_has_signed(formed: TwoSidecars, caplog: pytest.LogCaptureFixture) -> None:
    zero, one = formed.workers
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(caplog, zero, NAME, signed_by(own(one)))


async def test_plain_tcp(formed: TwoSidecars, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", formed.workers[0].ports.tunnel)
    writer.write(b'{"job": "job", "round": 1}\n')
    async with within("the end of the connection"):
        with contextlib.suppress(ConnectionError):
            assert b"ok" not in await reader.read()
    writer.close()


async def test_an_older_version_of_tls(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    context = own(one).client_context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await asyncio.open_connection("127.0.0.1", zero.ports.tunnel, ssl=context, server_hostname=NAME)


async def test_a_silent_caller_is_closed(formed: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ADMISSION_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", formed.workers[0].ports.tunnel)
    async with within("the end of the connection"):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_who_comes_before_the_round_has_the_time_that_its_members_have(
    pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a large round come at once, and it may be long before it is one's turn."""
    monkeypatch.setattr(transport, "ADMISSION_SECONDS", 1.0)
    monkeypatch.setattr(transport, "ADMISSION_SECONDS_EACH", DEADLINE)
    zero, one = pair.workers
    at_the_port = zero.sidecar.tunnel._transport._listener
    assert at_the_port is not None
    secure = at_the_port.secure

    async def in_turn(*asked: Any) -> Any:
        await asyncio.sleep(1.1)
        return await secure(*asked)

    monkeypatch.setattr(at_the_port, "secure", in_turn)
    asking = asyncio.create_task(ask(zero, NAME, own(one)))
    await until(lambda: len(at_the_port.slots) == 1)
    pair.job("Formed", 1, zero, one)
    assert await asking == "NotYet"


async def test_rank_0_only_serves_the_store(formed: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TRUST_SECONDS", 0.05)
    zero, one = formed.workers
    assert await ask(one, NAME, own(zero)) == "closed"


async def test_a_round_that_is_over_trusts_nobody(formed: TwoSidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TRUST_SECONDS", 0.05)
    zero, one = formed.workers
    formed.job("Forming", 2, zero, one)
    await until(lambda: zero.machine.job is not None and zero.machine.job.round == 2)
    assert await ask(zero, NAME, own(one)) == "closed"


async def test_the_next_round_trusts_its_own_members_only(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    third, earlier = new_credentials(), own(one)
    formed.kube.workers["job-2-0"] = record_of_2(third.certificate)
    participants = str(Members((zero.machine.me, TWO)))
    name = server_name(JOB_UID, 2)
    formed.kube.set_job({"phase": "Formed", "round": 2, "participants": participants, "store": zero.store})
    await until(lambda: zero.machine.job is not None and zero.machine.job.round == 2)
    assert await ask(zero, name, earlier) == "closed"
    # let in by TLS; what is not there yet is the store, as no trainer has fetched round 2
    assert await ask(zero, name, third) == "NotYet"


async def test_worker_0_learns_the_certificates_before_the_first_round(pair: TwoSidecars) -> None:
    zero, one = pair.workers
    pair.job("Forming", 1)
    for worker in pair.workers:
        await worker.stream()
    joins = [asyncio.create_task(worker.join()) for worker in pair.workers]
    await until(lambda: pair.kube.count("list workers") == 1)
    pair.job("Formed", 1, zero, one)
    await asyncio.gather(*joins)
    async with store() as server:
        await zero.serve_store(1, server)
        assert (await one.call("GET", "store?round=1&timeout=10"))[0] == 200
    assert pair.kube.count("list workers") == 1


async def test_of_newcomers_only_it_asks_by_their_indices(pair: TwoSidecars) -> None:
    await pair.form()
    zero, one = pair.workers
    pair.kube.workers["job-2-0"] = record_of_2(new_credentials().certificate)
    pair.job("Forming", 2, zero, one)
    members = str(Members((zero.machine.me, one.machine.me, TWO)))
    pair.kube.set_job({"phase": "Formed", "round": 2, "participants": members, "store": zero.store})
    await until(lambda: ("list workers", {"indices": [2]}) in pair.kube.calls)


async def test_certificates_are_asked_for_again_until_all_are_there(pair: TwoSidecars) -> None:
    pair.kube.fail["list workers"] = [Unavailable("away")] * 2  # before the round is there, and after
    await pair.form()
    zero, one = pair.workers
    labels = pair.kube.workers["job-1-0"]["metadata"]["labels"]
    pair.kube.patch("job-1-0", {"metadata": {"labels": None}})  # no listing has it
    async with store() as server:
        await zero.serve_store(1, server)
        await until(lambda: listings(pair) >= 1)
        pair.kube.patch("job-1-0", {"metadata": {"labels": labels}})
        await until(lambda: listings(pair) >= 2)
        assert (await one.call("GET", "store?round=1&timeout=10"))[0] == 200


RIGHTS = 'User "u" cannot list resource "elasticworkers"'


@pytest.mark.parametrize("refused", ["list workers", "watch", "status"])
async def test_a_sidecar_whose_requests_are_refused_while_a_round_stands_is_not_ready_and_says_why(
    pair: TwoSidecars, refused: str
) -> None:
    """Its trainer has joined, so nothing else would tell of it."""
    zero = pair.workers[0]

    async def page(path: str) -> tuple[int, str]:
        async with zero.http.get(f"http://127.0.0.1:{zero.ports.health}/{path}") as answer:
            return answer.status, await answer.text()

    async def answers(readiness: int) -> bool:
        return (await page("readyz"))[0] == readiness

    pair.kube.fail[refused] = [Denied(f"the API server answered 403: {RIGHTS}", 403)] * 999
    await pair.form()
    for worker in pair.workers:
        worker.sidecar.record.end()
        worker.sidecar.record.say(progress=ScriptProgress(1, 10))
        worker.sidecar.watch.again()
    await until(lambda: answers(503))
    status, told = await page("trouble")
    assert status == 200
    assert told in (await page("readyz"))[1]
    assert "the Role and the RoleBinding job-worker give u the right to list elasticworkers" in told
    pair.kube.fail.clear()
    await until(lambda: answers(200))
    assert (await page("trouble"))[1] == ""


async def test_an_api_server_that_is_away_is_told_and_makes_no_pod_unready(pair: TwoSidecars) -> None:
    zero = pair.workers[0].sidecar
    pair.kube.fail["list workers"] = [Unavailable("no route to host")] * 999
    await pair.form()
    await until(lambda: zero.trust.trouble)
    assert "no route to host" in zero._trouble()
    assert zero._is_ready()


async def test_members_are_let_in_once_there_are_files_again(
    pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is handed to TLS in a file that is only in memory."""
    make, failures = os.memfd_create, [OSError(errno.EMFILE, "Too many open files")] * 2

    def sometimes(name: str) -> int:
        if failures:
            raise failures.pop()
        return make(name)

    monkeypatch.setattr(os, "memfd_create", sometimes)
    await pair.form()
    zero, one = pair.workers
    async with store() as server:
        await zero.serve_store(1, server)
        assert (await one.call("GET", "store?round=1&timeout=10"))[0] == 200
    assert not failures


async def test_the_next_round_does_not_wait_for_the_trouble_of_this_one(
    pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "next", lambda _: 60.0)
    pair.kube.fail["list workers"] = [Unavailable("away")]
    zero, one = pair.workers
    pair.job("Formed", 1, zero, one)
    await until(lambda: pair.kube.count("list workers") == 1)
    pair.job("Formed", 2, zero, one)
    await until(lambda: pair.kube.count("list workers") == 2)
    assert await ask(zero, server_name(JOB_UID, 2), own(one)) == "NotYet"


async def test_what_rings_meanwhile_does_not_end_the_pause_before_the_next_try(
    pair: TwoSidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "next", lambda _: 60.0)
    pair.kube.fail["list workers"] = [Unavailable("away")]
    zero, one = pair.workers
    for waiting in range(20):
        pair.job("Formed", 1, zero, one, waiting=waiting)
        await until(lambda: zero.machine.job is not None and zero.machine.job.waiting == waiting)  # noqa: B023
        await asyncio.sleep(0)
    assert pair.kube.count("list workers") == 1


async def test_a_certificate_under_another_id_is_of_no_use(
    pair: TwoSidecars, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = pair.kube.list_workers

    async def with_another_id(*asked: Any) -> list[Json]:
        return [{**record, "spec": {**record["spec"], "id": "f"}} for record in await listed(*asked)]

    monkeypatch.setattr(pair.kube, "list_workers", with_another_id)
    await pair.form()
    zero, one = pair.workers
    async with store() as server:
        await zero.serve_store(1, server)
        await until(lambda: pair.kube.count("list workers") >= 2)
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(caplog, zero, NAME, own(one))


@pytest.mark.parametrize("pod", ["job-2-0", "job-1-7"], ids=["another worker's", "one that does not count"])
async def test_only_the_pod_that_counts_speaks_for_a_worker(
    pair: TwoSidecars, caplog: pytest.LogCaptureFixture, pod: str
) -> None:
    """Who may create pods can give one a worker's name and service account, and copy what the true record says."""
    intruder, true = new_credentials(), pair.kube.workers["job-1-0"]
    pair.kube.workers[pod] = {
        "metadata": {"labels": true["metadata"]["labels"]},
        "spec": true["spec"] | {"certificate": intruder.certificate},
    }
    await pair.form()
    zero, one = pair.workers
    async with store() as server:
        await zero.serve_store(1, server)
        assert (await one.call("GET", "store?round=1&timeout=10"))[0] == 200
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(caplog, zero, NAME, intruder)


async def test_a_pod_that_was_replaced_speaks_for_its_worker_no_more(pair: TwoSidecars) -> None:
    zero, _ = pair.workers
    second = new_credentials()
    pair.kube.workers["job-2-1"] = record_of_2(second.certificate)
    pair.kube.workers["job-2-0"] = record_of_2(new_credentials().certificate)
    members = str(Members((zero.machine.me, TWO)))
    formed = {"phase": "Formed", "round": 1, "participants": members, "store": zero.store}
    pair.kube.set_job(formed, replacements="2/1")
    await until(lambda: pair.kube.count("list workers") == 1)
    assert await ask(zero, NAME, second) == "NotYet"


async def test_who_was_let_in_stays_so_while_the_pod_after_it_is_on_its_way(formed: TwoSidecars) -> None:
    """As its certificate is known; and the round stands."""
    zero, one = formed.workers
    participants = str(Members((zero.machine.me, one.machine.me)))
    standing = {"phase": "Formed", "round": 1, "participants": participants, "store": zero.store}
    assert await ask(zero, NAME, own(one)) == "ok"
    for waiting in (1, 2):
        formed.kube.set_job(standing | {"waiting": waiting}, replacements="1/1")
        await until(lambda: zero.machine.job is not None and zero.machine.job.waiting == waiting)  # noqa: B023
    assert await ask(zero, NAME, own(one)) == "ok"


async def test_a_member_without_a_real_certificate_does_not_keep_the_others_out(
    pair: TwoSidecars, caplog: pytest.LogCaptureFixture
) -> None:
    pair.kube.workers["job-2-0"] = record_of_2(ssl.DER_cert_to_PEM_cert(b"no certificate"))
    zero, one = pair.workers
    members = str(Members((zero.machine.me, one.machine.me, TWO)))
    pair.kube.set_job({"phase": "Formed", "round": 1, "participants": members, "store": zero.store})
    await until(lambda: "a member's certificate is none" in caplog.text)
    assert await ask(zero, NAME, own(one)) == "NotYet"


async def test_a_caller_checks_whom_it_has_reached(formed: TwoSidecars) -> None:
    zero, one = formed.workers
    with pytest.raises(Refused, match=f"{zero.address} is not the sidecar of the round's rank 0"):
        await PeerTransport(own(one), JOB_UID).connect(f"{zero.address}/{'0' * 32}", 1, 2)


async def test_a_caller_that_is_turned_away_names_rank_0_and_the_round(formed: TwoSidecars) -> None:
    zero, _ = formed.workers
    with pytest.raises(ConnectionError, match=f"sidecar at {zero.address} does not let this one in to round 1"):
        await PeerTransport(new_credentials(), JOB_UID).connect(zero.store, 1, 2)


async def test_no_other_port_than_the_forwarded_ones_can_be_asked_for(formed: TwoSidecars) -> None:
    """As none can be where the ports after the store's are the node's."""
    zero, one = formed.workers
    with pytest.raises(Refused, match="the store does not answer"):  # it was let in, and nobody listens there
        await PeerTransport(own(one), JOB_UID).connect(zero.store, 1, 2, offset=zero.ports.forwarded)
    with pytest.raises(ConnectionError, match="does not let this one in to round 1"):
        await PeerTransport(own(one), JOB_UID).connect(zero.store, 1, 2, offset=zero.ports.forwarded + 1)


async def test_a_silent_sidecar_of_rank_0_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ADMISSION_SECONDS", 0.04)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimeoutError, match=f"rank 0's sidecar at {address} did not answer within 0.05 s"):
            await PeerTransport(new_credentials(), JOB_UID).connect(f"{address}/{'0' * 32}", 1, 1)


async def test_200_connections_hold(formed: TwoSidecars) -> None:
    connections = await asyncio.gather(*(formed.workers[1].connect() for _ in range(200)))
    for number, (_, writer) in enumerate(connections):
        writer.write(b"%03d" % number)
    async with within("the echoes of 200 connections"):
        for number, (reader, _) in enumerate(connections):
            assert await reader.readexactly(3) == b"%03d" % number
    for _, writer in connections:
        writer.close()


@pytest.mark.parametrize("sender", ["trainer", "store"])
async def test_what_one_end_does_not_take_stops_the_other(pair: TwoSidecars, sender: str) -> None:
    """Back-pressure goes through both sidecars and TLS: what is not taken is not piled up in them."""
    await pair.form()
    zero, one = pair.workers
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def idle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.put_nowait(writer)

    server = await asyncio.start_server(idle, "127.0.0.1", 0)
    await zero.serve_store(1, server)
    _, trainer = await one.connect()
    store_end = await accepted.get()
    full = await sent_until_stopped(trainer if sender == "trainer" else store_end)
    assert 1 << 20 < full < 64 << 20
    for writer in (trainer, store_end):
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    server.close()


async def sent_until_stopped(writer: asyncio.StreamWriter) -> int:
    """How many bytes go before nothing has gone for half a second."""
    sent = 0
    while True:
        writer.write(bytes(1 << 20))
        try:
            async with asyncio.timeout(0.5):
                await writer.drain()
        except TimeoutError:
            return sent
        sent += 1 << 20


async def test_a_slow_caller_does_not_stall_another(formed: TwoSidecars) -> None:
    one = formed.workers[1]
    slow, slow_writer = await one.connect()
    stuck = asyncio.create_task(flood(slow_writer))  # its echo is never read
    reader, writer = await one.connect()
    for _ in range(20):
        writer.write(b"x" * 65536)
        async with within("an echo beside a slow reader"):
            await reader.readexactly(65536)
    assert not stuck.done()
    stuck.cancel()
    writer.close()
    slow_writer.transport.abort()
    assert not slow.at_eof()


async def flood(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(bytes(1 << 20))
        await writer.drain()


def test_credentials_are_made_by_another_process() -> None:
    first, second = CredentialsMaker().result(), CredentialsMaker().result()
    assert first.certificate != second.certificate
    assert "PRIVATE" not in repr(first)
    first.client_context()


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(CredentialsError):
        CredentialsMaker().result()


def signed_by(member: Credentials) -> Credentials:
    """A certificate that names the member as its issuer, with the member's signature."""
    issuer = x509.load_pem_x509_certificate(member.certificate.encode())
    issuer_key = load_pem_private_key(member.key.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "intruder")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2000, 1, 1))
        .not_valid_after(datetime(2100, 1, 1))
        .sign(issuer_key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Credentials(certificate.public_bytes(Encoding.PEM).decode(), secret.decode())
