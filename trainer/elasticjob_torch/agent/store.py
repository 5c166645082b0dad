# SPDX-License-Identifier: Apache-2.0
"""The round's store as torch's agent uses it.

It passes each call on to a TCPStore, but its waits end with the round, where torch's own would wait for up to 300
seconds in C++. It has exactly the methods that ``Store`` of the running torch has, so that ``hasattr`` is right.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.distributed import DistNetworkError, DistStoreError, Store, TCPStore

from elasticjob_torch.agent.tcp_store import connect_store, serve_store
from elasticjob_torch.sidecar.calls import CallThread, Interrupted
from elasticjob_torch.sidecar.errors import SidecarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from elasticjob_torch import wire


log = logging.getLogger(__name__)

T = TypeVar("T")

# The keys of the barrier that torch's agent enters when its training processes have succeeded
# (torch.distributed.elastic: agent.server.api._TERMINAL_STATE_SYNC_ID, utils.store.barrier).
_EXIT_BARRIER = "torchelastic/agent/terminal_state"
_GOODBYES = "elasticjob/agents_past_the_exit_barrier"
_CALL_SECONDS = 30.0
_EXIT_SECONDS = 30.0
_MAX_PAUSE_SECONDS = 0.25
_GOODBYE_SECONDS = 2.0
_LOG_SECONDS = 60.0


class StoreBroken(DistStoreError):  # type: ignore[misc]
    """The round's store is gone, because the round ended or rank 0 did."""


