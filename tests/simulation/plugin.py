# SPDX-License-Identifier: Apache-2.0
"""The plug-in's side of the wire, in virtual time: its own requests, retries, reading and course, carried out by tasks.

What `SidecarClient`, `Stream` and `Membership` do with threads and `http.client` is done here in the same order with
the same limits; all that decides is theirs (`Calls`, `Tries`, `Lines`, `Reopening`, `AgentStateMachine`).
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

from elasticjob_torch import wire
from elasticjob_torch.agent.state_machine import AgentStateMachine, Steps
from elasticjob_torch.sidecar import client
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.client import Calls, TimedCall, Tries, read_answer
from elasticjob_torch.sidecar.errors import SidecarUnavailable
from elasticjob_torch.sidecar.events import Lines, Reopening, Stream

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Told = Callable[[TimedCall[Any], float, BaseException | None], None]  # of a call that ended: when it began, and how
BROKEN = (OSError, EOFError, ValueError)  # what http.client raises as OSError or HTTPException


async def open_connection(host: str, port: int) -> tuple[Reader, Writer]:
    loop = asyncio.get_running_loop()
    reader = Reader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    way, _ = await loop.create_connection(lambda: protocol, host, port)
    return reader, Writer(way, protocol, reader, loop)


class VirtualCalls(Calls):
    """As `SidecarClient`: its methods are to be awaited. `told` hears of each call that ended. `live`: the processes
    live on into the round that is joined."""

    live = False

    def __init__(self, address: Address, trainer: str, patience: float, told: Told = lambda *_: None) -> None:
        super().__init__(trainer, patience)
        self._address, self._told = address, told

    def join(self, *asked: Any, **more: Any) -> Any:
        names = ("after", "cause", "timeout", "look", "limits", "failure")
        return super().join(**dict(zip(names, asked, strict=False)) | more | {"live": self.live})

    async def _make(self, call: TimedCall[Any]) -> Any:  # type: ignore[override]
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._tried(call)
        except BaseException as error:
            self._told(call, began, error)
            raise
        self._told(call, began, None)
        return answer

    async def _tried(self, call: TimedCall[Any]) -> Any:
        loop = asyncio.get_running_loop()
        tries = Tries(call, loop.time())
        while True:
            try:
                answer = await self._try(call, tries.begin(loop.time()))
            except SidecarUnavailable as error:
                pause = tries.failed(error, loop.time())
            else:
                return call.read(answer)
            if call.look is not None:
                await _looked(call.look)
            await asyncio.sleep(pause)

    async def _try(self, call: TimedCall[Any], within: float) -> Any:
        writer: Writer | None = None
        try:
            async with asyncio.timeout(client._CONNECT_SECONDS):
                reader, writer = await open_connection(self._address.host, self._address.port)
            writer.write(_request(call.method, call.target, call.body))
            if call.look is not None:
                await _await_answer(reader, within, call.look, call.every)
                within = wire.ANSWER_SECONDS
            async with asyncio.timeout(within):
                status, headers = await _head(reader)
                payload = b"" if status == 204 else await reader.readexactly(int(headers["content-length"]))
            return read_answer(status, payload)
        except TimeoutError as error:
            raise SidecarUnavailable(f"no answer to {call.method} {call.target}", passing=False) from error
        except BROKEN as error:
            raise SidecarUnavailable(f"nothing answers ({str(error) or type(error).__name__})") from error
        finally:
            if writer is not None:
                writer.close()


class VirtualStream(Stream):
    """As `Stream`, in a task of the process that starts it. `silent` hears of a stream that was given up as silent."""

    silent: Callable[[], None]

    def start(self) -> None:
        self._open = asyncio.Event()
        self._task = asyncio.create_task(self._go_on())

    def let_go(self) -> None:
        self._stopping.set()
        self._task.cancel()

    stop = let_go

    async def opens(self, seconds: float) -> bool:  # type: ignore[override]
        try:
            async with asyncio.timeout(seconds):
                await self._open.wait()
        except TimeoutError:
            pass
        return self.connected.is_set()

    async def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        reopening = Reopening(loop.time())
        while not self._stopping.is_set():
            try:
                why = await self._followed()
            except BROKEN as error:
                why = str(error) or type(error).__name__
            was_open = self.connected.is_set()
            self.connected.clear()
            self._open.clear()
            if self.is_barred:
                return
            await asyncio.sleep(reopening.ended(was_open, why, loop.time()))

    async def _followed(self) -> str:
        reader, writer = await open_connection(self._address.host, self._address.port)
        try:
            async with asyncio.timeout(wire.SILENCE_SECONDS):
                writer.write(_request("GET", self.target(), None))
                status, headers = await _head(reader)
                if status != 200:
                    return self.refused(status, await reader.readexactly(int(headers["content-length"])))
            self.connected.set()
            self._open.set()
            await self._read_all(reader)
            return "it closed the stream"
        finally:
            writer.close()

    async def _read_all(self, reader: Reader) -> None:
        lines, left = Lines(), b""
        while True:
            try:
                async with asyncio.timeout(wire.SILENCE_SECONDS):
                    left += await _chunk(reader)
            except TimeoutError:
                self.silent()
                raise
            *whole, left = left.split(b"\n")
            for line in whole:
                if (event := lines.take(line + b"\n")) is not None:
                    self.read(event)


class VirtualAgent(AgentStateMachine):
    """As `Membership`, without its methods: `go` does the steps."""

    async def go(self, steps: Steps[Any]) -> Any:
        try:
            do = next(steps)
            while True:
                try:
                    result = do()
                    if inspect.isawaitable(result):
                        result = await result
                except BaseException as error:
                    do = steps.throw(error)
                else:
                    do = steps.send(result)
        except StopIteration as ended:
            return ended.value

    _go = go  # type: ignore[assignment]


def _request(method: str, target: str, body: dict[str, Any] | None) -> bytes:
    payload = b"" if body is None else json.dumps(body).encode()
    stream = target.startswith("/v1/rendezvous/")
    head = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    head += [] if stream else ["Connection: close"]
    head += [f"Content-Length: {len(payload)}"] if body is not None else []
    return "\r\n".join([*head, "", ""]).encode() + payload


async def _head(reader: Reader) -> tuple[int, dict[str, str]]:
    line = await reader.readline()
    if not line:
        raise ConnectionResetError("Remote end closed connection without response")
    status, headers = int(line.split()[1]), {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


async def _chunk(reader: Reader) -> bytes:
    size = int((await reader.readline()) or b"0", 16)
    data = await reader.readexactly(size + 2)
    if size == 0:
        raise EOFError("the stream has ended")
    return data[:-2]


async def _looked(look: Callable[[], Any]) -> None:
    """Look, and await the answer if it asks for one. No join is void here."""
    looked = look()
    if inspect.isawaitable(looked):
        await looked


async def _await_answer(reader: Reader, within: float, look: Callable[[], Any], every: float) -> None:
    """Until there is something to read. Raises TimeoutError, and what `look` raises."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    if reader._buffer or reader.at_eof():  # type: ignore[attr-defined]
        return
    coming: Awaitable[None] = reader._wait_for_data("read")  # type: ignore[attr-defined]
    readable = asyncio.ensure_future(coming)
    try:
        while not (await asyncio.wait({readable}, timeout=min(every, deadline - loop.time())))[0]:
            if loop.time() >= deadline:
                raise TimeoutError
            await _looked(look)
    finally:
        readable.cancel()
