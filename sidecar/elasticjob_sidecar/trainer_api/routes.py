"""HTTP for this pod's trainer, on loopback only: the rendezvous as torchrun's plug-in sees it.

The open events stream is the trainer's life: if it ends without leave or finish, the trainer was killed. Training
scripts, the processes that the trainer starts, may look on, save before a planned end, and report progress.
Answers are JSON; an error is `{"error": {"code", "message"}}`. Nothing is decided here.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from elasticjob.api import DETAIL_LENGTH, MAX_JSON_INTEGER, MAX_METRICS, METRIC_NAME_LENGTH, Cause, KeepAlive, Seconds
from elasticjob.text import plain
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.kubernetes.worker_record import Progress
from elasticjob_sidecar.membership.model import Limits
from elasticjob_sidecar.membership.refusal import Code, Refused
from elasticjob_sidecar.membership.scripts import script_view_of
from elasticjob_sidecar.membership.view import view_of
from elasticjob_sidecar.store.tunnel import Tunnel

COMMENT_SECONDS = 10.0
BODY_SECONDS = 5.0
# As long as the API server is away, a trainer that ends in success is held here: its word must not be lost.
WRITTEN_SECONDS = 300.0
BODY_LIMIT = 64 * 1024
STATUS = {
    Code.BAD_REQUEST: 400,
    Code.NO_TRAINER: 409,
    Code.SUPERSEDED: 409,
    Code.ROUND_BROKEN: 409,
    Code.CLOSED: 410,
    Code.LEAVING: 410,
    Code.TOO_MANY: 429,
    Code.API_AWAY: 504,
    Code.JOIN_TIMEOUT: 504,
    Code.STORE_TIMEOUT: 504,
}

JOIN_CAUSES = (Cause.STARTED, Cause.WORKER_FAILED, Cause.MEMBERSHIP_CHANGED)

# what the API server would refuse must not get into the ElasticWorker: nothing could be written any more
Count = Annotated[int, Field(ge=0, le=MAX_JSON_INTEGER)]
Round = Annotated[int, Field(ge=1, le=MAX_JSON_INTEGER)]
MetricName = Annotated[str, Field(min_length=1, max_length=METRIC_NAME_LENGTH)]
Wait = Annotated[float, Field(gt=0, le=86400)]


class Body(BaseModel):
    """Every request of a trainer names it: the id that the process made up at its start."""

    model_config = ConfigDict(extra="ignore")

    trainer: Annotated[str, Field(min_length=1, max_length=64)]


class Events(Body):
    round: Count = 0


class Join(Body):
    after: Count = 0
    cause: Cause = Cause.STARTED
    detail: str = ""
    timeout: Wait | None = None
    last_call: Annotated[Seconds | None, Field(alias="lastCall")] = None
    worker_lost: Annotated[KeepAlive | None, Field(alias="workerLost")] = None

    @field_validator("cause")
    @classmethod
    def _of_a_join(cls, cause: Cause) -> Cause:
        if cause not in JOIN_CAUSES:
            raise ValueError(f"use one of {', '.join(JOIN_CAUSES)}")
        return cause


class PostedStore(Body):
    round: Round
    port: Annotated[int, Field(ge=1, le=65535)]


class AskedStore(BaseModel):
    round: Round
    timeout: Wait = 30.0


class Recorded(Body):
    """Answered when the API server has it, or after `timeout`; it is sent all the same."""

    timeout: Wait = WRITTEN_SECONDS


class Leave(Recorded):
    cause: Cause = Cause.TRAINER_LEFT


class Finish(Recorded):
    round: Round


class Watch(BaseModel):
    """A training script names itself. `saves`: it wants to do so before a planned end of the round."""

    script: Annotated[str, Field(min_length=1, max_length=64)]
    saves: bool = False


class Saved(BaseModel):
    """The script wants to save, and has done so for the end of `round`, 0 for none."""

    script: Annotated[str, Field(min_length=1, max_length=64)]
    round: Count = 0


class Report(BaseModel):
    """Of a training script; `local_rank` says which one, should several of a pod report."""

    local_rank: Count = 0
    step: Count | None = None
    total: Count | None = None
    metrics: Annotated[dict[MetricName, float], Field(max_length=MAX_METRICS)] = {}

    @field_validator("metrics")
    @classmethod
    def _finite(cls, metrics: dict[str, float]) -> dict[str, float]:
        """A loss that became NaN is no reason to stop a training, and JSON has no word for it."""
        return {name: value for name, value in metrics.items() if math.isfinite(value)}


Model = TypeVar("Model", bound=BaseModel)
View = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TrainerApi:
    def __init__(
        self, driver: Driver, tunnel: Tunnel, store: tuple[str, int], job: str, run_id: str, join_timeout: float
    ) -> None:
        self._driver, self._tunnel = driver, tunnel
        self._store = dict(zip(("host", "port"), store, strict=True))
        self._job, self._run_id, self._join_timeout = job, run_id, join_timeout

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_LIMIT, middlewares=[_errors])
        app.add_routes(
            [
                web.get("/v1/rendezvous/events", self.events),
                web.post("/v1/rendezvous", self.join),
                web.get("/v1/rendezvous", self.view),
                web.post("/v1/store", self.post_store),
                web.get("/v1/store", self.ask_store),
                web.post("/v1/leave", self.leave),
                web.post("/v1/finish", self.finish),
                web.post("/v1/close", self.close),
                web.get("/v1/rendezvous/watch", self.watch),
                web.post("/v1/saved", self.saved),
                web.post("/v1/progress", self.progress),
            ]
        )
        return app

    async def events(self, request: web.Request) -> web.StreamResponse:
        asked, driver = _query(Events, request), self._driver
        stream = driver.attach(asked.trainer, asked.round)
        try:
            return await self._tell(
                request,
                lambda: None if driver.scripts.hold else view_of(driver.membership),
                lambda: driver.membership.is_current(stream),  # a newer one takes over
            )
        finally:  # the server cancels this handler the moment the connection is lost
            driver.detach(asked.trainer, stream)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        asked, driver = _query(Watch, request), self._driver
        stream = driver.watch(asked.script, asked.saves)
        try:
            return await self._tell(request, lambda: script_view_of(driver.membership), lambda: True)
        finally:
            driver.unwatch(stream)

    async def saved(self, request: web.Request) -> web.Response:
        asked = await _body(Saved, request)
        self._driver.saved(asked.script, asked.round)
        return web.Response(status=204)

    async def _tell(
        self, request: web.Request, view_now: Callable[[], View | None], goes_on: Callable[[], bool]
    ) -> web.StreamResponse:
        """Send the view now, at each change, and a comment now and then."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            await self._follow(response, view_now, goes_on)
        return response

    async def _follow(
        self, response: web.StreamResponse, view_now: Callable[[], View | None], goes_on: Callable[[], bool]
    ) -> None:
        """The comment's time counts from the last write: many changes change nothing here."""
        loop, last = asyncio.get_running_loop(), None
        wrote = loop.time()
        while goes_on():
            next_change, view = self._driver.next_change, view_now()
            said = b""
            if view is not None and view != last:
                said, last = f"data: {json.dumps(view)}\n\n".encode(), view
            elif loop.time() >= wrote + COMMENT_SECONDS:
                said = b": still here\n\n"
            if said:
                await response.write(said)
                wrote = loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wrote + COMMENT_SECONDS):
                    await next_change.wait()

    async def join(self, request: web.Request) -> web.Response:
        asked = await _body(Join, request)
        timeout = self._join_timeout if asked.timeout is None else asked.timeout
        limits = Limits(asked.last_call, asked.worker_lost)
        detail = plain(asked.detail, DETAIL_LENGTH)
        handed = await self._driver.join(asked.trainer, asked.after, asked.cause, timeout, limits, detail)
        answer: View = {
            "round": handed.round,
            "rank": handed.rank,
            "worldSize": handed.world_size,
            "runId": self._run_id,
            "store": self._store,
        }
        return web.json_response(answer)

    async def view(self, request: web.Request) -> web.Response:
        machine = self._driver.membership
        handed = machine.handed
        rank = handed.rank if handed is not None and machine.in_round(handed.round) else None
        return web.json_response((view_of(machine) or {}) | {"rank": rank, "job": self._job, "runId": self._run_id})

    async def post_store(self, request: web.Request) -> web.Response:
        asked = await _body(PostedStore, request)
        self._driver.store_posted(asked.trainer, asked.round, asked.port)
        return web.Response(status=204)

    async def ask_store(self, request: web.Request) -> web.Response:
        asked = _query(AskedStore, request)
        await self._tunnel.wait_for_store(asked.round, asked.timeout)
        return web.json_response(self._store)

    async def leave(self, request: web.Request) -> web.Response:
        asked = await _body(Leave, request)
        await self._driver.leave(asked.trainer, asked.cause, asked.timeout)
        return web.Response(status=204)

    async def finish(self, request: web.Request) -> web.Response:
        asked = await _body(Finish, request)
        await self._driver.finish(asked.trainer, asked.round, asked.timeout)
        return web.Response(status=204)

    async def close(self, request: web.Request) -> web.Response:
        asked = await _body(Recorded, request)
        await self._driver.close(asked.trainer, asked.timeout)
        return web.Response(status=204)

    async def progress(self, request: web.Request) -> web.Response:
        asked = await _body(Report, request)
        self._driver.report(Progress(asked.step, asked.total, asked.metrics), asked.local_rank)
        return web.Response(status=204)


