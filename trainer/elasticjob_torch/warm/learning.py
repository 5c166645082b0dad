# SPDX-License-Identifier: Apache-2.0
"""Learns in a training process what its script imports, in which order and state, from the interpreter's audit events.

It notes the outermost imports of modules that are not the script's own: those that begin while no other such import is
in progress. Imports by the script's own modules count as the script's. Its own modules are never imported early, nor is
a library that needed one. The notes end where an own module hides a library from early imports, and before the first
action after which order matters: a change of the environment, a thread, a fork or another program, a CUDA context
(except for torch's own modules, which ask for none). Such actions within an import belong to it, as it repeats them
when it is imported early; the prestarted process checks their lasting effects.

A script cannot see audit hooks, unlike a finder, or a replaced `__import__`.
"""

from __future__ import annotations

import _thread
import os
import sys
from _weakref import ref
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from elasticjob_torch.warm.patches import NO_LIBRARY, Patches
from elasticjob_torch.warm.state import fingerprint

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType

END = "-"  # begins a line of the file: the notes end here, and why
FORGET = "<"  # begins a line of the file: the last noted import, or the end, needs a module of the script's own

_US = "elasticjob_torch"
_MATTERS = frozenset(
    {
        "_thread.start_joinable_thread",
        "_thread.start_new_thread",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.putenv",
        "os.spawn",
        "os.system",
        "os.unsetenv",
        "pty.spawn",
        "subprocess.Popen",
    }
)
_IMPORTS = {True: ("import",), False: ("import", "exec")}  # the second event shows a module that imports nothing
_UNHEARD = sys.version_info < (3, 12)  # no event reports a thread


def learn(path: str, patches: Patches | None = None) -> None:
    """Note this process's imports in a file until order matters, one per line: the name, and the `state` in which it
    began. Raises nothing.

    ``patches``: has accepted the modules that are loaded.
    """
    learner = Learner(path, script_folder(sys.argv), sys.path, patches)
    sys.addaudithook(learner.hear)
    leave_nothing()


def leave_nothing() -> None:
    """Remove this package from ``sys.modules``, where the script would see it. Its code that still runs is not
    affected."""
    package = "elasticjob_torch.warm"
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
        del sys.modules[name]
    vars(sys.modules["elasticjob_torch"]).pop("warm", None)


def script_folder(argv: list[str]) -> str:
    """Return the folder that Python puts first on ``sys.path`` for the script or module of a command line."""
    name = argv[0] if argv else ""
    return os.getcwd() if name in ("", "-c", "-m") else os.path.dirname(os.path.realpath(name))


def read_learned(text: str) -> dict[str, str]:
    """Return the imports in a file, in order, and the state in which each began."""
    noted: list[str] = []
    for line in text.split("\n")[:-1]:  # the last line is incomplete
        if line[:1] == FORGET:
            del noted[-1:]
        if line[:1] in (END, FORGET):
            break
        noted.append(line)
    learned: dict[str, str] = {}
    for line in noted:
        name, _, state = line.partition(" ")
        learned.setdefault(name, state)
    return learned


def read_end(text: str) -> str:
    """Return why the notes in a file end; empty if they go on."""
    return next((line[2:] for line in text.split("\n")[:-1] if line[:1] in (END, FORGET)), "")


