# SPDX-License-Identifier: Apache-2.0
"""torch's own dynamic rendezvous over the ConfigMap, protected from causes that would end the training needlessly.

The rendezvous is `DynamicRendezvousHandler`'s. Around it: training processes go on while the API server is unavailable
for some time, the group re-forms when a member is lost, an agent that fails leaves the run open for its replacement,
and a spare that is never needed ends with code 0.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.distributed import DistStoreError
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousTimeoutError,
    dynamic_rendezvous,
)

from elasticjob_torch.agent.settings import SettingsError
from elasticjob_torch.agent.stopping import hear_signals
from elasticjob_torch.kubernetes.access import NotInAPod, find_access
from elasticjob_torch.kubernetes.api import ApiClient
from elasticjob_torch.kubernetes.backend import NAME, KubernetesRendezvousBackend
from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.config_map import ConfigMap
from elasticjob_torch.kubernetes.keep_alive import WRITE_SECONDS, KeepAlive
from elasticjob_torch.kubernetes.settings import parse_settings
from elasticjob_torch.kubernetes.state import name_of_node
from elasticjob_torch.kubernetes.store import KubernetesStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elasticjob_torch.kubernetes.access import InClusterConfig
    from elasticjob_torch.kubernetes.settings import BackendSettings

log = logging.getLogger(__name__)

# If shared, torch's TCPStore outlives its round: rank 0's address is then stale in the next one (2.6 to 2.15).
_DO_NOT_SHARE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_POLL_PAUSE_SECONDS = 1.0  # after a poll that failed
_LOG_SECONDS = 60.0
_LEAVE_SECONDS = 5.0


def create_handler(params: RendezvousParameters) -> KubernetesRendezvousHandler:
    """Make the handler of this process; torch calls it.

    Raises:
        SystemExit: with one sentence, if an option is wrong or this is no pod with a service account.
    """
    hear_signals()
    try:
        settings = parse_settings(params.endpoint, params.config)
        access = find_access()
        namespace = _namespace(settings, access)
        address = params.local_addr or access.own_address()  # other pods cannot resolve a bare pod's host name
    except (SettingsError, NotInAPod, OSError) as error:
        raise SystemExit(f"{NAME}: {error}") from None
    for sentence in settings.ignored:
        log.warning("%s", sentence)
    clock = SharedClock()
    state = ConfigMap(ApiClient(access, clock), namespace, settings.name, settings.owner)
    backend = KubernetesRendezvousBackend(state, params.run_id, settings.pace, clock, settings.longest_pause)
    kept = ConfigMap(ApiClient(access, clock), namespace, f"{settings.name}-store", settings.owner)
    store = KubernetesStore(kept, backend.scope)
    own = RendezvousParameters(
        params.backend,
        params.endpoint,
        params.run_id,
        params.min_nodes,
        params.max_nodes,
        address,
        **settings.config,
    )
    inner = dynamic_rendezvous.create_handler(store, backend, own)
    interval = settings.pace.interval_seconds
    keep_alive = KeepAlive(state.clone(WRITE_SECONDS), clock, name_of_node(inner._this_node), interval)
    return KubernetesRendezvousHandler(inner, backend, store, keep_alive, settings, state)


def _namespace(settings: BackendSettings, access: InClusterConfig) -> str:
    """Return the ConfigMaps' namespace. Raises SettingsError if their owner would be in another one, and OSError."""
    if settings.namespace and settings.owner is None:
        return settings.namespace
    own = access.namespace()
    if settings.namespace not in ("", own):
        raise SettingsError(
            f"--rdzv-endpoint names the namespace '{settings.namespace}', but an owner of the pod's namespace '{own}' "
            "cannot own ConfigMaps there; leave out owner= of --rdzv-conf, or the namespace"
        )
    return own