class AgentStore(Store):  # type: ignore[misc]
    """The round's store for this agent.

    It connects at its first use: if all workers have the same number of processes, torch's agent does not use it before
    the exit barrier, and training processes make connections of their own.

    Args:
        find: returns where the round's store answers; waits for that at most the given seconds, and raises
            `SidecarError`.
        world_size: the number of agents in the round.
        has_ended: whether the round is over; asked during every wait.
        is_over: whether the whole job has ended.
        on_finish: called once, before this agent enters the exit barrier.
        find_within: how many seconds to wait for the store before its first use; the operator ends a round without one
            before that.

    Every method raises `StoreBroken` if the round has ended or its store is gone. Methods that wait raise torch's own
    ``DistStoreError``, which says "timeout", after ``timeout``, which is also torch's. Threads may share it.
    """

    def __init__(
        self,
        find: Callable[[float], wire.StoreAddress],
        world_size: int,
        has_ended: Callable[[], bool],
        is_over: Callable[[], bool],
        on_finish: Callable[[], object],
        find_within: float = 300.0,
    ) -> None:
        super().__init__()
        self._find_within = find_within
        self._find = find
        self._world_size = world_size
        self._has_ended = has_ended
        self._is_over = is_over
        self._on_finish = on_finish
        self._serves = self._closed = False
        self._connecting = threading.Lock()
        self._exiting = exiting = threading.Event()
        self._is_gone: Callable[[], bool] = lambda: has_ended() or (exiting.is_set() and is_over())
        self._inner: list[TCPStore] = []  # one item, once there is a connection
        self._thread = CallThread(self._is_gone)
        self._clones: list[AgentStore] = []  # a PrefixStore's clone keeps no reference to its inner one's Python half
        # the destructor of torch's store waits for the server's thread, so it must not run where this one is closed or
        # dropped
        self._let_go = weakref.finalize(self, self._thread.end, self._inner.clear)
        self._let_go.atexit = False

    def serve(self) -> int:
        """Start the round's server in this process; return its loopback port. Raises `StoreBroken`."""
        self._serves = True
        self._inner.append(self._run(serve_store))
        return int(self._inner[0].port)

    def connect(self, seconds: float | None = None) -> TCPStore:
        """Connect to the round's server, unless that is done or it is in this process.

        Raises `StoreBroken`, and `SidecarError` as `find` does: after ``seconds`` (default: ``find_within``), or if the
        round has ended.
        """
        deadline = time.monotonic() + (self._find_within if seconds is None else seconds)
        with self._connecting:
            while not self._inner:
                # Looked up each time: a client is made only where the sidecar has just seen the store answer.
                address = self._find(deadline - time.monotonic())
                try:
                    self._inner.append(self._run(partial(connect_store, address.host, address.port)))
                except StoreBroken:
                    raise
                except RuntimeError as error:
                    if self._is_gone():
                        raise StoreBroken(f"the round ended: {error}") from error
                    log.info("connecting to the round's store again: %s", error)
                    time.sleep(0.1)
            held = self._inner[:1]  # another thread may have closed it meanwhile
        if not held:
            raise StoreBroken("the round's store is closed")
        return held[0]

    def close(self) -> None:
        """Drop the connection, and the server if it is here. Returns at once; raises nothing."""
        self._closed = True
        while self._clones:
            self._clones.pop().close()
        self._let_go()

    def set(self, key: str, value: str | bytes) -> None:
        self._pass_on(lambda inner: inner.set(key, value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return bytes(self._pass_on(lambda inner: inner.get(key)))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return it. Before adding to the exit barrier's counter, report that this agent is
        done."""
        if not key.startswith(_EXIT_BARRIER):
            return int(self._pass_on(lambda inner: inner.add(key, amount)))
        self._on_finish()
        self._exiting.set()  # rank 0 may have ended by now, and its store with it, if this was the last agent
        try:
            self._connected(_EXIT_SECONDS)
            return int(self._pass_on(lambda inner: inner.add(key, amount)))
        except RuntimeError as error:
            log.info("the other agents go on without this one, whose work is done (%s)", error)
            return 0  # torch then waits for the last member, which returns at once
        finally:
            self._exiting.clear()

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._pass_on(lambda inner: inner.check(list(keys))))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Write a key if it has the expected value; return its value after that."""
        return bytes(self._pass_on(lambda inner: inner.compare_set(key, expected_value, desired_value)))

    def delete_key(self, key: str) -> bool:
        return bool(self._pass_on(lambda inner: inner.delete_key(key)))

    def append(self, key: str, value: str | bytes) -> None:
        self._pass_on(lambda inner: inner.append(key, value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(keys)
        return list(self._pass_on(lambda inner: inner.multi_get(list(keys))))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self._pass_on(lambda inner: inner.multi_set(list(keys), list(values)))

    def num_keys(self) -> int:
        return int(self._pass_on(lambda inner: inner.num_keys()))

    def has_extended_api(self) -> bool:
        """Say that `append`, `multi_get` and `multi_set` exist."""
        return True

    # torch's C++ (PrefixStore, for example) looks these two up by their C++ names
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        limit = (self.timeout if timeout is None else timeout).total_seconds()
        if all(key.startswith(_EXIT_BARRIER) for key in keys):
            self._wait_at_exit(keys, limit)
        else:
            self._wait_for(", ".join(keys), lambda: self.check(keys), limit)

    if hasattr(Store, "queue_push"):

        def queue_push(self, key: str, value: str | bytes) -> None:
            self._pass_on(lambda inner: inner.queue_push(key, value))

        def queue_pop(self, key: str, block: bool = True) -> bytes:
            """Take the first value of a queue; wait for one, unless ``block`` is False."""
            if not block:
                return bytes(self._pass_on(lambda inner: inner.queue_pop(key, False)))
            taken: list[bytes] = []

            def take() -> bool:
                with contextlib.suppress(torch.distributed.QueueEmptyError):
                    taken.append(self.queue_pop(key, block=False))
                return bool(taken)

            self._wait_for(f"a value in the queue {key}", take, self.timeout.total_seconds())
            return taken[0]

        def queue_len(self, key: str) -> int:
            return int(self._pass_on(lambda inner: inner.queue_len(key)))

    if hasattr(Store, "list_keys"):

        def list_keys(self) -> list[str]:
            return list(self._pass_on(lambda inner: inner.list_keys()))

    if hasattr(Store, "clone"):

        def clone(self) -> AgentStore:
            """Return a second connection to the round's store, which is closed with this one."""
            inner = self._pass_on(lambda inner: inner.clone())
            clone = AgentStore(
                self._find, self._world_size, self._has_ended, self._is_over, self._on_finish, self._find_within
            )
            clone._inner.append(inner)
            clone.set_timeout(self.timeout)
            self._clones.append(clone)
            return clone

    if hasattr(Store, "barrier"):

        def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
            """Wait until ``world_size`` callers have entered this barrier."""
            limit = self.timeout if timeout is None else timeout
            clone = self.clone()  # torch's barrier keeps a connection busy until it ends
            try:
                clone._pass_on(
                    lambda inner: inner.barrier(key, world_size, limit), limit.total_seconds() + _CALL_SECONDS
                )
            finally:
                with contextlib.suppress(ValueError):  # closed meanwhile, with this store
                    self._clones.remove(clone)
                clone.close()

    def _wait_for(self, what: str, met: Callable[[], bool], limit: float) -> None:
        if self._poll(what, met, limit, self._has_ended):
            return
        if self._has_ended():
            raise StoreBroken(f"the round ended while waiting for {what}")
        raise DistStoreError(f"wait timeout after {limit:g} s: {what} did not come into the round's store")

    def _wait_at_exit(self, keys: Sequence[str], limit: float) -> None:
        """Wait for the other agents' success. Their failure does not concern this one, whose work is done.

        The agent that serves the store stays while the round stands: others may still be saving.
        """
        if not self._inner:
            return  # not reached if this agent has reported that it is done
        try:
            seconds = float("inf") if self._serves else limit
            if self._poll(", ".join(keys), lambda: self.check(keys), seconds, self._nobody_comes):
                self._part()
            else:
                log.info("no longer waiting for the other agents to finish")
        except RuntimeError:
            log.info("the round's store has ended, as rank 0 did")

    def _nobody_comes(self) -> bool:
        return self._has_ended() or self._is_over()

    def _part(self) -> None:
        """Let the server outlive the other agents' last calls, which would otherwise fail with errors in their logs."""
        past = self._pass_on(lambda inner: inner.add(_GOODBYES, 1))
        deadline = time.monotonic() + _GOODBYE_SECONDS
        while self._serves and past < self._world_size and time.monotonic() < deadline:
            time.sleep(0.01)
            past = self._pass_on(lambda inner: inner.add(_GOODBYES, 0))

    def _poll(self, what: str, met: Callable[[], bool], seconds: float, stop: Callable[[], bool]) -> bool:
        began = logged = time.monotonic()
        pause = 0.001
        while not met():
            now = time.monotonic()
            if stop() or now - began > seconds:
                return False
            if now - logged >= _LOG_SECONDS:
                log.info("waiting for %s in the round's store for %.0f s", what, now - began)
                logged = now
            time.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)
        return True

    def _pass_on(self, use: Callable[[TCPStore], T], seconds: float = _CALL_SECONDS) -> T:
        inner = self._connected()
        try:
            return self._run(lambda: use(inner), seconds)
        except DistNetworkError as error:
            raise StoreBroken(f"the connection to the round's store broke: {error}") from error

    def _connected(self, seconds: float | None = None) -> TCPStore:
        if self._closed:
            raise StoreBroken("the round's store is closed")
        try:
            return self.connect(seconds)
        except SidecarError as error:
            raise StoreBroken(str(error)) from error

    def _run(self, run: Callable[[], T], seconds: float = _CALL_SECONDS) -> T:
        try:
            return self._thread.call(run, seconds)
        except Interrupted as error:
            raise StoreBroken(str(error)) from error
