# SPDX-License-Identifier: Apache-2.0
"""HTTP for this pod's trainer, on loopback only: the rendezvous as torchrun's plug-in sees it.

The open events stream shows that the trainer lives: if it ends without leave or finish, the trainer was killed.
Training scripts, which are processes of the trainer, may read the state, save before a planned end, and report
progress. Answers are JSON; an error is `{"error": {"code", "message"}}`. No decision is made here.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from elasticjob.api import ProcessState, RequestCause
from elasticjob.text import plain
from elasticjob_sidecar.api_server.worker_status import ScriptProgress
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.membership.model import Limits, Torchrun
from elasticjob_sidecar.membership.refusal import PeerCode, Refused
from elasticjob_sidecar.membership.scripts import script_view_of
from elasticjob_sidecar.membership.view import view_of
from elasticjob_sidecar.store.tunnel import Tunnel
from elasticjob_torch import wire
from elasticjob_torch.wire import Code

STATUS: dict[str, int] = {code: refusal.status for code, refusal in wire.REFUSALS.items()}

M = TypeVar("M", bound=wire.Message)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Callable[[Any], Awaitable[wire.Message | None]]  # to a call's message; None: 204


class TrainerApi:
    def __init__(
        self, driver: Driver, tunnel: Tunnel, store: tuple[str, int], job: str, run_id: str, join_timeout: float
    ) -> None:
        self._driver, self._tunnel = driver, tunnel
        self._store = wire.StoreAddress(host=store[0], port=store[1])
        self._job, self._run_id, self._join_timeout = job, run_id, join_timeout

    def app(self) -> web.Application:
        app = web.Application(client_max_size=wire.BODY_BYTES, middlewares=[_errors])
        handlers: dict[wire.Call, Handler] = {wire.EVENTS: self.events, wire.WATCH: self.watch, wire.VIEW: self.view}
        handlers |= {call: partial(_answer, call, answer) for call, answer in self._answers().items()}
        for call, handler in handlers.items():
            app.router.add_route(call.method, call.path, handler)
        return app

    def _answers(self) -> dict[wire.Call, Answer]:
        return {
            wire.JOIN: self.join,
            wire.POST_STORE: self.post_store,
            wire.ASK_STORE: self.ask_store,
            wire.FINISH: self.finish,
            wire.LEAVE: self.leave,
            wire.CLOSE: self.close,
            wire.LIVE: self.live,
            wire.IMPORTS: self.imports,
            wire.PROCESSES: self.processes,
            wire.SAVED: self.saved,
            wire.PROGRESS: self.progress,
        }

    async def events(self, request: web.Request) -> web.StreamResponse:
        asked, driver = _query(wire.Events, request), self._driver
        await driver.vacated(asked.trainer)
        torchrun = Torchrun(asked.pid, asked.container, plain(asked.script, wire.SCRIPT_LENGTH), asked.stage)
        stream = driver.attach(asked.trainer, asked.round, torchrun)
        try:
            return await self._tell(
                request,
                lambda: None if driver.holds else view_of(driver.standing, driver.api_away),
                lambda: driver.standing.stream == stream,  # a newer stream of the same trainer takes over
            )
        finally:  # the server cancels this handler as soon as the connection is lost
            driver.detach(asked.trainer, stream)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        asked, driver = _query(wire.Watch, request), self._driver
        stream = driver.watch(asked.script, asked.saves)
        try:
            return await self._tell(request, lambda: script_view_of(driver.standing), lambda: True)
        finally:
            driver.unwatch(stream)

    async def saved(self, asked: wire.Saved) -> None:
        self._driver.saved(asked.script, asked.round)

    async def _tell(
        self, request: web.Request, view_now: Callable[[], wire.Message | None], goes_on: Callable[[], bool]
    ) -> web.StreamResponse:
        """Send the view now, at each change, and a comment at intervals."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            await self._follow(response, view_now, goes_on)
        return response

    async def _follow(
        self, response: web.StreamResponse, view_now: Callable[[], wire.Message | None], goes_on: Callable[[], bool]
    ) -> None:
        """Send changes of the view. The interval of comments counts from the last write: many changes change nothing
        here."""
        loop, last = asyncio.get_running_loop(), None
        wrote = loop.time()
        while goes_on():
            next_change, view = self._driver.next_change, view_now()
            data = b""
            if view is not None and view != last:
                data, last = f"data: {json.dumps(view.to_json())}\n\n".encode(), view
            elif loop.time() >= wrote + wire.COMMENT_SECONDS:
                data = b": still here\n\n"
            if data:
                await response.write(data)
                wrote = loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wrote + wire.COMMENT_SECONDS):
                    await next_change.wait()

    async def join(self, asked: wire.Join) -> wire.Round:
        timeout = self._join_timeout if asked.timeout is None else asked.timeout
        limits = Limits(asked.last_call, asked.worker_lost)
        cause, failure = RequestCause(asked.cause), _failure(asked)
        handed = await self._driver.join(asked.trainer, asked.after, cause, timeout, limits, failure, asked.live)
        return wire.Round(
            number=handed.round,
            rank=handed.rank,
            world_size=handed.world_size,
            stage=handed.stage,
            run_id=self._run_id,
            store=self._store,
            master_address=handed.master_address,
        )

    async def view(self, request: web.Request) -> web.Response:
        now = self._driver.standing
        handed = now.handed
        rank = handed.rank if handed is not None and now.in_round(handed.round) else None
        view, ours = view_of(now, self._driver.api_away), wire.Ours(rank=rank, job=self._job, run_id=self._run_id)
        return web.json_response((view.to_json() if view is not None else {}) | ours.to_json())

    async def post_store(self, asked: wire.PostedStore) -> None:
        self._driver.store_posted(asked.trainer, asked.round, asked.port)

    async def ask_store(self, asked: wire.AskedStore) -> wire.StoreAddress:
        await self._tunnel.wait_for_store(asked.round, asked.timeout)
        return self._store

    async def leave(self, asked: wire.Leave) -> None:
        await self._driver.leave(asked.trainer, RequestCause(asked.cause), asked.timeout, _failure(asked))

    async def finish(self, asked: wire.Finish) -> None:
        await self._driver.finish(asked.trainer, asked.round, asked.timeout)

    async def close(self, asked: wire.Close) -> None:
        await self._driver.close(asked.trainer, asked.timeout)

    async def live(self, asked: wire.Live) -> None:
        self._driver.lives(asked.trainer, asked.round)

    async def imports(self, asked: wire.Imports) -> None:
        self._driver.learned(asked.imports)

    async def processes(self, asked: wire.Processes) -> None:
        self._driver.looked(asked.trainer, asked.round, ProcessState(asked.state), asked.local_rank)

    async def progress(self, asked: wire.ProgressReport) -> None:
        self._driver.report(ScriptProgress(asked.step, asked.total, asked.metrics, asked.waits), asked.local_rank)


