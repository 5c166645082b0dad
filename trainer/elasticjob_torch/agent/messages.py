# SPDX-License-Identifier: Apache-2.0
"""What an agent and its training processes tell each other while these live through changes of the group.

Each message is one line of JSON over a Unix socket of the agent. Training processes read this too, so it must be cheap,
and imports no torch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

# The variable that tells a process its start and the agent's socket. The start is not `environment.START`: a prestarted
# process keeps its own of that, whichever start it trains in.
SOCKET = "ELASTICJOB_LIVE"
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Waits:
    """A process is between two steps, and waits for a round after `round` (0: it has been in none)."""

    start: str  # the id in its variable
    local_rank: int
    round: int


@dataclass(frozen=True, kw_only=True)
class Saves:
    """A process saves from now on, or no longer does."""

    start: str
    local_rank: int
    saving: bool


@dataclass(frozen=True, kw_only=True)
class Enter:
    """A round for this process: its number, and the variables that torch would start it with."""

    round: int
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Over:
    """The round is over: leave it together with its other members, between two steps. ``cut``: they may be gone; end
    its collectives."""

    round: int
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Stop:
    """This process does not live on; the reason is for people."""

    reason: str


Message = Waits | Saves | Enter | Over | Stop
_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Waits, Saves, Enter, Over, Stop)}


def to_variable(start: str, path: str) -> str:
    return f"{start}:{path}"


def from_variable(value: str) -> tuple[str, str]:
    """Return the id of the start, and the socket's path; both empty without a value."""
    start, _, path = value.partition(":")
    return start, path


def send(to: socket.socket, message: Message) -> None:
    """Raises OSError if the other side is gone."""
    to.sendall(to_line(message))


def to_line(message: Message) -> bytes:
    return json.dumps({type(message).__name__.lower(): asdict(message)}).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """Raises ValueError if the line is no message."""
    try:
        ((name, fields),) = json.loads(line).items()
        message: Message = _KINDS[name](**fields)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{line[:100]!r} is no message between an agent and its processes: {error}") from None
    return message


def received(of: socket.socket) -> Iterator[Message]:
    """Yield what the other side sends, until it is gone. Raises ValueError for a line that is no message."""
    with of.makefile("rb") as lines:
        while line := _next(lines):
            yield from_line(line)


def _next(lines: Any) -> bytes:
    try:
        return bytes(lines.readline(_LONGEST_LINE))
    except OSError:
        return b""
