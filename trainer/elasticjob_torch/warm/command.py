# SPDX-License-Identifier: Apache-2.0
"""The command of torchrun's training processes, derived from its own command line before torch is imported.

Pure. Only what is certain counts. A wrong guess costs a prestarted process, as it is compared with torch's request.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TORCHRUN = ("torch", "distributed", "run")
_SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"  # of newer versions
_OTHER_OUTPUTS = ("--redirects", "-r", "--tee", "-t", "--run-path", "--run_path", "--no-python", "--no_python")
_FLAGS = ("-m", "--module")
_NUMBER_OPTIONS = ("--nproc-per-node", "--nproc_per_node")
_BACKEND_OPTIONS = ("--rdzv-backend", "--rdzv_backend")
_BACKEND = "elasticjob"  # with another one the prestarted processes stay unused


class Expected(NamedTuple):
    """The command of each training process, and how many there are."""

    arguments: tuple[str, ...]
    processes: int


def can_be_prestarted(arguments: Sequence[str], executable: str) -> bool:
    """Say whether a command runs a Python script or module, with this interpreter and in torchrun's form."""
    if len(arguments) < 3 or arguments[0] != executable or arguments[1] != "-u":
        return False
    return not arguments[2].startswith("-") or (arguments[2] == "-m" and len(arguments) > 3)


def expect(
    argv: Sequence[str], orig_argv: Sequence[str], environment: Mapping[str, str], executable: str
) -> Expected | None:
    """Return the training processes that this process will start; None if it is no torchrun, or if that is
    uncertain."""
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
        elif name in _NUMBER_OPTIONS:
            number = value
    return None


def guessed_environment(
    argv: Sequence[str], environment: Mapping[str, str], local_rank: int, processes: int, launcher: str
) -> dict[str, str]:
    """Return the variables that torchrun will add to its own environment for a process of the first round.

    The names are certain. The values are those of a job with one worker: a process that reads one by its name is
    detected once the round's own values are known. ``launcher``: the source of torch's launcher.
    """
    own, all_of_them = str(local_rank), str(processes)
    added = {
        "LOCAL_RANK": own,
        "RANK": own,
        "GROUP_RANK": "0",
        "ROLE_RANK": own,
        "ROLE_NAME": environment.get("PET_ROLE", "default"),
        "LOCAL_WORLD_SIZE": all_of_them,
        "WORLD_SIZE": all_of_them,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": all_of_them,
        "ELASTICJOB_LIVE": "",
        "ELASTICJOB_MASTER_ADDRESS": "127.0.0.1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "27400",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": environment.get("PET_MAX_RESTARTS", "0"),
        "TORCHELASTIC_RUN_ID": environment.get("PET_RDZV_ID", ""),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": "",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": environment.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    if _SIGNALS in launcher:
        added[_SIGNALS] = environment.get("PET_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    if processes > 1 and "OMP_NUM_THREADS" not in environment:
        added["OMP_NUM_THREADS"] = "1"
    names_number = any(option.partition("=")[0] in _NUMBER_OPTIONS for option in argv[1:])
    if environment.get("PET_NPROC_PER_NODE", "").isdecimal() and not names_number:
        added["TORCH_ELASTIC_WORKER_IDENTICAL"] = "1"  # see `agent.hooks.note_identical_workers`
    return added


def _torchrun_options(argv: Sequence[str], orig_argv: Sequence[str]) -> Sequence[str] | None:
    """Return torchrun's options. At this stage of Python's start ``sys.argv`` lacks a module's name."""
    if not argv:
        return None
    if os.path.basename(argv[0]) == "torchrun":
        return argv[1:]
    started = os.path.splitext(argv[0])[0].split(os.sep)[-len(_TORCHRUN) :]
    if tuple(started) == _TORCHRUN or (argv[0] == "-m" and ".".join(_TORCHRUN) in orig_argv):
        return argv[1:]
    return None
