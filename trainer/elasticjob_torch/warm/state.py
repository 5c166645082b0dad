# SPDX-License-Identifier: Apache-2.0
"""The state that a script may set before an import and that the import may depend on or set too, as a short text for
comparisons.

No audit event reports it. It does not depend on whether a module that reports a part of it is loaded.
"""

from __future__ import annotations

import os
import sys
from importlib.util import source_hash
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DIGITS = 8
_PATCHED = "functions, classes or constants of a library"


def fingerprint(patched: Sequence[str] = ()) -> str:
    """Return the state of this process, equal in each process in the same state.

    ``patched``: the modules that the script has changed, see `patches`.
    """
    found = [*(part() for part in _PARTS.values()), tuple(patched)]
    return ".".join(source_hash(repr(each).encode("utf-8", "replace")).hex()[:_DIGITS] for each in found)


def difference(one: str, other: str) -> str | None:
    """Return what differs between two states, in words."""
    pairs = zip((*_PARTS, _PATCHED), one.split("."), other.split("."), strict=True)
    return next((name for name, value, another in pairs if value != another), None)


def _builtin(name: str) -> Any:
    """Return a module of the interpreter, without leaving it in ``sys.modules``."""
    is_known = name in sys.modules
    module = __import__(name)
    if not is_known:
        del sys.modules[name]
    return module


_locale = _builtin("_locale")


def _warnings() -> Any:
    module = sys.modules.get("warnings")
    show = getattr(getattr(module, "showwarning", None), "__module__", "")
    filters = getattr(module or _builtin("_warnings"), "filters", None)
    return filters, "" if show in ("warnings", "_py_warnings") else show


def _logging() -> Any:
    root = getattr(sys.modules.get("logging"), "root", None)
    if root is None:
        return 30, 0, [], []
    handlers = [(type(each).__qualname__, each.level) for each in root.handlers]
    loggers = list(root.manager.loggerDict.items())  # with plain names in between
    changed = [(name, *_logger(each)) for name, each in loggers if hasattr(each, "level") and _is_set_up(each)]
    return root.level, root.manager.disable, handlers, sorted(changed)


def _is_set_up(logger: Any) -> bool:
    return bool(logger.level or logger.handlers or logger.filters or logger.disabled or not logger.propagate)


def _logger(logger: Any) -> tuple[Any, ...]:
    return logger.level, logger.propagate, logger.disabled, len(logger.handlers), len(logger.filters)


def _streams() -> Any:
    names = ("encoding", "errors", "line_buffering", "write_through")
    return [
        (type(stream).__qualname__, stream is original, *(getattr(stream, name, None) for name in names))
        for stream, original in ((sys.stdout, sys.__stdout__), (sys.stderr, sys.__stderr__))
    ]


def _default_type() -> str:
    get = getattr(sys.modules.get("torch"), "get_default_dtype", None)
    return "torch.float32" if get is None else str(get())


_PARTS: dict[str, Callable[[], Any]] = {
    "the filters of warnings": _warnings,
    "logging": _logging,
    "standard output or error": _streams,
    "the recursion limit": sys.getrecursionlimit,
    "the working directory": os.getcwd,
    "the locale": lambda: _locale.setlocale(_locale.LC_ALL),
    "torch's default type": _default_type,
}
