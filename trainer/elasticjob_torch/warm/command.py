"""What torchrun will start its training processes with, from its own command line, before torch is imported.

Pure. Only what is read surely counts; a wrong guess costs a parked process, as it is compared with what torch asks for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TORCHRUN = ("torch", "distributed", "run")
_OTHER_OUTPUTS = ("--redirects", "-r", "--tee", "-t", "--run-path", "--run_path", "--no-python", "--no_python")
_FLAGS = ("-m", "--module")
_BACKEND_OPTIONS = ("--rdzv-backend", "--rdzv_backend")
_BACKEND = "elasticjob"  # another one leaves what is parked where it is


class Expected(NamedTuple):
    """The command of each training process, and how many there are."""

    arguments: tuple[str, ...]
    processes: int


def can_be_parked(arguments: Sequence[str], executable: str) -> bool:
    """Say whether a command is that of a Python script or module, by this interpreter and as torchrun writes it."""
    if len(arguments) < 3 or arguments[0] != executable or arguments[1] != "-u":
        return False
    return not arguments[2].startswith("-") or (arguments[2] == "-m" and len(arguments) > 3)


def expect(
    argv: Sequence[str], orig_argv: Sequence[str], environment: Mapping[str, str], executable: str
) -> Expected | None:
    """Return what the training processes of this process will be, None if it is no torchrun, or that is not sure."""
    options = _torchrun_options(argv, orig_argv)
    if options is None or environment.get("PYTHON_EXEC", executable) != executable:
        return None
    number, module = environment.get("PET_NPROC_PER_NODE", ""), False
    for at, option in enumerate(options):
        name, equals, value = option.partition("=")
        if not option.startswith("-"):
            start = (executable, "-u", *(("-m",) if module else ()))
            return Expected((*start, *options[at:]), int(number)) if number.isdecimal() and int(number) else None
        if name in _FLAGS and not equals:
            module = True
        elif not equals or name in _OTHER_OUTPUTS or (name in _BACKEND_OPTIONS and value != _BACKEND):
            return None
        elif name in ("--nproc-per-node", "--nproc_per_node"):
            number = value
    return None


def _torchrun_options(argv: Sequence[str], orig_argv: Sequence[str]) -> Sequence[str] | None:
    """Python starts, so a module's name is not in ``sys.argv`` yet."""
    if not argv:
        return None
    if os.path.basename(argv[0]) == "torchrun":
        return argv[1:]
    started = os.path.splitext(argv[0])[0].split(os.sep)[-len(_TORCHRUN) :]
    if tuple(started) == _TORCHRUN or (argv[0] == "-m" and ".".join(_TORCHRUN) in orig_argv):
        return argv[1:]
    return None
