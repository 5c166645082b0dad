# SPDX-License-Identifier: Apache-2.0
"""Sends bytes between the members of a group, and reads them without running what they might contain.

torch's own calls for objects unpickle whatever arrives. The connections of a group are not authenticated, so here only
JSON and torch's restricted format are read.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elasticjob_torch.live.collectives import Collectives


def gather(mine: bytes, collectives: Collectives) -> list[bytes]:
    """Return what each member gives, by rank. A collective."""
    lend = collectives.lend
    sizes = [lend(torch.zeros(1, dtype=torch.int64)) for _ in range(dist.get_world_size())]
    collectives.wait(dist.all_gather(sizes, lend(torch.tensor([len(mine)])), async_op=True))
    longest = max(int(size) for size in sizes)
    padded = [lend(torch.empty(longest, dtype=torch.uint8)) for _ in sizes]
    collectives.wait(dist.all_gather(padded, lend(_tensor(mine.ljust(longest))), async_op=True))
    return [_bytes(one[: int(size)]) for one, size in zip(padded, sizes, strict=True)]


def broadcast(given: bytes | None, source: int, collectives: Collectives) -> bytes:
    """Return what the member ``source`` gives; the others give None. A collective."""
    size = collectives.lend(torch.tensor([0 if given is None else len(given)]))
    collectives.wait(dist.broadcast(size, src=source, async_op=True))
    data = collectives.lend(torch.empty(int(size), dtype=torch.uint8) if given is None else _tensor(given))
    collectives.wait(dist.broadcast(data, src=source, async_op=True))
    return _bytes(data)


def packed(value: Any) -> bytes:
    """Return a value of plain types as bytes."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpacked(data: bytes, kinds: Sequence[type]) -> Any:
    """Return the value in ``data``. ``kinds``: classes that it may contain beside the plain types that torch allows.

    Raises:
        UnpicklingError: it contains something else.
    """
    with torch.serialization.safe_globals(list(kinds)):
        return torch.load(io.BytesIO(data), weights_only=True)


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.tolist())
