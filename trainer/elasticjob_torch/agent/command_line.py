# SPDX-License-Identifier: Apache-2.0
"""The program that this process was started as (torchrun with its options, or another launcher), and the start of its
container.

The sidecar uses both to tell apart the torchruns of a container, as in `torchrun prepare.py && torchrun train.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import PurePath
from typing import TYPE_CHECKING

from elasticjob_torch import wire
from elasticjob_torch.agent.processes import name_of, read_stat

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# Possible parents of a container's first process, which outlive it: the first process of a pod whose containers share a
# process namespace, and with `hostPID` the processes of a container runtime.
_OUTSIDE = ("pause", "containerd-shim", "conmon")


def torchrun_options(arguments: Sequence[str], **defaults: object) -> argparse.Namespace | None:
    """Return the result of torchrun's parser for ``sys.argv``, with these defaults; None for another program."""
    program = PurePath(*arguments[:1])
    if program.name != "torchrun" and program.parts[-3:] != ("torch", "distributed", "run.py"):
        return None
    from torch.distributed import run  # imported here, as a training script needs no torch for its stream

    parser = run.get_args_parser()
    parser.set_defaults(**defaults)  # in place of those from the environment
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            options: argparse.Namespace = parser.parse_args(list(arguments[1:]))
    except SystemExit:
        return None
    return options


def script_of(arguments: Sequence[str]) -> str:
    """Return the name of the script that ``sys.argv`` starts, without its folder. For another launcher it is the first
    name of a Python file, else the launcher's own name."""
    options = torchrun_options(arguments)
    scripts = [one for one in arguments[1:] if one.endswith(".py")] if options is None else [options.training_script]
    return PurePath(*scripts[:1] or arguments[:1]).name[: wire.SCRIPT_LENGTH]


def start_of_container() -> str:
    """Return when this container's first process was started, in ticks since the node's boot; empty without /proc."""
    pid = os.getpid()
    while (stat := read_stat(pid)) is not None and stat.parent and name_of(stat.parent) not in _OUTSIDE:
        pid = stat.parent
    return "" if stat is None else stat.started
