# SPDX-License-Identifier: Apache-2.0
"""Notes which of a round's variables early imports read, and by which module; it imports only modules that Python has
loaded.

A module that asks for a variable by name gets the value, and that is noted. A module that lists all variables mostly
looks for a prefix of its own, as tqdm does, and drops the rest. So in a list, each value that may differ in the next
round is replaced by an object that cannot be used unnoticed (`Unread`). If it is dropped without use, the import has
the same result in any round.

Not noticed: ``getenv`` in C, ``os.environ._data``, ``type(value)``, and code that passes such an object to C code and
hides the TypeError.
"""

from __future__ import annotations

import os
import sys
from _weakref import ref
from typing import TYPE_CHECKING, Any, NoReturn

from elasticjob_torch.warm.orders import EVERY, Read, is_of_a_round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_Environ: Any = type(os.environ)
_HOOKED = ("__getitem__", "__iter__", "__len__", "__repr__")
_PASS_ON = frozenset({"os", "_collections_abc", "collections.abc", __name__})  # they read on behalf of their callers
_OPERATORS = (
    "repr str bytes format hash bool len iter next reversed contains getitem setitem delitem eq ne lt le gt ge "
    "add radd iadd mul rmul imul mod rmod imod and rand or ror xor rxor sub rsub neg pos abs invert round "
    "int float complex index fspath reduce reduce_ex getstate copy deepcopy setattr delattr dir sizeof"
)


class Used(BaseException):
    """A module has used an `Unread`. ``except Exception`` does not hide it."""


class Unread:
    """Replaces a value in a list of the environment; any use of it is noted, and raises `Used`.

    It is no `str`: C code reads a str unnoticed, and raises TypeError for anything else.
    """

    __slots__ = ("__weakref__", "_tell")

    def __init__(self, tell: Callable[[], None]) -> None:
        object.__setattr__(self, "_tell", tell)

    def __getattribute__(self, attribute: str) -> NoReturn:
        _use(self)


def _use(unread: Unread, *_: Any, **__: Any) -> NoReturn:
    """The implementation of each operator."""
    object.__getattribute__(unread, "_tell")()
    raise Used


for _operator in _OPERATORS.split():
    setattr(Unread, f"__{_operator}__", _use)


class Reads:
    """The reads between `begin` and `end`, noticed through the class of `os.environ`.

    Reads of other variables than a round's are not noted: a process with other values of those is never used.
    """

    def __init__(self) -> None:
        self.of: dict[str, list[Read]] = {}  # by variable, the first of each early import
        self.during = ""
        self._used: Read | None = None
        self._given: list[tuple[ref[Unread], Read]] = []  # and the read to report if it is kept
        self._keys: dict[int, Any] = {}  # the keys in lists, by their ids: they live as long as this object
        self._real = {name: getattr(_Environ, name) for name in _HOOKED}

    def begin(self) -> None:
        """Replace the methods that read a variable, and those that list all."""
        get, iterate, count, show = (self._real[name] for name in _HOOKED)

        def get_noted(environ: Any, key: Any) -> Any:
            name = _round_name(key)
            if name and id(key) not in self._keys:
                self._note(name)
            value = get(environ, key)
            return self._unread(name) if name and id(key) in self._keys else value

        def iterate_noted(environ: Any) -> Iterator[Any]:
            self._note(EVERY)
            return self._remembered(iterate(environ))

        def count_noted(environ: Any) -> Any:
            self._note(EVERY)
            return count(environ)

        def show_noted(environ: Any) -> Any:
            for name in (EVERY, *filter(None, map(_round_name, iterate(environ)))):
                self._note(name)
            return show(environ)

        for name, hook in zip(_HOOKED, (get_noted, iterate_noted, count_noted, show_noted), strict=True):
            setattr(_Environ, name, hook)

    def end(self) -> None:
        """Restore everything."""
        for name, real in self._real.items():
            setattr(_Environ, name, real)

    def fault(self) -> Read | None:
        """Return the read of a module that used or kept a value of a list; None if there is none."""
        if not self._used and self._are_kept():
            _collect()  # garbage does not count as kept
        return self._used or next((who for unread, who in self._given if unread() is not None), None)

    def _are_kept(self) -> bool:
        self._given = [each for each in self._given if each[0]() is not None]
        return bool(self._given)

    def _note(self, name: str) -> None:
        reads = self.of.setdefault(name, [])
        if all(read.early_import != self.during for read in reads):
            reads.append(self._by("reads the names of all variables" if name == EVERY else f"reads {name}"))

    def _by(self, does: str) -> Read:
        reader, module = _reader()
        by_way = "" if reader == module else f", by way of {reader},"
        return Read(self.during, module, f"{module}{by_way} {does}")

    def _remembered(self, keys: Iterator[Any]) -> Iterator[Any]:
        for key in keys:
            if _round_name(key):
                self._keys[id(key)] = key
            yield key

    def _unread(self, name: str) -> Unread:
        def tell() -> None:
            self._used = self._used or self._by(f"uses {name} out of a list of all variables")

        unread = Unread(tell)
        self._given.append((ref(unread), self._by(f"keeps {name} out of a list of all variables")))
        return unread


def _round_name(key: Any) -> str:
    """Return the name of a round's variable, empty for any other key."""
    name = os.fsdecode(key) if isinstance(key, (str, bytes)) else ""
    return name if is_of_a_round(name) else ""


def _reader() -> tuple[str, str]:
    """Return the module whose code reads now, and the module that it is importing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _name_of(frame) in _PASS_ON:
        frame = frame.f_back
    reader = _name_of(frame)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return reader, _name_of(frame) or reader


def _name_of(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def _collect() -> None:
    is_known = "gc" in sys.modules
    import gc

    gc.collect()
    if not is_known:
        del sys.modules["gc"]
