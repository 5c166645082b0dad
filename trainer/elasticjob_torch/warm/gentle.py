# SPDX-License-Identifier: Apache-2.0
"""Slows early imports down from inside: a finder that finds nothing, but is asked before each module is searched.

A process cannot use its priority for this, as it could not raise it again. So it rests several times as long as it
worked, and checks meanwhile whether it is wanted.
"""

from __future__ import annotations

import sys
import time
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import ModuleType

_WORK_SECONDS = 0.02  # shorter work earns no rest yet


class Gentle:
    """The finder. It is in ``sys.meta_path`` between `begin` and `end`.

    Args:
        folder: the script's. Modules in it must not be found: they are the script's own, and are not imported early.
        rest: waits the given seconds, or until there is no time to rest any more.
    """

    def __init__(self, folder: str, rest: Callable[[float], object]) -> None:
        self.times = 0.0  # rest this many times as long as the work
        self.late: Collection[str] = ()  # modules that must not be imported yet
        self.refused = ""  # the first module that an import requested and did not get, and why
        self._folder = folder
        self._rest = rest
        self._rested = 0.0

    def begin(self) -> None:
        self._rested = time.process_time()
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        sys.path_importer_cache.pop(self._folder, None)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Rest; find nothing. Raises ModuleNotFoundError for a module that no other finder may find."""
        why = self._why_not(name, path)
        if why:
            self.refused = self.refused or f"{name}, {why}"
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        worked = time.process_time() - self._rested
        if worked >= _WORK_SECONDS:
            self._rest(worked * self.times)
            self._rested = time.process_time()

    def _why_not(self, name: str, path: Sequence[str] | None) -> str:
        if path is None and self._is_shadowed(name):
            return "which the script's folder has"
        return "which is to be imported later" if name in self.late else ""

    def _is_shadowed(self, name: str) -> bool:
        if name in sys.builtin_module_names:
            return False
        spec = PathFinder.find_spec(name, [self._folder])
        if spec is None:
            return False
        if spec.has_location:
            return True
        elsewhere = PathFinder.find_spec(name)  # any module precedes a plain folder
        return elsewhere is None or not elsewhere.has_location
