# SPDX-License-Identifier: Apache-2.0
"""Connections between sidecars: TLS with authentication of both ends.

    Transport.connect         a connection to rank 0's sidecar, admitted to a round's store
    Transport.connect_link    one for heartbeats
    Transport.listen          admits others; `trust` sets the round and its members

The TLS server name tells these apart, and names the port's offset from the store's.

After the handshake the listener admits or refuses the caller in one JSON line: `{"ok": true}`, or
`{"error": ..., "code": ...}`. Until then every connection has a deadline.
"""

import asyncio
import json
import logging
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.api import FORWARDED_PORTS, Member
from elasticjob.certificates import fingerprint_of
from elasticjob_sidecar.log_limits import LimitedLog
from elasticjob_sidecar.membership.refusal import PeerCode, Refused
from elasticjob_sidecar.store.connection import Connection, dial
from elasticjob_sidecar.store.credentials import Credentials, link_name, server_name
from elasticjob_sidecar.store.listener import Caller, TunnelListener
from elasticjob_torch.wire import Code

log = logging.getLogger(__name__)

LINE_LIMIT = 1024
# asyncio has a buffer of this size for each TLS connection, 256 KiB by default. Rank 0 has a connection for each agent
# and for each training process: the buffers for a thousand members would exceed its container's memory.
sslproto.SSLProtocol.max_size = 32 * 1024
ADMISSION_SECONDS, ADMISSION_SECONDS_EACH = 5.0, 0.01  # all members of a round come to rank 0 at once
TRUST_SECONDS = 3.0  # a caller may have seen the round first


@dataclass(frozen=True, slots=True)
class Claim:
    """A caller's member, and the round whose store it wants to reach, or the port `offset` after the store's."""

    round: int
    peer: Member
    offset: int = 0


Admit = Callable[[Claim], Awaitable[Connection]]  # connect to the store; raises Refused or OSError
Linked = Callable[[Claim, Connection], None]  # receives the caller's connection, for heartbeats
Admitted = Callable[
    [Claim, Connection, Connection], None
]  # receives the caller's connection and the store's, ready to be spliced


@dataclass(frozen=True, slots=True)
class _Trust:
    round: int
    offsets: Mapping[bytes, int]  # by the server names that callers ask for: 0 is the store
    link_name: str
    members: Mapping[str, Member]  # by the fingerprints of their certificates
    context: ssl.SSLContext


def admission_seconds(members: int) -> float:
    """The deadline of an admission in seconds: a late connection would be retried, and all of them together."""
    return ADMISSION_SECONDS + ADMISSION_SECONDS_EACH * members