async def _body(model: type[Model], request: web.Request) -> Model:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except TimeoutError:
        raise Refused(Code.BAD_REQUEST, f"the request's body did not come within {BODY_SECONDS:g} s") from None
    except web.RequestPayloadError as error:
        raise Refused(Code.BAD_REQUEST, f"the request's body cannot be read: {error}") from None
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _bad(error) from None


def _query(model: type[Model], request: web.Request) -> Model:
    try:
        return model.model_validate(dict(request.query))
    except ValidationError as error:
        raise _bad(error) from None


def _bad(error: ValidationError) -> Refused:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return Refused(Code.BAD_REQUEST, f"{field}: {first['msg']}" if field else first["msg"])


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal, and every wrong path or method, in the one form that the plug-in reads."""
    try:
        return await handler(request)
    except Refused as refused:
        return _error(STATUS.get(refused.code, 500), refused.code, refused.message, refused.outcome)
    except web.HTTPException as error:
        return _error(error.status, Code.BAD_REQUEST, f"{request.method} {request.path}: {error.reason}")


def _error(status: int, code: Code, message: str, outcome: str | None = None) -> web.Response:
    error: dict[str, Any] = {"code": code.value, "message": message}
    if outcome is not None:
        error["outcome"] = outcome
    return web.json_response({"error": error}, status=status)