class Learner:
    """Receives audit events in the main thread, and appends its notes to a file at once: the process may be killed at
    any time."""

    def __init__(self, path: str, folder: str, paths: list[str], patches: Patches | None = None) -> None:
        self._path = path
        self._own = Own(folder, paths)
        self._thread = _thread.get_ident()
        self._modules = sys.modules
        self._last = ""
        self._done = False
        self._ending: ref[Any] | None = None  # to the last import's lock, which is dropped with that import
        self._is_watched = True  # whether the end of the last import is to be noticed
        self._patches = patches or Patches()
        self._patches.is_watched = lambda top: top not in NO_LIBRARY and not self._own.has(top)
        if patches is None:
            self._patches.accept()

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self._done or (event not in _IMPORTS[self._is_watched] and event not in _MATTERS):
            return
        try:
            frame = sys._getframe().f_back
            if frame is not None and _thread.get_ident() == self._thread:  # else the interpreter or another thread
                self._hear(event, args, frame)
        except Exception:  # the script must not be disturbed
            self._done = True

    def _hear(self, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
        under_way, ours = self._under_way(frame)
        if ours:
            return
        if under_way and under_way == self._last and not self._is_watched:
            self._watch_end(under_way)
        if event == "exec":
            return
        if event != "import":
            if not under_way:
                self._end(END, event)
            return
        if under_way and self._own.has(args[0]):
            self._end(FORGET, f"{under_way} imports {args[0]}")
            return
        name = under_way or args[0]
        if name == self._last or top_of(name) == _US:
            return
        if self._own.has(name):
            if self._own.hides(name):
                self._end(END, f"{top_of(name)} hides another")
            return
        if (top_of(name) != "torch" and self._has_cuda()) or (_UNHEARD and self._has_threads()):
            self._end(END, "a thread or a CUDA context")
            return
        self._last = name
        self._is_watched = False
        self._write(f"{name} {fingerprint(self._patches.changed())}")

    def _watch_end(self, name: str) -> None:
        """Accept the modules when this import ends.

        No event reports that. But the import system holds a lock for each module that it loads, and drops it then.
        """
        self._is_watched = True
        find = getattr(self._modules["_frozen_importlib"], "_module_locks", {}).get(name)
        lock = None if find is None else find()
        if lock is not None:
            self._ending = ref(lock, self._accept)

    def _accept(self, _: object) -> None:
        try:
            if not self._done:
                self._patches.accept()
        except Exception:  # as in `hear`
            self._done = True

    def _under_way(self, frame: FrameType | None) -> tuple[str, bool]:
        """Return the outermost import in progress that is not the script's, and whether the plug-in itself is at
        work."""
        name = ""
        while frame is not None:
            code = frame.f_code
            if top_of(frame.f_globals.get("__name__", "")) == _US:
                return "", True
            if code.co_name == "_find_and_load" and code.co_filename.startswith("<frozen importlib"):
                imported = frame.f_locals.get("name", "")
                if not self._own.has(imported):
                    name = imported
            frame = frame.f_back
        return name, False

    def _has_cuda(self) -> bool:
        return bool(getattr(self._modules.get("torch.cuda"), "_initialized", False))

    def _has_threads(self) -> bool:
        """Say whether there are threads that the plug-in did not start."""
        threads = getattr(self._modules.get("threading"), "_active", {}).values()  # read without its lock
        targets = [getattr(each, "_target", None) for each in list(threads) if each.ident != self._thread]
        return any(top_of(getattr(each, "__module__", None) or "") != _US for each in targets)

    def _end(self, how: str, why: str) -> None:
        self._done = True
        self._write(f"{how} {why}")

    def _write(self, line: str) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line.encode() + b"\n")
        finally:
            os.close(file)


class Own:
    """Recognizes the script's own modules: those in its folder, or on a path added to ``sys.path`` since.

    The longest path that contains a module decides, as site-packages may be in a folder below the script's.
    """

    def __init__(self, folder: str, paths: list[str]) -> None:
        self._folder = folder
        self._start = list(paths)
        self._others = [real for real in map(os.path.realpath, paths) if real != folder]
        self._paths: tuple[str, ...] = ()
        self._known: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Say whether a module is the script's own, loaded or not."""
        if self._paths != (paths := tuple(sys.path)):
            self._paths = paths
            self._known.clear()
        top = top_of(name)
        if (known := self._known.get(top)) is None:
            known = self._known[top] = self._find(top)
        return known

    def hides(self, name: str) -> bool:
        """Say whether an own module precedes another of its name, which an early import would find instead.

        Modules in the script's folder are excluded: see `gentle`.
        """
        in_folder = PathFinder.find_spec(top_of(name), [self._folder])
        if in_folder is not None and in_folder.has_location:
            return False
        another = PathFinder.find_spec(top_of(name), self._start)
        return another is not None and not self._is_own(another)

    def is_in_folder(self, name: str) -> bool:
        """Say whether a module of this name is in the script's folder."""
        return PathFinder.find_spec(top_of(name), [self._folder]) is not None

    def _find(self, top: str) -> bool:
        module = sys.modules.get(top)
        spec = PathFinder.find_spec(top) if module is None else getattr(module, "__spec__", None)
        return top not in sys.builtin_module_names and spec is not None and self._is_own(spec)

    def _is_own(self, spec: ModuleSpec) -> bool:
        found = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
        return any(self._is_below(each) for each in found if isinstance(each, str))

    def _is_below(self, path: str) -> bool:
        real = os.path.realpath(path)
        known = [each for each in (self._folder, *self._others) if real.startswith(each.rstrip("/") + "/")]
        return not known or max(known, key=len) == self._folder


def top_of(name: str) -> str:
    """Return the top-level module of a module."""
    return name.partition(".")[0]