class KubernetesRendezvousHandler(RendezvousHandler):  # type: ignore[misc]
    """`DynamicRendezvousHandler` over a ConfigMap."""

    def __init__(
        self,
        inner: dynamic_rendezvous.DynamicRendezvousHandler,
        backend: KubernetesRendezvousBackend,
        store: KubernetesStore,
        keep_alive: KeepAlive,
        settings: BackendSettings,
        where: ConfigMap,
    ) -> None:
        self._inner = inner
        self._backend = backend
        self._store = store
        self._keep_alive = keep_alive
        self._settings = settings
        self._where = where
        self._round = self._world_size = 0
        self._poll_after = self._logged_at = float("-inf")
        self._leaves: weakref.finalize[..., KubernetesRendezvousHandler] | None = None

    def get_backend(self) -> str:
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """Say whether training processes use a store that the agent serves: only if the environment asks for it."""
        with _NOT_SHARED:
            return bool(self._inner.use_agent_store)

    def get_run_id(self) -> str:
        return str(self._inner.get_run_id())

    def next_rendezvous(self) -> RendezvousInfo:
        """Join the next round and wait until it is complete.

        Raises:
            SystemExit: code 0, if this was a spare and the run is over.
            RendezvousClosedError: the run is over; another run needs another id.
            RendezvousTimeoutError: no round within ``join_timeout`` seconds (600).
            RendezvousConnectionError: the API server was unavailable for that long, or refused.
            RendezvousStateError: the ConfigMap belongs to another run, or holds something else.
        """
        seconds = self._settings.config["join_timeout"]
        if self._leaves is None or not self._leaves.alive:  # a signal ends torchrun without a shutdown()
            self._leaves = weakref.finalize(self, _leave, self._inner, self._keep_alive)
        self._keep_alive.start()  # also while this node waits for others
        try:
            with self._patient(seconds):
                info = self._join(time.monotonic() + seconds)
        except RendezvousGracefulExitError:
            log.info("the run '%s' is over, and this spare was not needed", self.get_run_id())
            raise SystemExit(0) from None
        except RendezvousClosedError:
            raise RendezvousClosedError(
                f"the run '{self.get_run_id()}' in {self._where} is over; a new one needs another --rdzv-id, "
                f"or first: {self._where.delete_command}"
            ) from None
        except RendezvousTimeoutError:
            raise RendezvousTimeoutError(
                f"no round of the run '{self.get_run_id()}' in {self._where} within join_timeout ({seconds} s)"
            ) from None
        seen = self._backend.seen
        self._round, self._world_size = (0 if seen is None else seen.round), info.world_size
        if info.rank == 0:
            self._forget_old_rounds()
        return info

    def num_nodes_waiting(self) -> int:
        """Return more than 0 if the group has to re-form: nodes wait, or members are lost.

        Returns 0 while the API server is unavailable: training processes do not need it.

        Raises:
            RendezvousStateError: the ConfigMap belongs to another run, or holds something else.
        """
        if time.monotonic() < self._poll_after:
            return 0
        try:
            return int(self._inner.num_nodes_waiting()) or self._lost()
        except RendezvousConnectionError as error:
            now = time.monotonic()
            self._poll_after = now + _POLL_PAUSE_SECONDS
            if now > self._logged_at + _LOG_SECONDS:
                self._logged_at = now
                log.warning("training goes on without knowing who waits: %s", error)
            return 0

    def is_closed(self) -> bool:
        return bool(self._inner.is_closed())

    def set_closed(self) -> None:
        """End the run: no node can join it any more."""
        with self._patient(self._settings.config["close_timeout"]):
            self._inner.set_closed()

    def shutdown(self) -> bool:
        """After success close the run; after an error leave it, so that a replacement can join.

        torch calls this in its ``finally``, so the exception in flight tells which. Returns whether it is recorded.
        """
        if self._leaves is not None:
            self._leaves.detach()
        if sys.exc_info()[0] is not None:
            return _leave(self._inner, self._keep_alive)
        try:
            with self._patient(self._settings.config["close_timeout"]):
                return bool(self._inner.shutdown())
        finally:
            self._keep_alive.stop()

    def _join(self, deadline: float) -> RendezvousInfo:
        while True:
            try:
                with _NOT_SHARED:
                    info = self._inner.next_rendezvous()
                self._inner._stop_heartbeats()  # they wait for polls, and write the whole state
                return info
            except DistStoreError as error:  # rank 0 was lost before it could tell its address
                if time.monotonic() > deadline:
                    raise RendezvousTimeoutError from error
                log.warning("a round was complete, but not usable; joining anew: %s", error)

    def _lost(self) -> int:
        """Return how many members of the round in use are lost; torch itself does not check."""
        seen = self._backend.seen
        if not self._world_size or (seen is not None and seen.closed):
            return 0
        if seen is None or seen.round != self._round:
            return 1  # the state has gone on without this node
        return max(self._world_size - seen.participants, 0)

    def _forget_old_rounds(self) -> None:
        """Delete the keys of all rounds except this one and the last, whose members may still be ending it."""
        rounds = [self._round] if self._round == 0 else [self._round - 1, self._round]
        try:
            self._store.keep_only([f"torch.rendezvous.{self.get_run_id()}.{number}/" for number in rounds])
        except RuntimeError as error:
            log.warning("the keys of old rounds stay for now: %s", error)

    @contextmanager
    def _patient(self, seconds: float) -> Iterator[None]:
        """Let the backend wait up to ``seconds`` for the API server; otherwise it answers at once, for polls."""
        self._backend.patience = seconds
        try:
            yield
        finally:
            self._backend.patience = 0.0


class _NotShared:
    """A block in which torch finds in the environment that no TCPStore is shared, unless the user has set it. Several
    threads may be in it."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside or _DO_NOT_SHARE not in os.environ:
                self._inside += 1
                os.environ[_DO_NOT_SHARE] = "1"

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._inside:
                self._inside -= 1
                if not self._inside:
                    del os.environ[_DO_NOT_SHARE]


_NOT_SHARED = _NotShared()


def _leave(inner: dynamic_rendezvous.DynamicRendezvousHandler, keep_alive: KeepAlive) -> bool:
    """Take this node out of the round, so that the others need not wait for its expiry. Returns whether that is
    done."""
    keep_alive.stop()
    try:
        inner._stop_heartbeats()
        inner._op_executor.run(dynamic_rendezvous._RendezvousExitOp(), time.monotonic() + _LEAVE_SECONDS)
    except Exception as error:  # the heartbeats have ended
        log.info("could not leave the rendezvous: %s", error)
        return False
    return True
