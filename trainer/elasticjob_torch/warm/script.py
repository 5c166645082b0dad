# SPDX-License-Identifier: Apache-2.0
"""What an import can see of the script before it runs: its folder, and its own name."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

from elasticjob_torch.warm.learning import script_folder


class AsInScript:
    """Between `begin` and `end` both are as Python and `runpy` set them for the script."""

    def __init__(self) -> None:
        self._argument = ""
        self._folder = ""

    def begin(self) -> None:
        """Called before the early imports."""
        folder, argument = script_folder(sys.argv), sys.argv[0]
        file = _module_file(sys.orig_argv[3]) if argument == "-m" else os.path.join(os.getcwd(), argument)
        if not getattr(sys.flags, "safe_path", False) and (argument == "-m" or os.path.isfile(argument)):
            sys.path.insert(0, folder)
            self._folder = folder
        if file is not None:
            vars(sys.modules["__main__"])["__file__"] = file
            if argument == "-m":
                sys.argv[0], self._argument = file, argument

    def end(self) -> None:
        """Leave to Python what it sets itself."""
        if self._folder and sys.path[:1] == [self._folder]:
            del sys.path[0]
        if self._argument:
            sys.argv[0] = self._argument
        vars(sys.modules["__main__"]).pop("__file__", None)


def _module_file(name: str) -> str | None:
    """Return the file that ``python -m`` will run, without importing anything."""
    folders: list[str] | None = None if getattr(sys.flags, "safe_path", False) else [os.getcwd(), *sys.path]
    parts = name.split(".")
    for number in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:number]), folders)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        if folders is None and number < len(parts):
            return None
    if folders is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", folders)
    return spec.origin if spec is not None and spec.has_location else None
