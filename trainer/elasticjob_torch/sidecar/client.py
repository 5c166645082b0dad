# SPDX-License-Identifier: Apache-2.0
"""Calls to the sidecar's trainer API: one HTTP request each.

Blocking and free of threads, so that a signal interrupts any call; it knows neither torch nor what a round means. Each
call is safe to repeat, and is repeated here when the sidecar restarts. Each has a deadline, repetitions included, and
one that waits for long can be given up. The requests, the reading of answers and the retries are pure (`Calls`,
`Tries`); `SidecarClient` sends and waits.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode

from elasticjob_torch import wire
from elasticjob_torch.sidecar.errors import REFUSALS, SidecarRefusal, SidecarUnavailable

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from elasticjob_torch.sidecar.address import Address

T = TypeVar("T")
M = TypeVar("M", bound=wire.Message)

_CONNECT_SECONDS = 5.0
_SERVED_SECONDS = 1.0  # a call of this length shows that the sidecar was there
_LOOK_SECONDS, _LIVE_LOOK_SECONDS = 60.0, 0.1  # nothing tells that a process that lives on has ended
_MAX_ANSWER_BYTES = 1 << 20
_BODY_LATE = wire.REFUSALS[wire.Code.BODY_LATE].status
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 0.5


@dataclass(frozen=True)
class TimedCall(Generic[T]):
    """A request to the sidecar. `within`: seconds that one answer may take. `patience`: seconds for which the sidecar
    may be away. `look`: called before a repetition, and while the answer is awaited: at news, and every `every` seconds
    without; it may raise, to give up."""

    method: str
    target: str
    body: dict[str, Any] | None
    read: Callable[[dict[str, Any]], T]  # raises `SidecarUnavailable` for an invalid answer
    within: float
    patience: float
    look: Callable[[], Any] | None = None
    every: float = _LOOK_SECONDS


class Tries:
    """When a call is repeated. `now`: seconds of one clock."""

    def __init__(self, call: TimedCall[Any], now: float) -> None:
        self._within, self._patience = call.within, call.patience
        self._began = self._away = now  # away: since when there has been no answer
        self._deadline = now + call.within + call.patience  # however often the sidecar restarts
        self._pause = _FIRST_PAUSE_SECONDS

    def begin(self, now: float) -> float:
        """Begin a try; return how many seconds the answer may take."""
        self._began = now
        return max(min(self._within, self._deadline - now), self._pause)

    def failed(self, error: SidecarUnavailable, now: float) -> float:
        """Return the seconds until the next try. Raises `SidecarUnavailable` if there is none."""
        if now - self._began > _SERVED_SECONDS:
            self._away, self._pause = now, _FIRST_PAUSE_SECONDS
        if not error.passing:
            raise error
        if now + self._pause > min(self._away + self._patience, self._deadline):
            raise SidecarUnavailable(f"{error}, for {now - self._away:.1f} s") from error
        pause, self._pause = self._pause, min(self._pause * 2, _MAX_PAUSE_SECONDS)
        return pause


@contextlib.contextmanager
def _as_refused() -> Iterator[None]:
    """Refuse an invalid message here, in the words that the sidecar would use."""
    try:
        yield
    except wire.InvalidMessage as error:
        raise SidecarRefusal(wire.Code.BAD_REQUEST, str(error), "") from None


class Calls(ABC):
    """The trainer's side of the sidecar's API.

    Args:
        trainer: the id of this torchrun, made once per process.
        patience: seconds for which the sidecar may be unreachable before a call gives up.

    Every method raises `SidecarUnavailable` after that time, and a `SidecarRefusal` if the sidecar refuses.
    """

    def __init__(self, trainer: str, patience: float) -> None:
        self.trainer = trainer
        self.patience = patience

    @abstractmethod
    def _make(self, call: TimedCall[T]) -> T:
        """Make the call; repeat it while the sidecar restarts."""

    def view(self, look: Callable[[], Any] | None = None) -> wire.Ours:
        """Return whose sidecar it is, and its view. ``look`` is called before each repetition."""
        read, within = _reading(wire.Ours), wire.ANSWER_SECONDS
        return self._make(TimedCall("GET", wire.VIEW.path, None, read, within, self.patience, look))

    @_as_refused()
    def join(
        self,
        after: int,
        cause: wire.JoinCause,
        timeout: float,
        look: Callable[[], Any] = lambda: None,
        limits: Mapping[str, int] = MappingProxyType({}),
        failure: wire.Failure = wire.NO_FAILURE,
        live: bool = False,
    ) -> wire.Round:
        """Ask for the next round and wait for it, at most ``timeout`` seconds.

        ``after``: the last round that this trainer has used (0: none). ``look`` is called at news and once a minute,
        with ``live`` ten times a second, and may raise to give up. ``limits`` (``last_call``, ``worker_lost``) are
        seconds in place of the job's. ``failure``: what failed in its processes. ``live``: all training processes run,
        and live on into that round.
        """
        more = _fields_of(failure) | dict(limits)
        join = wire.Join(trainer=self.trainer, after=after, cause=cause, timeout=timeout, live=live, **more)
        within = timeout + wire.MARGIN_SECONDS
        read, every = _reading(wire.Round), _LIVE_LOOK_SECONDS if live else _LOOK_SECONDS
        path, body = wire.JOIN.path, join.to_json()
        return self._make(TimedCall("POST", path, body, read, within, self.patience, look=look, every=every))

    @_as_refused()
    def post_store(self, round_number: int, port: int) -> None:
        """Tell that this agent, rank 0 of the round, serves the round's store at a loopback port."""
        posted = wire.PostedStore(trainer=self.trainer, round=round_number, port=port)
        return self.post(wire.POST_STORE, posted, self.patience)

    @_as_refused()
    def await_store(self, round_number: int, timeout: float) -> wire.StoreAddress:
        """Wait, at most ``timeout`` seconds, until the round's store answers; return its address."""
        query = urlencode(wire.AskedStore(round=round_number, timeout=timeout).to_query())
        within = timeout + wire.MARGIN_SECONDS
        target = f"{wire.ASK_STORE.path}?{query}"
        return self._make(TimedCall("GET", target, None, _reading(wire.StoreAddress), within, self.patience))

    @_as_refused()
    def leave(self, cause: wire.LeaveCause, timeout: float, failure: wire.Failure = wire.NO_FAILURE) -> None:
        """Leave the rendezvous; return when it is recorded, within ``timeout`` seconds."""
        timeout = min(timeout, wire.LONGEST_SECONDS)
        leave = wire.Leave(trainer=self.trainer, cause=cause, timeout=timeout, **_fields_of(failure))
        return self._record(wire.LEAVE, leave, timeout)

    @_as_refused()
    def finish(self, round_number: int, timeout: float) -> None:
        """Tell that this agent's work of the round is done; return when it is recorded."""
        timeout = min(timeout, wire.LONGEST_SECONDS)
        finish = wire.Finish(trainer=self.trainer, round=round_number, timeout=timeout)
        return self._record(wire.FINISH, finish, timeout)

    @_as_refused()
    def close(self, timeout: float) -> None:
        """Close the rendezvous for all; return when it is recorded, within ``timeout`` seconds."""
        timeout = min(timeout, wire.LONGEST_SECONDS)
        return self._record(wire.CLOSE, wire.Close(trainer=self.trainer, timeout=timeout), timeout)

    @_as_refused()
    def tell_live(self, round_number: int) -> None:
        """Tell that all training processes of the round have opted in to live through changes of the group."""
        return self.post(wire.LIVE, wire.Live(trainer=self.trainer, round=round_number), self.patience)

    @_as_refused()
    def tell_processes(self, round_number: int, state: wire.ProcessState, local_rank: int) -> None:
        """Tell the state of the round's training processes: that of the one most at fault."""
        body = wire.Processes(trainer=self.trainer, round=round_number, state=state, local_rank=local_rank)
        return self.post(wire.PROCESSES, body, self.patience)

    def tell_imports(self, names: Iterable[str]) -> None:
        """Tell the script's imports, in order, for the job's next pods; names that cannot be sent are left out."""
        return self.post(wire.IMPORTS, wire.Imports(imports=_fitting(names)), self.patience)

    def post(self, call: wire.Call, body: wire.Message, patience: float) -> None:
        """Send a message that needs only an acknowledgement; training scripts, which are no trainers, send only such
        messages."""
        return self._make(TimedCall("POST", call.path, body.to_json(), _nothing, wire.ANSWER_SECONDS, patience))

    def _record(self, call: wire.Call, body: wire.Message, timeout: float) -> None:
        within = timeout + wire.MARGIN_SECONDS  # the sidecar reports earlier that the API server does not answer
        return self._make(TimedCall("POST", call.path, body.to_json(), _nothing, within, min(timeout, self.patience)))


