# SPDX-License-Identifier: Apache-2.0
"""Which libraries a script has patched: a library that is imported after that may copy the patch.

``torch.load = functools.partial(torch.load, weights_only=False)`` is such a patch. It watches functions and classes of
modules, and their public constants; libraries keep counters under private names. Changes by an import are not the
script's, and additions do not count: many libraries add to their modules when they are used. Only the ids of values are
kept, so that no value lives longer for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_LIBRARY = ("__main__", "elasticjob_torch", "sys")  # torch sets sys.excepthook when it makes a process group
_Module = type(sys)
_CODE = (type, type(len), type(lambda: None))
_CONSTANTS = frozenset({bool, int, float, str, tuple})


class _Held(NamedTuple):
    """The content of a module: a number for all of it, and the ids of the watched values, by name."""

    everything: int
    watched: dict[str, int]


class Patches:
    """The patches of packages for which ``is_watched`` returns True. The first `accept` takes long, later ones do
    not."""

    def __init__(self) -> None:
        self.is_watched: Callable[[str], bool] = lambda top: top not in NO_LIBRARY
        self._held: dict[str, _Held] = {}
        self._changed: set[str] = set()

    def accept(self) -> None:
        """Accept all modules as they are now: an import has ended, and the script has not gone on yet."""
        for name, names in self._modules():
            everything = _everything(names)
            known = self._held.get(name)
            if known is None or known.everything != everything:
                self._held[name] = _Held(everything, _watched(name, names))

    def changed(self) -> list[str]:
        """Return the modules that were ever changed between an import's end and a call of this."""
        for name, names in self._modules():
            known = self._held.get(name)
            if known is None or known.everything == _everything(names):
                continue
            if any(each in names and id(names[each]) != number for each, number in known.watched.items()):
                self._changed.add(name)
        return sorted(self._changed)

    def _modules(self) -> Iterator[tuple[str, dict[str, object]]]:
        watched: dict[str, bool] = {}
        script = sys.modules.get("__main__")  # multiprocessing calls it __mp_main__ too
        for name, module in list(sys.modules.items()):
            top = name.partition(".")[0]
            if top not in watched:
                watched[top] = self.is_watched(top)
            if watched[top] and module is not script and issubclass(type(module), _Module):
                # reads the namespace without loading a lazy module
                yield name, object.__getattribute__(module, "__dict__")


def _everything(names: dict[str, object]) -> int:
    return hash(tuple(map(id, names.values())))


def _watched(module: str, names: dict[str, object]) -> dict[str, int]:
    constants = frozenset() if module.startswith("_") or "._" in module else _CONSTANTS
    return {
        name: id(value)
        for name, value in list(names.items())
        if issubclass(kind := type(value), _CODE) or (kind in constants and name[:1] != "_")
    }
