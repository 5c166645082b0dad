# SPDX-License-Identifier: Apache-2.0
"""The jobs of test_warm_restart.py, each from its start to its end. Some run at once."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.agents import until
from contract.warm import processes
from contract.warm.changes import JOBS
from contract.warm.runs import HERE, SCRIPT, SECONDS, Run, Setup

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[[Setup, bool], Run]

CHEAP = {"ELASTICJOB_WARM_IMPORTS": "json"}  # else a new pod's first processes import torch
PART = "early_package.part"  # what is imported early where all is well

# How each job starts that lives twice, fresh and warm, and how its rounds end; in the last one all return.
TWICE = {
    "script": (
        Setup(
            ["--tee=3", SCRIPT, "an argument"], 2, CHEAP | {"CONTRACT_IMPORTS": "early_speaks early_sees early_prefix"}
        ),
        ["raise", "SIGSEGV", "no such data"],
    ),
    "module": (
        Setup(
            ["--redirects=3", "--module", "training.observe", "--lr=1"],
            2,
            CHEAP | {"CONTRACT_IMPORTS": "early_speaks early_sees early_prefix"},
            folder=HERE,
        ),
        ["code", "at once", "SIGKILL"],
    ),
    "quiet": (
        Setup([SCRIPT, "--quiet"], 1, CHEAP | {"CONTRACT_IMPORTS": "early_speaks early_sees early_prefix"}),
        ["code"],
    ),
    "torch": (Setup([SCRIPT, "--torch"], real=True), ["raise"]),
}

# What no process can be prestarted for.
ORDINARY = {
    "--no-python": Setup(["--no-python", "/usr/bin/env", "python", SCRIPT], 1, CHEAP),
    "PYTHON_EXEC": Setup([SCRIPT], 1, CHEAP | {"PYTHON_EXEC": str(Path(sys.executable).with_name("python3"))}),
}

MISBEHAVING = ["early_keeps", "early_thread", "early_hasty", "early_raises", "early_exits"]
ENDS = ["complete", "killed", "stopped", "suspended"]


def _twice(start: Start, name: str, warm: bool) -> Run:
    setup, ends = TWICE[name]
    with start(setup, warm) as run:
        for number, end in enumerate(ends, 1):
            run.train()
            if warm:
                run.await_prestarted()
            if number == len(ends):
                run.thorough()
            run.tell(end)
        run.train()
        run.complete()
        return run


def _rounds(start: Start, setup: Setup, failures: int = 1) -> Run:
    """Warm, with so many failures."""
    with start(setup, True) as run:
        for _ in range(failures):
            run.train()
            run.await_prestarted()
            run.tell("code")
        run.train()
        run.complete()
        return run


def _ordinary(start: Start, how: str) -> Run:
    with start(ORDINARY[how], True) as run:
        run.train()
        until(run.why_ordinary, "the log to say that no process is prestarted", SECONDS)
        run.tell("code")
        run.train()
        run.complete()
        return run


def _another_rank(start: Start) -> Run:
    """The last of two workers becomes the first one, as the other's replacement never starts, then fails."""
    with start(
        Setup(environment=CHEAP | {"CONTRACT_IMPORTS": f"{PART} early_rank early_prefix"}, workers=2), True
    ) as run:
        run.train()
        run.await_prestarted()
        run.trainers.not_yet.add(f"{run.job.name}-0-1")
        run.job.delete_pod(f"{run.job.name}-0-0")
        run.train()
        run.await_prestarted()
        run.tell("code")
        run.train()
        run.complete()
        return run


def _slow_import(start: Start) -> Run:
    """Orders come while a process imports early what takes long."""
    with start(Setup(environment=CHEAP | {"CONTRACT_IMPORTS": f"{PART} early_waits"}), True) as run:
        run.train()
        until(lambda: list(run.directory.glob("importing-*")), "a process that imports early", SECONDS)
        run.tell("code")
        until(lambda: "round 2: rank 0 of 1" in run.log(), "its orders", SECONDS)
        (run.directory / "imported").touch()
        run.train()
        run.complete()
        return run


def _hang(start: Start) -> tuple[Run, int]:
    """Orders come while a process hangs in an early import; with the restarts that were counted."""
    setup = Setup(environment=CHEAP | {"CONTRACT_IMPORTS": f"{PART} early_hangs"}, changes=["impatient"])
    with start(setup, True) as run:
        run.train()
        until(lambda: list(run.directory.glob("importing-*")), "a process that imports early", SECONDS)
        run.tell("code")
        run.train()
        counted = run.job.view()["job"]["status"]["restarts"]
        run.complete()
        return run, counted


def _end(start: Start, how: str) -> tuple[Run, list[int]]:
    """With the processes that are left at the end."""
    with start(Setup(environment=CHEAP), True) as run:
        run.train()
        prestarted = run.await_prestarted()
        if how == "killed":
            os.kill(run.agent, signal.SIGKILL)
        elif how == "stopped":
            run.job.delete_pod(run.pod)
        elif how == "suspended":
            run.job.patch(suspend=True)
        if how != "complete":
            until(
                lambda: not [pid for pid in prestarted if processes.lives(pid)],
                "the prestarted process to end",
                SECONDS,
            )
            run.trainers.codes(1, SECONDS)
            run.job.patch(suspend=False)
        run.trainers.order("finish")
        run.job.closed("Complete", SECONDS)
        run.trainers.codes(1 if how == "complete" else 2, SECONDS)
        return run, processes.left_of(run.directory)


_SHADOW = {"ELASTICJOB_WARM_IMPORTS": f"{PART},early_shadows", "CONTRACT_IMPORTS": f"{PART} early_shadows"}

EXAMPLES = Path(sys.prefix, "examples")  # what their lock holds, if it is installed beside this torch


def has_tqdm() -> bool:
    return PathFinder.find_spec("tqdm", [str(EXAMPLES), *sys.path]) is not None


def _listing(start: Start) -> Run:
    """Libraries that list all variables, known from the job's other pods: also to the first processes."""
    names = ["early_prefix", *(["tqdm"] if has_tqdm() else [])]
    given = {
        "ELASTICJOB_WARM_IMPORTS": ",".join(["early_plain", "early_state", *names]),
        "CONTRACT_IMPORTS": " ".join(names),
    }
    return _rounds(start, Setup(environment=given, real=True, packages=str(EXAMPLES)))


# By name, the longest ones first.
LIVES: dict[str, Callable[[Start], Any]] = {
    **{f"{name} warm": partial(_twice, name=name, warm=True) for name in reversed(TWICE)},
    **{f"{name} fresh": partial(_twice, name=name, warm=False) for name in reversed(TWICE)},
    **{
        name: partial(_rounds, setup=Setup(environment=CHEAP, changes=changes), failures=len(changes))
        for name, changes in JOBS.items()
    },
    "hang": _hang,
    "listing": _listing,
    "slow": _slow_import,
    "rank": _another_rank,
    **{
        name: partial(_rounds, setup=Setup(environment=CHEAP | {"CONTRACT_IMPORTS": f"{PART} {name}"}), failures=2)
        for name in MISBEHAVING
    },
    **{name: partial(_ordinary, how=name) for name in ORDINARY},
    "shadow": partial(_rounds, setup=Setup(environment=_SHADOW)),
    **{name: partial(_end, how=name) for name in ENDS},
}
