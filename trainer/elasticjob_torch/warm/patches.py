"""Which libraries a script has changed from outside: a library that is imported after that may take over the change.

``torch.load = functools.partial(torch.load, weights_only=False)`` is such a change. Watched are functions, classes and
public constants of modules. What an import changes is not the script's doing, nor is what is added: many libraries add
to their modules when they are used. Only numbers are kept of what modules hold, so that nothing lives longer for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_Module = type(sys)
_CODE = (type, type(len), type(lambda: None))
_CONSTANTS = frozenset({bool, int, float, str, bytes, tuple, type(None)})


class _Held(NamedTuple):
    """What a module holds, in numbers: all of it, and what is watched of it."""

    everything: int
    watched: int
    watched_hash: int


class Patches:
    """Of the modules that ``is_watched`` takes by their names."""

    def __init__(self, is_watched: Callable[[str], bool]) -> None:
        self._is_watched = is_watched
        self._held: dict[str, _Held] = {}
        self._changed: set[str] = set()

    def accept(self) -> None:
        """Take all modules as they are now: an import has ended, and the script has not gone on yet."""
        for name, names in self._modules():
            everything = _everything(names)
            known = self._held.get(name)
            if known is None or known.everything != everything:
                watched = _watched(names)
                self._held[name] = _Held(everything, len(watched), hash(tuple(watched)))

    def changed(self) -> list[str]:
        """Return the modules that were changed between an import's end and a call of this, from the beginning on."""
        for name, names in self._modules():
            known = self._held.get(name)
            if known is None or known.everything == _everything(names):
                continue
            if hash(tuple(_watched(names)[: known.watched])) != known.watched_hash:
                self._changed.add(name)
        return sorted(self._changed)

    def _modules(self) -> list[tuple[str, dict[str, object]]]:
        # the plain look at the namespace: a lazy module would be loaded by any other
        return [
            (name, object.__getattribute__(module, "__dict__"))
            for name, module in list(sys.modules.items())
            if issubclass(type(module), _Module) and self._is_watched(name)
        ]


def _everything(names: dict[str, object]) -> int:
    return hash(tuple(map(id, names.values())))


def _watched(names: dict[str, object]) -> list[int]:
    """A new name comes last, so that what was there keeps its place."""
    return [
        id(value)
        for name, value in list(names.items())
        if issubclass(type(value), _CODE) or (type(value) in _CONSTANTS and not name.startswith("_"))
    ]
