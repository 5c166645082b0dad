# SPDX-License-Identifier: Apache-2.0
"""Brings all members of a new group to one state: that of the member that has trained furthest.

All members report their progress: the last round in which they shared the state, then the step. So a newcomer with an
old checkpoint never overrides members that have trained. The state goes over the training's own group, in pieces of
bounded size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from elasticjob_torch.live import exchange
from elasticjob_torch.live.state import read, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from elasticjob_torch.live.collectives import Collectives
    from elasticjob_torch.live.state import Held, Registry

_PIECE_BYTES = 16 << 20


class CannotShare(RuntimeError):
    """The members cannot have one state. The message is a sentence for the user."""


@dataclass(frozen=True, order=True)
class StateVersion:
    """How far a member is; the greatest sends its state.

    Attributes:
        round: the last in which it shared the state; 0 for a newcomer, -1 if it has only a part of a state.
        step: how many steps it has done.
    """

    round: int
    step: int


@dataclass(frozen=True)
class Hello:
    """What a member tells all others when a group forms.

    Attributes:
        shape: of its model and its other state (`Registry.shape`).
    """

    version: StateVersion
    shape: str

    def written(self) -> bytes:
        """Return it as JSON."""
        return json.dumps([self.version.round, self.version.step, self.shape]).encode()

    @classmethod
    def read(cls, data: bytes) -> Hello:
        """Undo `written`. Raises ValueError or TypeError."""
        number, step, shape = json.loads(data)
        return cls(StateVersion(int(number), int(step)), str(shape))


def gather(mine: Hello, collectives: Collectives) -> list[Hello]:
    """Return what each member tells, by rank. A collective.

    Raises:
        CannotShare: the members have different models; the message names one.
    """
    members = [Hello.read(one) for one in exchange.gather(mine.written(), collectives)]
    for rank, member in enumerate(members):
        if member.shape != members[0].shape:
            raise CannotShare(
                f"elastic(): the models of rank 0 and rank {rank} have different parameters, or what is registered "
                "beside them differs; all processes must build the same model, optimizer, schedulers and state"
            )
    return members


def sender(versions: Sequence[StateVersion]) -> int | None:
    """Return the rank that sends its state; None if all have the same.

    Raises:
        CannotShare: no member has a whole state.
    """
    furthest = max(versions)
    if furthest.round < 0:
        raise CannotShare("no member of the group has a whole state: the one that sent it was lost meanwhile")
    if furthest.round > 0 and all(one == furthest for one in versions):
        return None
    return versions.index(furthest)


def send(registry: Registry, source: int, collectives: Collectives) -> None:
    """Send this member's state to all others. A collective with `receive`."""
    held = registry.hold()
    exchange.broadcast(written(held.tree), source, collectives)
    _broadcast(held, source, collectives)


def receive(registry: Registry, source: int, collectives: Collectives) -> None:
    """Receive the state. If it breaks, this member has only a part of it, unless it had the same state before."""
    held = registry.prepare(read(exchange.broadcast(None, source, collectives)))
    _broadcast(held, source, collectives)
    registry.load(held)


def _broadcast(held: Held, source: int, collectives: Collectives) -> None:
    with torch.no_grad():
        for tensor in held.tensors:
            if tensor.numel() and not tensor.is_contiguous():
                whole = tensor.contiguous()
                _broadcast_pieces(whole, source, collectives)
                tensor.copy_(whole)
            else:
                _broadcast_pieces(tensor, source, collectives)


def _broadcast_pieces(tensor: torch.Tensor, source: int, collectives: Collectives) -> None:
    """A piece is received beside the state: gloo may write to it after the group was cut, when the next group sends."""
    sends = dist.get_rank() == source
    for piece in pieces(tensor, _PIECE_BYTES):
        data = collectives.lend(piece if sends else torch.empty_like(piece))
        collectives.wait(dist.broadcast(data, src=source, async_op=True), data)
        if not sends:
            piece.copy_(data)


def pieces(tensor: torch.Tensor, most: int) -> Iterator[torch.Tensor]:
    """Yield views of at most ``most`` bytes that cover a contiguous tensor, as bytes where its type is not sent."""
    if tensor.numel() == 0:
        return
    flat = tensor.view(-1).view(torch.uint8)
    for start in range(0, flat.numel(), most):
        yield flat[start : start + most]
