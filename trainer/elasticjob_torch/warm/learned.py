# SPDX-License-Identifier: Apache-2.0
"""The knowledge of a script's imports: the notes of each training process, what prestarted ones found, and the
list for others.

It starts no process, and knows processes only by their local ranks.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from itertools import takewhile
from typing import TYPE_CHECKING

from elasticjob_torch.warm.files import read_text
from elasticjob_torch.warm.learning import read_end, read_learned, top_of
from elasticjob_torch.warm.orders import merged, shared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

_US = "elasticjob_torch"
_MAX_UNFIT = 8  # a script with more of them starts in the ordinary way


class Learned:
    """The imports of all training processes of an agent.

    A `state` is what the script may have changed before an import. An import is **proven** when a prestarted process
    was in the script's state before it, here or, for given imports, in another pod. It stays proven whatever a later
    process notes, until a prestarted one meets another state.

    Args:
        given: what to import early while this pod has learned nothing.
    """

    def __init__(self, given: Sequence[str] = ()) -> None:
        self._folder = tempfile.mkdtemp(prefix="elasticjob-warm-")
        self._files: dict[int, str] = {}  # where the newest processes note their imports
        self._early: dict[int, frozenset[str]] = {}  # what those were to import before their script
        self._names: dict[int, list[str]] = {}
        self._states: dict[int, dict[str, str]] = {}  # in which each of those imports began
        self._differing: set[tuple[str, str]] = set()  # imports before which a prestarted process was not in that state
        self._unfit: dict[str, str] = {}  # imports that cannot be early, and why
        self.late: list[str] = []  # modules that no early import may need
        self._ended: set[int] = set()  # of local ranks whose process has noted why its notes end
        self._told_of_end = False
        self.give(given)

    def give(self, imports: Sequence[str]) -> None:
        """Set what is known from elsewhere; what is learned here replaces it."""
        self._given = list(imports)
        self._proven = set(imports)

    def is_without(self, local_rank: int) -> bool:
        """Say whether a process's notes ended before any import, and no import is known from elsewhere."""
        return local_rank in self._ended and not (self._names.get(local_rank) or self._given)

    def imports(self, local_rank: int) -> list[str]:
        """Return what to import early, in order."""
        known = self._names.get(local_rank) or self._given
        names = [name for name in merged(known) if not self._is_unfit(name)]
        states = self.states(local_rank)
        possible = takewhile(lambda name: (name, states.get(name, "")) not in self._differing, names)
        return [name for name in possible if top_of(name) != _US]

    def states(self, local_rank: int) -> Mapping[str, str]:
        """Return the script's state before each import that it did itself."""
        return self._states.get(local_rank, {})

    def shared(self) -> list[str]:
        """Return what another pod can import early; nothing while process 0 has noted no import."""
        return shared(self.imports(0), self.states(0), self._proven) if self._names.get(0) else []

    def new_file(self, local_rank: int) -> str:
        """Return the file for a process that starts now, and read the notes of the process before it."""
        self._read(local_rank)
        self._files[local_rank] = path = os.path.join(self._folder, f"{local_rank}-{time.monotonic_ns()}")
        self._early[local_rank] = frozenset()
        return path

    def begins_with(self, local_rank: int, imports: Sequence[str]) -> None:
        """Note that the newest process was prestarted, with these imports: it will not note them itself.

        It may record a missing module again, but in a state that is no longer the script's, as all other imports came
        before it.
        """
        self._early[local_rank] = frozenset(imports)
        self._names[local_rank] = merged(imports, self._names.get(local_rank, ()))

    def read(self) -> bool:
        """Read the notes of the processes; return whether there is something new."""
        found = [self._read(local_rank) for local_rank in self._files]
        return any(found)

    def compare(self, imports: Sequence[str], states: Mapping[str, str], done: int, differs: str | None) -> list[str]:
        """Note how far a prestarted process came; return what it has imported.

        ``differs``: what the script has changed before the first import that is left to it, if that is the reason why
        one is left.
        """
        self._proven |= {name for name in imports[:done] if name in states}
        if differs is None or done >= len(imports):
            return list(imports)
        name, state = imports[done], states.get(imports[done], "")
        if (name, state) not in self._differing:
            log.info("not imported early: %s, and what comes later (the script has changed %s by then)", name, differs)
        self._differing.add((name, state))
        self._proven.discard(name)
        return list(imports[:done])

    def leave_out(self, name: str, module: str, why: str) -> bool:
        """Never again import this early, nor anything below it, as that would import it; return whether there are too
        many.

        If a module is to blame, no other import may bring it either.
        """
        if name not in self._unfit:
            log.info("not imported early any more: %s (%s)", name, why)
        self._unfit.setdefault(name, why)
        if module and module not in self.late:
            self.late.append(module)
        return len(self._unfit) > _MAX_UNFIT

    def left(self, local_rank: int, imports: Sequence[str]) -> list[str]:
        """Return what the script still has to import after these, with the reason if it is known."""
        names = [name for name in self._names.get(local_rank, ()) if name not in imports and top_of(name) != _US]
        return [f"{name} ({self._unfit[name]})" if name in self._unfit else name for name in names]

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_unfit(self, name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[:number]) in self._unfit for number in range(1, len(parts) + 1))

    def _read(self, local_rank: int) -> bool:
        if not (text := read_text(self._files.get(local_rank, ""))):
            return False
        known, noted = self._names.get(local_rank, []), read_learned(text)
        self._names[local_rank] = names = merged(known, noted)
        early = self._early[local_rank]
        own = {name: state for name, state in noted.items() if name not in early}
        self._states.setdefault(local_rank, {}).update(own)
        if why := read_end(text):
            self._ended.add(local_rank)
            self._tell_of_end(names, why)
        return len(names) > len(known)

    def _tell_of_end(self, names: Sequence[str], why: str) -> None:
        """Log why early imports end, if they end before the most expensive one, which is torch."""
        if "torch" not in names and not self._told_of_end:
            self._told_of_end = True
            last = names[-1] if names else "its start"
            log.info("not imported early: what the script imports after %s (%s)", last, why)
