"""How one sidecar reaches another and proves who it is: the part that mutual TLS can take over.

    Transport.connect    a connection to rank 0's sidecar, admitted to a round's store
    Transport.listen     admits others; what is checked is the tunnel's business, how it is proved is ours

`Prelude` proves nothing: the caller names itself in one JSON line. It fences rounds, it does not keep out an
intruder, so a NetworkPolicy has to. Every connection has a deadline until it is admitted or turned away.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elasticjob.api import Incarnation
from elasticjob_sidecar.forward import End, dial, listen
from elasticjob_sidecar.refusal import Code, Refused

LINE_LIMIT = 1024
PRELUDE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to reach the store of which round."""

    round: int
    peer: Incarnation


Admit = Callable[[Claim], Awaitable[End]]  # a connection to the store; raises Refused or OSError
Admitted = Callable[[Claim, End, End], None]  # the caller's connection and the store's, ready to be spliced


class Transport(Protocol):
    async def connect(self, address: str, claim: Claim) -> End:
        """Raises Refused when turned away, OSError or TimeoutError when nobody answers."""
        ...

    async def listen(self, host: str, port: int, admit: Admit, admitted: Admitted) -> None:
        """Serve until `close`. Raises OSError."""
        ...

    async def close(self) -> None: ...


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    job: str
    round: int = Field(ge=1)
    index: int = Field(ge=0)
    id: str


class Prelude:
    """A JSON line each way: `{"job", "round", "index", "id"}`, `{"ok": true}` or `{"error": "..."}`."""

    def __init__(self, job_uid: str, refused: Callable[[Code], None] = lambda _: None) -> None:
        self._job_uid, self._refused = job_uid, refused
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, address: str, claim: Claim) -> End:
        try:
            async with asyncio.timeout(PRELUDE_SECONDS):
                return await self._connect(address, claim)
        except TimeoutError:
            message = f"rank 0's sidecar at {address} did not answer within {PRELUDE_SECONDS:g} s"
            raise TimeoutError(message) from None

    async def _connect(self, address: str, claim: Claim) -> End:
        host, _, port = address.rpartition(":")
        end = await dial(host.strip("[]"), int(port))
        try:
            end.write(_encode(_Line(job=self._job_uid, round=claim.round, index=claim.peer.index, id=claim.peer.id)))
            _check_answer(await end.line(LINE_LIMIT))
        except BaseException:
            end.abort()
            raise
        return end

    async def listen(self, host: str, port: int, admit: Admit, admitted: Admitted) -> None:
        def accepted(end: End) -> None:
            task = asyncio.create_task(self._receive(end, admit, admitted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._server = await listen(host, port, accepted)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _receive(self, end: End, admit: Admit, admitted: Admitted) -> None:
        try:
            async with asyncio.timeout(PRELUDE_SECONDS):
                claim = self._read(await end.line(LINE_LIMIT))
                store = await admit(claim)
        except Refused as refused:
            self._refused(refused.code)
            end.write(_encode({"error": refused.message, "code": refused.code.value}))
            end.close()
        except (OSError, TimeoutError) as error:
            self._refused(Code.NOT_YET)
            why = f"the store does not answer: {str(error) or f'not within {PRELUDE_SECONDS:g} s'}"
            end.write(_encode({"error": why, "code": Code.NOT_YET.value}))
            end.close()
        except BaseException:
            end.abort()
            raise
        else:
            end.write(_encode({"ok": True}))
            admitted(claim, end, store)

    def _read(self, line: bytes) -> Claim:
        try:
            read = _Line.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            raise Refused(Code.BAD_REQUEST, f"not a prelude: {first['loc']} {first['msg']}") from None
        if read.job != self._job_uid:
            raise Refused(Code.NOT_A_MEMBER, "the caller belongs to another job")
        return Claim(read.round, Incarnation(index=read.index, id=read.id))


def _encode(message: BaseModel | dict[str, Any]) -> bytes:
    text = message.model_dump_json() if isinstance(message, BaseModel) else json.dumps(message)
    return text.encode() + b"\n"


def _check_answer(line: bytes) -> None:
    try:
        answer = json.loads(line)
        if answer.get("ok") is True:
            return
        raise Refused(Code(answer.get("code", Code.NOT_YET)), str(answer["error"]))
    except (ValueError, KeyError, AttributeError) as error:
        raise ConnectionError(f"rank 0's sidecar answered with something else than a prelude: {error}") from None
