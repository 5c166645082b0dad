"""Notes which environment variables are read while a parked process imports early; imports nothing but `os`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from elasticjob_torch.warm.orders import EVERY

if TYPE_CHECKING:
    from collections.abc import Iterator

_Environ: Any = type(os.environ)


class Reads:
    """What was read, and during which import; watches between `begin` and `end`, by way of the class of `os.environ`.

    Libraries that read it in C are not seen.
    """

    def __init__(self) -> None:
        self.of: dict[str, str] = {}
        self.during = ""
        self._get = _Environ.__getitem__
        self._iterate = _Environ.__iter__

    def begin(self) -> None:
        """Take the place of what reads a variable, and of what lists them."""
        get, iterate = self._get, self._iterate

        def noted_get(environ: Any, key: Any) -> Any:
            self._note(os.fsdecode(key) if isinstance(key, (str, bytes)) else EVERY)
            return get(environ, key)

        def noted_iterate(environ: Any) -> Iterator[Any]:
            self._note(EVERY)
            listed: Iterator[Any] = iterate(environ)
            return listed

        _Environ.__getitem__, _Environ.__iter__ = noted_get, noted_iterate

    def end(self) -> None:
        """Put everything back."""
        _Environ.__getitem__, _Environ.__iter__ = self._get, self._iterate

    def _note(self, name: str) -> None:
        self.of.setdefault(name, self.during)
