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


def gather(mine: bytes) -> list[bytes]:
    """Return what each member gives, by rank. A collective."""
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(mine)]))
    longest = max(int(size) for size in sizes)
    padded = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
    dist.all_gather(padded, _tensor(mine.ljust(longest)))
    return [_bytes(one[: int(size)]) for one, size in zip(padded, sizes, strict=True)]


def broadcast(given: bytes | None, source: int) -> bytes:
    """Return what the member ``source`` gives; the others give None. A collective."""
    size = torch.tensor([0 if given is None else len(given)])
    dist.broadcast(size, src=source)
    data = torch.empty(int(size), dtype=torch.uint8) if given is None else _tensor(given)
    dist.broadcast(data, src=source)
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