def _failure(asked: wire.Join | wire.Leave) -> wire.Failure:
    kind = asked.failure_kind or wire.FailureKind.UNKNOWN
    return wire.Failure(plain(asked.detail or "", wire.DETAIL_LENGTH), asked.exit_code, kind)


async def _answer(call: wire.Call, answer: Answer, request: web.Request) -> web.Response:
    assert call.sends is not None
    result = await answer(_query(call.sends, request) if call.method == "GET" else await _body(call.sends, request))
    return web.Response(status=204) if result is None else web.json_response(result.to_json())


async def _body(message: type[M], request: web.Request) -> M:
    try:
        async with asyncio.timeout(wire.BODY_SECONDS):
            body = await request.read()
    except TimeoutError:
        raise Refused(Code.BODY_LATE, f"the request's body did not come within {wire.BODY_SECONDS:g} s") from None
    except web.RequestPayloadError as error:
        raise Refused(Code.BAD_REQUEST, f"the request's body cannot be read: {error}") from None
    try:
        return message.from_json(json.loads(body.decode()))
    except wire.InvalidMessage as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from None
    except (ValueError, RecursionError):
        raise Refused(Code.BAD_REQUEST, "the request's body must be JSON, in UTF-8") from None


def _query(message: type[M], request: web.Request) -> M:
    try:
        return message.from_query(request.query)
    except wire.InvalidMessage as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from None


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal, and every wrong path or method, in the form that the plug-in reads."""
    try:
        return await handler(request)
    except Refused as refused:
        return _error(STATUS.get(refused.code, 500), refused.code, refused.message, refused.outcome)
    except web.HTTPException as error:
        return _error(error.status, Code.BAD_REQUEST, f"{request.method} {request.path}: {error.reason}")


def _error(status: int, code: Code | PeerCode, message: str, outcome: str | None = None) -> web.Response:
    error = wire.Error(code=code.value, message=message, outcome=outcome)
    return web.json_response({"error": error.to_json()}, status=status)
