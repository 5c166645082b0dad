# SPDX-License-Identifier: Apache-2.0
"""torch's rendezvous state as JSON that a person can read, and back.

torch pickles its state, and unpickling executes whatever the bytes contain. So only JSON is kept in the cluster, and
each value is checked against torch's own type of the field. Fields are found by these types, not by name, because names
are internal to torch and differ between versions. This module does not import torch: its classes are passed in.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from elasticjob_torch.kubernetes.clock import SharedClock

_NODE_FIELDS = {"addr": str, "pid": int, "local_id": int}
_LARGEST = 1 << 53  # the largest exact integer in JSON


class StateError(Exception):
    """The state cannot be written or read; the message names the field."""


@dataclass(frozen=True)
class Header:
    """The fields kept beside torch's own."""

    run_id: str
    state_id: str
    """New for each new state, so that no two share the store's keys; `incarnation` in the JSON."""
    expiry_seconds: int
    """Seconds without a heartbeat after which this run drops a node."""


@dataclass(frozen=True)
class Kept:
    """A state as it was read: its header is checked, torch's fields are not yet."""

    header: Header
    fields: dict[str, Any]


def read_kept(text: str) -> Kept:
    """Read the JSON of a ConfigMap. Raises StateError."""
    try:
        body = json.loads(text)
        header = Header(body.pop("runId"), body.pop("incarnation"), body.pop("expirySeconds"))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise StateError(f"it is not a state of this backend ({type(error).__name__}: {error})") from error
    _check_string("runId", header.run_id)
    _check_string("incarnation", header.state_id)
    _check_number("expirySeconds", header.expiry_seconds)
    return Kept(header, body)


class StateCodec:
    """Writes and reads the fields of torch's state.

    Args:
        state_class, node_class: torch's own ``_RendezvousState`` and ``_NodeDesc``.
    """

    def __init__(self, state_class: type, node_class: type, clock: SharedClock) -> None:
        self._state_class = state_class
        self._node_class = node_class
        self._clock = clock
        found = typing.get_type_hints(node_class)
        if found != _NODE_FIELDS:
            raise StateError(
                f"torch's node has the fields {found}, where {_NODE_FIELDS} are known; use torch 2.6 to 2.15"
            )
        self._codecs = {name: self._codec(name, hint) for name, hint in typing.get_type_hints(state_class).items()}

    def write(self, header: Header, state: Any) -> str:
        """Return the JSON for a state of torch. Raises StateError."""
        body: dict[str, Any] = {
            "runId": header.run_id,
            "incarnation": header.state_id,
            "expirySeconds": header.expiry_seconds,
        }
        for name, value in vars(state).items():
            if name not in self._codecs:
                raise StateError(f"torch's rendezvous state has the unknown field '{name}'; use torch 2.6 to 2.15")
            body[name] = self._codecs[name][0](value)
        return json.dumps(body, indent=1)

    def read(self, fields: dict[str, Any]) -> Any:
        """Return a state of torch made from the fields of JSON. Raises StateError."""
        different = set(fields) ^ set(self._codecs)
        if different:
            names = ", ".join(sorted(different))
            raise StateError(f"the field(s) {names} are not in both its torch version and this one's; use one version")
        state = self._state_class()
        for name, value in fields.items():
            setattr(state, name, self._codecs[name][1](name, value))
        return state

    def _codec(self, name: str, hint: Any) -> tuple[Callable[[Any], Any], Callable[[str, Any], Any]]:
        """Return the functions that write and read a field of this type."""
        node = self._node_class
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is bool:
            return bool, _check_bool
        if hint is int:
            return int, _check_number
        if origin in (typing.Union, types.UnionType) and set(arguments) == {datetime, type(None)}:
            return self._write_time, self._read_time
        if origin is set and arguments == (node,):
            return self._write_nodes, self._read_nodes
        if origin is dict and arguments == (node, int):
            return self._write_ranks, self._read_ranks
        if origin is dict and arguments == (node, datetime):
            return self._write_heartbeats, self._read_heartbeats
        raise StateError(f"torch's rendezvous state has the field '{name}' of type {hint}; use torch 2.6 to 2.15")

    def _write_time(self, value: datetime | None) -> str | None:
        return None if value is None else self._clock.to_server(value).isoformat()

    def _read_time(self, name: str, value: Any) -> datetime | None:
        return None if value is None else self._clock.to_local(_parse_time(name, value))

    def _write_nodes(self, nodes: set[Any]) -> list[str]:
        return [name_of_node(node) for node in sorted(nodes)]

    def _read_nodes(self, name: str, value: Any) -> set[Any]:
        if not isinstance(value, list):
            raise StateError(f"'{name}' is not a list")
        return {self._read_node(name, each) for each in value}

    def _write_ranks(self, ranks: dict[Any, int]) -> dict[str, int]:
        return {name_of_node(node): ranks[node] for node in sorted(ranks, key=lambda node: (ranks[node], node))}

    def _read_ranks(self, name: str, value: Any) -> dict[Any, int]:
        return {self._read_node(name, node): _check_number(name, rank) for node, rank in _items(name, value)}

    def _write_heartbeats(self, beats: dict[Any, datetime]) -> dict[str, str | None]:
        return {name_of_node(node): self._write_time(beats[node]) for node in sorted(beats)}

    def _read_heartbeats(self, name: str, value: Any) -> dict[Any, datetime]:
        to_local = self._clock.to_local
        return {self._read_node(name, node): to_local(_parse_time(name, beat)) for node, beat in _items(name, value)}

    def _read_node(self, name: str, text: Any) -> Any:
        parts = text.rsplit("/", 2) if isinstance(text, str) else []
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts[1:]):
            raise StateError(f"'{name}' has {text!r}, which is not a node (address/pid/number)")
        return self._node_class(parts[0], int(parts[1]), int(parts[2]))


def name_of_node(node: Any) -> str:
    return f"{node.addr}/{node.pid}/{node.local_id}"


def _items(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise StateError(f"'{name}' is not an object")
    return value.items()


def _parse_time(name: str, value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(value)
        time.astimezone()  # a time far beyond the calendar would fail later
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(f"'{name}' has {value!r}, which is not a time") from error
    if time.tzinfo is None or not 2000 < time.year < 9000:
        raise StateError(f"'{name}' has {value!r}, which is not a time with its offset from UTC")
    return time


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise StateError(f"'{name}' is {value!r}, not true or false")
    return value


def _check_number(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST:
        raise StateError(f"'{name}' has {value!r}, which is not a whole number")
    return value


def _check_string(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise StateError(f"'{name}' is {value!r}, not a string")
