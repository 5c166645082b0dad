# SPDX-License-Identifier: Apache-2.0
"""torch's `RendezvousBackend` over a ConfigMap: a digest of the state is its fencing token.

Heartbeats have keys of their own in the ConfigMap; writing them does not change the token.

One ConfigMap belongs to one run at a time. A closed run stays closed for its own id. Another id may take the ConfigMap
over once the run is closed or all its nodes are lost.
"""

from __future__ import annotations

import hashlib
import pickle
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousStateError, dynamic_rendezvous

from elasticjob_torch.kubernetes.api import ApiError, Conflict, NotFound, Rejected, uniform
from elasticjob_torch.kubernetes.clock import now
from elasticjob_torch.kubernetes.heartbeats import PREFIX, SLOW_SECONDS, Pace, judged, key_of, read_times
from elasticjob_torch.kubernetes.state import Header, Kept, StateCodec, StateError, name_of_node, read_kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from elasticjob_torch.kubernetes.clock import SharedClock
    from elasticjob_torch.kubernetes.config_map import ConfigMap, Content

T = TypeVar("T")

NAME = "kubernetes"
_KEY = "state"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds, after another node's write came first
_TRIES = 8  # of a write that collided with others' heartbeats, before torch decides again


@dataclass(frozen=True)
class StateSummary:
    """The part of the state that the handler looks at."""

    state_id: str
    round: int
    closed: bool
    participants: int
    """The nodes that are not silent."""


