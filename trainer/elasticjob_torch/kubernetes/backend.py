"""torch's `RendezvousBackend` over a ConfigMap: its ``resourceVersion`` is the fencing token.

One ConfigMap belongs to one run at a time. A closed run stays closed for its own id; another id may take the
ConfigMap over once the run is closed or all its nodes are lost.
"""

from __future__ import annotations

import pickle
import random
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousStateError, dynamic_rendezvous

from elasticjob_torch.kubernetes.api import ApiError, Conflict, NotFound, Rejected
from elasticjob_torch.kubernetes.clock import SharedClock, now
from elasticjob_torch.kubernetes.state import Header, Kept, StateCodec, StateError, read_kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from elasticjob_torch.kubernetes.config_map import ConfigMap, Content

T = TypeVar("T")

NAME = "kubernetes"
_KEY = "state"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # after a write that another node forestalled


@dataclass(frozen=True)
class Seen:
    """What of the state the handler looks at."""

    incarnation: str
    round: int
    complete: bool
    closed: bool
    participants: int


class KubernetesRendezvousBackend(dynamic_rendezvous.RendezvousBackend):  # type: ignore[misc]
    """The state of a rendezvous in a ConfigMap's key ``state``, as JSON.

    Args:
        run_id: of this run.
        expiry_seconds: after how long without a heartbeat the handler drops a node.

    Attributes:
        patience: seconds for which the API server may be away before a call gives up.
        seen: the state that was last read or written.
    """

    def __init__(self, config_map: ConfigMap, run_id: str, expiry_seconds: int, clock: SharedClock) -> None:
        self.patience = 0.0
        self.seen: Seen | None = None
        self._map = config_map
        self._run_id = run_id
        self._expiry_seconds = expiry_seconds
        self._codec = _checked(
            config_map, lambda: StateCodec(dynamic_rendezvous._RendezvousState, dynamic_rendezvous._NodeDesc, clock)
        )
        self._lost = 0

    @property
    def name(self) -> str:
        """The value of ``--rdzv-backend``."""
        return NAME

    def scope(self) -> str:
        """Return what the keys of this state's store begin with. Raises RendezvousStateError before it has begun."""
        if self.seen is None:
            raise RendezvousStateError(f"there is no rendezvous state in {self._map} whose store could be used")
        return f"{self.seen.incarnation}/"

    def get_state(self) -> tuple[bytes, str] | None:
        """Return torch's state and its token, or None when this run has not begun.

        Raises:
            RendezvousConnectionError: no answer within ``patience``, or no permission.
            RendezvousStateError: the ConfigMap is in use by another run, or holds something else.
        """
        content = self._read()
        kept = self._kept(content)
        if content is None or kept is None:
            self.seen = None
            return None
        state = _checked(self._map, lambda: self._codec.read(kept.fields))
        self._see(kept.header, state)
        return pickle.dumps(state), content.version

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, str, bool] | None:
        """Write torch's state if the token is still the present one, or without a token if there is no state.

        Returns:
            The state that is now there, its token, and whether that is the one given; None when there is none.

        Raises:
            RendezvousConnectionError, RendezvousStateError: as `get_state` does.
        """
        ours = pickle.loads(state)  # bytes of this very process, not of the network
        version = self._begin(ours) if token is None else self._go_on(ours, token)
        if version is not None:
            self._lost = 0
            return state, version, True
        self._lost += 1
        time.sleep(random.uniform(0, min(_FIRST_PAUSE * 2**self._lost, _LONGEST_PAUSE)))
        current = self.get_state()
        return None if current is None else (*current, False)

    def _begin(self, state: Any) -> str | None:
        """Write the first state of this run; return its version, or None when another node was first."""
        content = self._read()
        if self._kept(content) is not None:
            return None
        header = Header(self._run_id, secrets.token_hex(4), self._expiry_seconds)
        return self._write(header, state, None if content is None else content.version)

    def _go_on(self, state: Any, token: Any) -> str | None:
        if self.seen is None or not isinstance(token, str):
            return None
        return self._write(Header(self._run_id, self.seen.incarnation, self._expiry_seconds), state, token)

    def _write(self, header: Header, state: Any, version: str | None) -> str | None:
        data = {_KEY: _checked(self._map, lambda: self._codec.write(header, state))}
        try:
            if version is None:
                written = self._map.create(data, patience=self.patience)
            else:
                written = self._map.patch(data=data, version=version, patience=self.patience)
        except (Conflict, NotFound):
            return None
        except Rejected as error:
            raise RendezvousStateError(str(error)) from error
        except ApiError as error:
            raise RendezvousConnectionError(str(error)) from error
        self._see(header, state)
        return written.version

    def _read(self) -> Content | None:
        try:
            return self._map.read(self.patience)
        except NotFound:
            return None
        except ApiError as error:
            raise RendezvousConnectionError(str(error)) from error

    def _kept(self, content: Content | None) -> Kept | None:
        """Return what the ConfigMap holds of this run; None when it holds nothing or what remains of another."""
        if content is None or _KEY not in content.data:
            return None
        kept = _checked(self._map, lambda: read_kept(content.data[_KEY]))
        if kept.header.run_id == self._run_id:
            return kept
        if kept.fields.get("closed") is True:
            return None
        beat = _checked(self._map, lambda: self._codec.last_heartbeat(kept.fields))
        if beat is None or now() - beat > timedelta(seconds=kept.header.expiry_seconds):
            return None
        raise RendezvousStateError(
            f"{self._map} is in use by the run '{kept.header.run_id}', where this is '{self._run_id}': "
            "give each run a --rdzv-endpoint of its own, or end that one"
        )

    def _see(self, header: Header, state: Any) -> None:
        self.seen = Seen(header.incarnation, state.round, state.complete, state.closed, len(state.participants))


def _checked(config_map: ConfigMap, run: Callable[[], T]) -> T:
    """Run it, and say in torch's terms what does not fit."""
    try:
        return run()
    except StateError as error:
        raise RendezvousStateError(
            f"the rendezvous state in {config_map} does not fit: {error}. To begin anew: {config_map.delete_command}"
        ) from error
