# SPDX-License-Identifier: Apache-2.0
"""What this process was started as: torchrun with its options, or another launcher, and in which start of a container.

The sidecar tells the torchruns of a container apart by it, as in `torchrun prepare.py && torchrun train.py`.
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

# what a container's first process may have above it, and what outlives it: the first process of a pod whose containers
# share theirs, and with `hostPID` what a container runtime starts them by
_OUTSIDE = ("pause", "containerd-shim", "conmon")


def torchrun_options(arguments: Sequence[str], **defaults: object) -> argparse.Namespace | None:
    """Return what torchrun's parser makes of ``sys.argv``, with these defaults; None for another program."""
    program = PurePath(*arguments[:1])
    if program.name != "torchrun" and program.parts[-3:] != ("torch", "distributed", "run.py"):
        return None
    from torch.distributed import run  # only there: a script that looks on needs no torch

    parser = run.get_args_parser()
    parser.set_defaults(**defaults)  # in place of the environment's
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            options: argparse.Namespace = parser.parse_args(list(arguments[1:]))
    except SystemExit:
        return None
    return options


def script_of(arguments: Sequence[str]) -> str:
    """Return the name of the script that ``sys.argv`` starts, without its folder; of another launcher the first name of
    a Python file, else its own."""
    options = torchrun_options(arguments)
    scripts = [one for one in arguments[1:] if one.endswith(".py")] if options is None else [options.training_script]
    return PurePath(*scripts[:1] or arguments[:1]).name[: wire.SCRIPT_LENGTH]


def start_of_container() -> str:
    """Return when the first process of this container was started, in ticks since the node was; empty without /proc."""
    pid = os.getpid()
    while (stat := read_stat(pid)) is not None and stat.parent and name_of(stat.parent) not in _OUTSIDE:
        pid = stat.parent
    return "" if stat is None else stat.started