class KubernetesRendezvousBackend(dynamic_rendezvous.RendezvousBackend):  # type: ignore[misc]
    """The state of a rendezvous in a ConfigMap's key ``state``, as JSON.

    Args:
        run_id: of this run.
        pace: of the heartbeats; it determines which nodes the handler drops.
        longest_pause: seconds within which a write is retried after another node's write came first; 0 for a pause that
            grows from 0.02 to 1.

    Attributes:
        patience: seconds for which the API server may be unavailable before a call gives up.
        seen: the state that was last read or written.
    """

    def __init__(
        self, config_map: ConfigMap, run_id: str, pace: Pace, clock: SharedClock, longest_pause: float = 0.0
    ) -> None:
        self.patience = 0.0
        self.seen: StateSummary | None = None
        self._map = config_map
        self._run_id = run_id
        self._pace = pace
        self._clock = clock
        self._longest_pause = longest_pause
        self._codec = _checked(
            config_map, lambda: StateCodec(dynamic_rendezvous._RendezvousState, dynamic_rendezvous._NodeDesc, clock)
        )
        self._content: Content | None = None
        self._judged: dict[Any, tuple[datetime, datetime]] = {}
        self._slow: datetime | None = None  # when an answer was last slow or missing
        self._lost = 0

    @property
    def name(self) -> str:
        return NAME

    def scope(self) -> str:
        """Return the prefix of the keys of this state's store. Raises RendezvousStateError before the state exists."""
        if self.seen is None:
            raise RendezvousStateError(f"there is no rendezvous state in {self._map} whose store could be used")
        return f"{self.seen.state_id}/"

    def get_state(self) -> tuple[bytes, str] | None:
        """Return torch's state and its token, or None if this run has not begun.

        Raises:
            RendezvousConnectionError: no answer within ``patience``, or no permission.
            RendezvousStateError: another run uses the ConfigMap, or it holds something else.
        """
        return self._take_in(self._read())

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, str, bool] | None:
        """Write torch's state if the token is still current, or without a token if there is no state.

        Returns:
            The state that is there now, its token, and whether that is the given one; None if there is none.

        Raises:
            RendezvousConnectionError, RendezvousStateError: as `get_state` does.
        """
        ours = pickle.loads(state)  # bytes of this process, not from the network
        content = self._content if token is not None and token == self._token(self._content) else self._read()
        for _ in range(_TRIES):
            if self._token(content) != token:
                break
            if (written := self._write(ours, content)) is not None:
                self._lost = 0
                current = self._take_in(written)
                return None if current is None else (*current, True)
            content = self._read()
        self._pause()
        current = self.get_state()
        return None if current is None else (*current, False)

    def _pause(self) -> None:
        """Let the others write first."""
        self._lost = min(self._lost + 1, 16)
        time.sleep(uniform(0, self._longest_pause or min(_FIRST_PAUSE * 2**self._lost, _LONGEST_PAUSE)))

    def _write(self, state: Any, before: Content | None) -> Content | None:
        """Write a state in place of ``before``; return None if that has changed.

        The first state of a run makes the ConfigMap its owner's, be it a former run's or one made beforehand.
        """
        kept = self._kept(before)
        state_id = secrets.token_hex(4) if kept is None else kept.header.state_id
        for node, (passed_on, heard) in self._judged.items():
            if state.last_heartbeats.get(node) == passed_on:
                state.last_heartbeats[node] = heard
        header = Header(self._run_id, state_id, self._pace.expiry_seconds)
        text = _checked(self._map, lambda: self._codec.write(header, state))
        try:
            if before is None:
                return self._map.create({_KEY: text}, patience=self.patience)
            alive = {key_of(name_of_node(node)) for node in state.last_heartbeats}
            gone = dict.fromkeys(key for key in before.data if key.startswith(PREFIX) and key not in alive)
            data = {_KEY: text, **gone}
            if _KEY in before.data:
                return self._map.replace(_KEY, before.data[_KEY], data, patience=self.patience, own=kept is None)
            return self._map.patch(data=data, version=before.version, patience=self.patience, own=True)
        except (Conflict, NotFound):
            return None
        except Rejected as error:
            raise RendezvousStateError(str(error)) from error
        except ApiError as error:
            raise RendezvousConnectionError(str(error)) from error

    def _take_in(self, content: Content | None) -> tuple[bytes, str] | None:
        """Return the state for torch, and its token."""
        self._content, self._judged, self.seen = None, {}, None
        kept, token = self._kept(content), self._token(content)
        if content is None or kept is None or token is None:
            return None
        state = _checked(self._map, lambda: self._codec.read(kept.fields))
        time_ = now()
        passed_on = judged(self._heard(state, content), time_, self._pace, self._slow)
        self._judged = {node: (passed_on[node], heard) for node, heard in state.last_heartbeats.items()}
        state.last_heartbeats = passed_on
        expired = time_ - timedelta(seconds=self._pace.expiry_seconds)
        participants = sum(passed_on.get(node, time_) >= expired for node in state.participants)
        self.seen = StateSummary(kept.header.state_id, state.round, state.closed, participants)
        self._content = content
        return pickle.dumps(state), token

    def _heard(self, state: Any, content: Content) -> dict[Any, list[datetime]]:
        """Return the times of each node's last heartbeats, as the node wrote them, or of its join, as torch did."""
        heard = {}
        for node, joined in state.last_heartbeats.items():
            written = read_times(content.data.get(key_of(name_of_node(node)), ""))
            *earlier, last = map(self._clock.to_local, written) if written else [joined]
            heard[node] = [*earlier, max(last, joined)]
        return heard

    def _token(self, content: Content | None) -> str | None:
        """Return the token of this run's state; None if there is no state."""
        if content is None or self._kept(content) is None:
            return None
        return hashlib.sha256(content.data[_KEY].encode()).hexdigest()

    def _read(self) -> Content | None:
        began, content = time.monotonic(), None
        try:
            content = self._map.read(self.patience)
        except NotFound:
            pass
        except ApiError as error:
            self._slow = now()
            raise RendezvousConnectionError(str(error)) from error
        if time.monotonic() - began > SLOW_SECONDS:
            self._slow = now()
        return content

    def _kept(self, content: Content | None) -> Kept | None:
        """Return this run's part of the ConfigMap; None if it is empty or holds remains of another run."""
        if content is None or _KEY not in content.data:
            return None
        kept = _checked(self._map, lambda: read_kept(content.data[_KEY]))
        if kept.header.run_id == self._run_id:
            return kept
        if kept.fields.get("closed") is True:
            return None
        state = _checked(self._map, lambda: self._codec.read(kept.fields))
        beats = [times[-1] for times in self._heard(state, content).values()]
        if not beats or now() - max(beats) > timedelta(seconds=kept.header.expiry_seconds):
            return None
        raise RendezvousStateError(
            f"{self._map} is in use by the run '{kept.header.run_id}', where this is '{self._run_id}': "
            "give each run a --rdzv-endpoint of its own, or end that one"
        )


def _checked(config_map: ConfigMap, run: Callable[[], T]) -> T:
    """Call ``run``, and translate errors into torch's terms."""
    try:
        return run()
    except StateError as error:
        raise RendezvousStateError(
            f"the rendezvous state in {config_map} does not fit: {error}. To begin anew: {config_map.delete_command}"
        ) from error
