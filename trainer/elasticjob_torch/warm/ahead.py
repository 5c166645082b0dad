# SPDX-License-Identifier: Apache-2.0
"""Starts the first prestarted processes when torchrun itself starts, before its agent has imported torch.

`sitecustomize` calls `begin` in each process of a job with warm restart. So this module imports only what it needs to
see that a process is no torchrun.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from elasticjob_torch.warm.command import Expected
    from elasticjob_torch.warm.pool import Pool

WANTED = "ELASTICJOB_WARM_RESTART"  # the job's spec.warmRestart
AUTO = "Auto"
GIVEN = "ELASTICJOB_WARM_IMPORTS"  # imports that another pod of the job has learned, separated by commas
_READ_AT_START = ("PYTHON", "LD_", "GLIBC_", "MALLOC_")

_startup: dict[str, str] | None = None
_pool: Pool | None = None


def is_wanted(environment: Mapping[str, str]) -> bool:
    return environment.get(WANTED) in (AUTO, "Enabled") and environment.get("PET_RDZV_BACKEND") == "elasticjob"


def begin(leave_mark: Callable[[str], None]) -> None:
    """Called once at Python's start. ``leave_mark`` marks this process and all its children as those of a run's agent.

    Raises nothing.
    """
    global _startup
    if not is_wanted(os.environ):
        return
    _startup = _read_at_start()
    try:
        _begin(leave_mark)
    except Exception as error:  # torchrun starts as usual
        print(f"elasticjob: no process is prestarted ahead: {type(error).__name__}: {error}", file=sys.stderr)


def startup() -> Mapping[str, str] | None:
    """Return the variables that this interpreter has read at its start; None if it did not begin here, or read
    others."""
    return _startup if _startup == _read_at_start() else None


def pool() -> Pool:
    """Return the pool of this process, made at the first call. Raises OSError if it can have no folder."""
    global _pool
    if _pool is None:
        import atexit

        from elasticjob_torch.warm.pool import Pool

        atexit.register(forget)
        given = [name for name in os.environ.get(GIVEN, "").split(",") if name]
        _pool = Pool(given, cautious=os.environ.get(WANTED) == AUTO)
    return _pool


def forget() -> None:
    global _pool
    closing, _pool = _pool, None
    if closing is not None:
        closing.close()


def start_first() -> None:
    """Start the missing ones of the first processes, if their commands are certain.

    Raises:
        OSError: it is unknown what they would inherit.
    """
    from elasticjob_torch.warm.command import expect

    expected = expect(sys.argv, sys.orig_argv, os.environ, sys.executable)
    if expected is not None:
        _start(expected)


def _read_at_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_START)}


def _begin(leave_mark: Callable[[str], None]) -> None:
    from elasticjob_torch.warm.command import expect

    expected = expect(sys.argv, sys.orig_argv, os.environ, sys.executable)
    run_id = os.environ.get("PET_RDZV_ID", "")
    if expected is None or not run_id or any(map(os.isatty, (1, 2))):  # logged later, when there is a log
        return
    from elasticjob_torch.warm import room

    if room.cpus() <= expected.processes:
        return  # the agent's own start comes first
    leave_mark(run_id)
    _start(expected)


def _start(expected: Expected) -> None:
    from dataclasses import replace

    from elasticjob_torch.environment import handed_on
    from elasticjob_torch.warm.beginning import first_imports
    from elasticjob_torch.warm.command import guessed_environment
    from elasticjob_torch.warm.learning import Own, script_folder
    from elasticjob_torch.warm.process import Start

    started = pool()
    script = expected.arguments[2]
    if script != "-m" and not os.environ.get(GIVEN):
        own = Own(script_folder([script]), sys.path)
        try:
            with open(script, encoding="utf-8") as file:
                started.give(first_imports(file.read(), own.is_in_folder))
        except (OSError, UnicodeDecodeError):
            return
    launcher = _launcher()
    handed = handed_on(os.environ, os.environ.get("PET_RDZV_ENDPOINT", ""))
    for local_rank in range(expected.processes):
        environment = handed | guessed_environment(sys.argv, os.environ, local_rank, expected.processes, launcher)
        start = Start.now(expected.arguments, environment, (1, 2))
        started.start(local_rank, replace(start, is_guessed=True))


def _launcher() -> str:
    """Return the source of torch's launcher, without importing torch; empty if it cannot be read."""
    spec = PathFinder.find_spec("torch")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        try:
            with open(os.path.join(folder, "distributed/launcher/api.py"), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            pass
    return ""
