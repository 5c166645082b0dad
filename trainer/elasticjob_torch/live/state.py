# SPDX-License-Identifier: Apache-2.0
"""The registry of the state that the members of a group share, as a tree and the tensors in it.

The tree is small and can be sent as bytes: in it a `Placeholder` stands for each tensor. So tensors can be sent one by
one, into the memory of the receiver's own tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Protocol

import torch

from elasticjob_torch.live.exchange import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MODEL = "model"


class Stateful(Protocol):
    """What torch's optimizers, schedulers and scalers have."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


@dataclass(frozen=True)
class Placeholder:
    """Stands for a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str  # its type: which of several the receiver chooses


@dataclass(frozen=True)
class Held:
    """A state: its tree, and the tensors of the places in it, in order of depth first."""

    tree: Any
    tensors: list[torch.Tensor]


class Registry:
    """The state of a training. ``others``: by name, the first in order of loading."""

    def __init__(self, model: torch.nn.Module, others: Mapping[str, Stateful]) -> None:
        self._model = model
        self._others = dict(others)

    def shape(self) -> str:
        """Describe the model's parameters and buffers, and what else is registered: the same in all members."""
        tensors = sorted((name, tuple(one.shape), str(one.dtype)) for name, one in _of_model(self._model).items())
        return repr((tensors, list(self._others)))

    def hold(self) -> Held:
        """Return the state; its tensors are the ones in use, not copies."""
        tensors: list[torch.Tensor] = []
        whole = {_MODEL: _of_model(self._model), **{name: one.state_dict() for name, one in self._others.items()}}
        return Held(taken_apart(whole, tensors), tensors)

    def unreadable(self) -> str:
        """Return the name of what has a state that another member could not read; empty if there is nothing."""
        for name, one in self._others.items():
            try:
                read(written(taken_apart(one.state_dict(), [])))
            except (UnpicklingError, AttributeError, TypeError):  # the latter two from pickling it
                return name
        return ""

    def prepare(self, tree: Any) -> Held:
        """Return memory for another member's state: the own tensors where they fit, else new ones."""
        own = self.hold()
        mine = dict(zip(_paths(own.tree), own.tensors, strict=True))
        like = next(iter(self._model.parameters()))
        return Held(tree, [_fitting(place, mine.get(path), like) for path, place in _places(tree)])

    def load(self, received: Held) -> None:
        """Take the received state into use. The model's tensors are so already."""
        whole = put_together(received.tree, iter(received.tensors))
        for name, one in self._others.items():
            one.load_state_dict(whole[name])


def taken_apart(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the value with a `Placeholder` for each tensor, which is appended to ``tensors``."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return Placeholder(tuple(value.shape), value.dtype, value.device.type)
    if isinstance(value, dict):
        return {key: taken_apart(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(taken_apart(one, tensors) for one in value)
    return value


def put_together(tree: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """Undo `taken_apart`."""
    if isinstance(tree, Placeholder):
        return next(tensors)
    if isinstance(tree, dict):
        return {key: put_together(one, tensors) for key, one in tree.items()}
    if isinstance(tree, (list, tuple)) and type(tree) in (list, tuple):
        return type(tree)(put_together(one, tensors) for one in tree)
    return tree


def written(tree: Any) -> bytes:
    """Return a tree as bytes."""
    return packed(tree)


def read(data: bytes) -> Any:
    """Undo `written`. Raises UnpicklingError for what is no tree of plain types."""
    return unpacked(data, [Placeholder])


def _of_model(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Placeholder]]:
    if isinstance(tree, Placeholder):
        yield path, tree
    elif isinstance(tree, dict):
        for key, one in tree.items():
            yield from _places(one, (*path, key))
    elif isinstance(tree, (list, tuple)) and type(tree) in (list, tuple):
        for number, one in enumerate(tree):
            yield from _places(one, (*path, number))


def _paths(tree: Any) -> Sequence[tuple[Any, ...]]:
    return [path for path, _ in _places(tree)]


def _fitting(place: Placeholder, mine: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    if mine is not None and (tuple(mine.shape), mine.dtype, mine.device.type) == (
        place.shape,
        place.dtype,
        place.device,
    ):
        return mine
    device = like.device if like.device.type == place.device else torch.device(place.device)
    return torch.empty(place.shape, dtype=place.dtype, device=device)