class PeerTransport:
    def __init__(
        self,
        credentials: Credentials,
        job_uid: str,
        refused: Callable[[Code | PeerCode], None] = lambda _: None,
        forwarded: int = FORWARDED_PORTS,
    ) -> None:
        """`forwarded`: the number of ports after the store's that callers may ask for."""
        self._credentials, self._job_uid, self._refused = credentials, job_uid, refused
        self._forwarded = forwarded
        self._client = credentials.client_context()
        self._trust: _Trust | None = None
        self._trusting = asyncio.Event()
        self._listener: TunnelListener | None = None
        self._linked: Linked = lambda _, connection: connection.abort()
        self._turned_away = LimitedLog(log, "callers were not let in")

    # --- the caller's side

    async def connect(self, store: str, round: int, members: int, offset: int = 0) -> Connection:
        """Connect to `store`, as in the job's status. `members`: how many connect at once. `offset`: of the port,
        from the store's. Raises Refused if the caller is refused, OSError or TimeoutError if nobody or a stranger
        answers."""
        name = server_name(self._job_uid, round, offset)
        return await self._connect(store, round, name, admission_seconds(members))

    async def connect_link(self, store: str, round: int, seconds: float) -> Connection:
        """Connect as `connect` does, for heartbeats, within `seconds`."""
        return await self._connect(store, round, link_name(self._job_uid, round), seconds)

    async def _connect(self, store: str, round: int, name: str, seconds: float) -> Connection:
        address, _, fingerprint = store.partition("/")
        try:
            async with asyncio.timeout(seconds):
                return await self._call(address, name, fingerprint)
        except TimeoutError:
            message = f"rank 0's sidecar at {address} did not answer within {seconds:g} s"
            raise TimeoutError(message) from None
        except (ConnectionError, ssl.SSLError) as error:  # asyncio closes without TLS's alert, so no more is known
            message = f"rank 0's sidecar at {address} does not let this one in to round {round} ({error})"
            raise ConnectionError(message) from None

    async def _call(self, address: str, name: str, fingerprint: str) -> Connection:
        host, _, port = address.rpartition(":")
        connection = await dial(host.strip("[]"), int(port), self._client, name)
        try:
            # TLS has proved only that the other end holds the key of this certificate
            _check_is(fingerprint, connection.peer_certificate(), address)
            _check_answer(await connection.line(LINE_LIMIT))
        except BaseException:
            connection.abort()
            raise
        return connection

    # --- the listener's side

    def trust(self, round: int, members: Mapping[Member, bytes]) -> None:
        """From now on admit exactly these members of `round`, each with the given certificate (DER)."""
        offsets = {server_name(self._job_uid, round, one): one for one in range(self._forwarded + 1)}
        link = link_name(self._job_uid, round)
        context = self._credentials.server_context(members.values(), lambda asked: asked in offsets or asked == link)
        by_fingerprint = {fingerprint_of(certificate): member for member, certificate in members.items()}
        by_name = {name.encode(): offset for name, offset in offsets.items()}
        self._trust = _Trust(round, by_name, link, by_fingerprint, context)
        self._trusting.set()

    def trust_nobody(self) -> None:
        """From now on admit no caller. Callers are held for a moment, as the next round may come."""
        self._trust = None
        self._trusting.clear()

    def take_links(self, linked: Linked) -> None:
        """From now on call `linked` for each caller that wants a heartbeat link."""
        self._linked = linked

    async def listen(self, host: str, port: int, admit: Admit, admitted: Admitted) -> None:
        """Serve until `close`. Raises OSError."""

        def displaced(address: str) -> None:
            self._turn_away(address, Code.TOO_MANY, "it had to make room for others that have not shown who they are")

        async def received(caller: Caller) -> None:
            await self._receive(listener, caller, admit, admitted)

        listener = self._listener = TunnelListener(received, displaced)
        listener.listen(host, port)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _receive(self, listener: TunnelListener, caller: Caller, admit: Admit, admitted: Admitted) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                connection, claim, is_link = await self._identify(listener, caller, limit)
        except (OSError, TimeoutError, Refused) as error:  # an unauthenticated caller gets no answer
            code = error.code if isinstance(error, Refused) else PeerCode.NOT_A_MEMBER
            self._turn_away(caller.address, code, str(error) or "it did not show in time who it is")
            return
        caller.slot.release()
        if is_link:
            connection.write(_encode({"ok": True}))
            self._linked(claim, connection)
        else:
            await self._answer(connection, claim, admit, admitted)

    def _turn_away(self, address: str, code: Code | PeerCode, why: str) -> None:
        self._turned_away.info("a caller from %s was not let in: %s", address, why)
        self._refused(code)

    async def _identify(
        self, listener: TunnelListener, caller: Caller, limit: asyncio.Timeout
    ) -> tuple[Connection, Claim, bool]:
        """The caller, and whether it wants a link. `limit` is extended by the number of members. Raises Refused,
        OSError (ssl.SSLError) or TimeoutError."""
        began = asyncio.get_running_loop().time()
        limit.reschedule(began + admission_seconds(len(self._trust.members) if self._trust else 0))
        hello = await caller.hello()
        async with asyncio.timeout(TRUST_SECONDS):
            while (trust := self._trust) is None:
                await self._trusting.wait()
        limit.reschedule(began + admission_seconds(len(trust.members)))
        is_link = trust.link_name.encode() in hello
        offset = next((offset for name, offset in trust.offsets.items() if name in hello), None)
        if not is_link and offset is None:
            raise Refused(PeerCode.NOT_A_MEMBER, f"it does not ask for round {trust.round} of this job")
        connection = await listener.secure(caller, trust.context)
        member = trust.members.get(fingerprint_of(connection.peer_certificate()))
        if member is None:  # a certificate that a member has signed is not a member's
            connection.abort()
            raise Refused(PeerCode.NOT_A_MEMBER, f"the caller's certificate is not one of round {trust.round}")
        return connection, Claim(trust.round, member, offset or 0), is_link

    async def _answer(self, connection: Connection, claim: Claim, admit: Admit, admitted: Admitted) -> None:
        try:
            async with asyncio.timeout(ADMISSION_SECONDS):
                store = await admit(claim)
        except Refused as refused:
            self._refuse(connection, refused.code, refused.message)
        except (OSError, TimeoutError) as error:
            why = f"the store does not answer: {str(error) or f'not within {ADMISSION_SECONDS:g} s'}"
            self._refuse(connection, PeerCode.NOT_YET, why)
        except BaseException:
            connection.abort()
            raise
        else:
            connection.write(_encode({"ok": True}))
            admitted(claim, connection, store)

    def _refuse(self, connection: Connection, code: Code | PeerCode, why: str) -> None:
        self._refused(code)
        connection.write(_encode({"error": why, "code": code.value}))
        connection.close()


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _check_is(fingerprint: str, certificate: bytes, address: str) -> None:
    if fingerprint_of(certificate) != fingerprint:
        raise Refused(PeerCode.NOT_A_MEMBER, f"{address} is not the sidecar of the round's rank 0")


def _check_answer(line: bytes) -> None:
    try:
        answer = json.loads(line)
        if answer.get("ok") is True:
            return
        raise Refused(_code_of(answer.get("code", PeerCode.NOT_YET)), str(answer["error"]))
    except (ValueError, KeyError, AttributeError) as error:
        raise ConnectionError(f"rank 0's sidecar answered with something else than an admission: {error}") from None


def _code_of(word: str) -> Code | PeerCode:
    """Raises ValueError."""
    return PeerCode(word) if word in set(PeerCode) else Code(word)