def _await_readable(connection: socket.socket, seconds: float) -> bool:
    poll = select.poll()  # select() fails for high descriptors
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


class SidecarClient(Calls):
    """Makes the calls over HTTP to the sidecar, and waits for the answers.

    Args:
        await_readable: waits until there is something to read from a connection, until there is news, or for so many
            seconds; returns whether there is something to read.
    """

    def __init__(
        self,
        address: Address,
        trainer: str,
        patience: float,
        await_readable: Callable[[socket.socket, float], bool] = _await_readable,
    ) -> None:
        super().__init__(trainer, patience)
        self.address, self._await_readable = address, await_readable

    def _make(self, call: TimedCall[T]) -> T:
        tries = Tries(call, time.monotonic())
        while True:
            try:
                answer = self._try(call, tries.begin(time.monotonic()))
            except SidecarUnavailable as error:
                pause = tries.failed(error, time.monotonic())
            else:
                return call.read(answer)
            if call.look is not None:
                call.look()
            time.sleep(pause)

    def _try(self, call: TimedCall[Any], answer_within: float) -> dict[str, Any]:
        connection = self.address.connection(_CONNECT_SECONDS)
        where, within = self.address, _CONNECT_SECONDS
        try:
            connection.connect()
            within = answer_within
            connection.sock.settimeout(within)
            headers = {"Connection": "close", "Content-Type": "application/json"}
            payload = None if call.body is None else json.dumps(call.body).encode()
            connection.request(call.method, call.target, body=payload, headers=headers)
            if call.look is not None:
                self._await_answer(connection.sock, within, call.look, call.every)
                connection.sock.settimeout(wire.ANSWER_SECONDS)
            with connection.getresponse() as response:  # an error that is kept must not keep the connection open
                return read_answer(response.status, response.read(_MAX_ANSWER_BYTES))
        except TimeoutError as error:
            message = f"{where} did not answer {call.method} {call.target} within {within:g} s"
            raise SidecarUnavailable(message, passing=False) from error
        except (OSError, http.client.HTTPException) as error:
            raise SidecarUnavailable(f"nothing answers at {where} ({str(error) or type(error).__name__})") from error
        finally:
            connection.close()

    def _await_answer(self, connection: socket.socket, within: float, look: Callable[[], Any], every: float) -> None:
        """Wait until there is something to read. Raises TimeoutError, and what ``look`` raises."""
        deadline = time.monotonic() + within
        while not self._await_readable(connection, max(0.0, min(every, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise TimeoutError
            look()


def _fields_of(failure: wire.Failure) -> dict[str, Any]:
    kind = failure.kind if failure.detail else None
    return {"detail": failure.detail or None, "exit_code": failure.exit_code, "failure_kind": kind}


def _fitting(names: Iterable[str]) -> list[str]:
    """Return the names in the wire's form, up to its limits."""
    found = [name for name in names if len(name) <= wire.IMPORT_LENGTH and re.fullmatch(wire.IMPORT_NAME, name)]
    del found[wire.MAX_IMPORTS :]
    while len(",".join(found)) > wire.IMPORTS_LENGTH:
        found.pop()
    return found


def _nothing(_: dict[str, Any]) -> None:
    return None


def _reading(message: type[M]) -> Callable[[dict[str, Any]], M]:
    def read(answer: dict[str, Any]) -> M:
        try:
            return message.from_json(answer)
        except wire.InvalidMessage as error:
            raise SidecarUnavailable(f"the sidecar's answer makes no sense: {error}", passing=False) from error

    return read


def read_answer(status: int, payload: bytes) -> dict[str, Any]:
    """Return the answer's JSON. Raises `SidecarRefusal`, and `SidecarUnavailable` if it is not from a sidecar."""
    if status == 204:
        return {}
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError):
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict) and status not in (_BODY_LATE, 500, 502, 503):
        code = str(error.get("code", ""))
        message = str(error.get("message", "")) or f"the sidecar refused with {status} {code}"
        kind = REFUSALS.get(code, SidecarRefusal)
        raise kind(code, message, str(error.get("outcome", "")))
    # A sidecar that cannot serve yet, fails, or got the body too late is asked again. No other server is.
    text = payload[:200].decode("utf-8", "replace").strip()
    raise SidecarUnavailable(f"the sidecar answered {status}: {text}", passing=status == _BODY_LATE or status >= 500)
