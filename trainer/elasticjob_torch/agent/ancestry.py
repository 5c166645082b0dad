# SPDX-License-Identifier: Apache-2.0
"""Which process started which in this container, as far as /proc tells.

A training process may be started through a wrapper (``bash bind.sh``, numactl, nsys) that waits for it. The children of
a training process have the same environment, and are no training processes. The difference is that another Python
stands between them and the agent.

Used at the start of each Python process: so it must be cheap, and imports no torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from elasticjob_torch.environment import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_WRAPPERS = 16


def is_training_process(environ: Mapping[str, str]) -> bool:
    """Say whether torch's agent started this process to train, directly or through wrappers that are not Python."""
    agent = environ.get(MARK, "").partition(":")[0]
    parent = os.getppid()
    for _ in range(_MOST_WRAPPERS):
        if str(parent) == agent:
            return True
        if not agent or parent <= 1 or _is_python(parent):
            return False
        parent = _parent_of(parent)
    return False


def _is_python(process: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{process}/exe")).startswith("python")
    except OSError:
        return True  # another user's process, or gone: nothing is known of it


def _parent_of(process: int) -> int:
    """Return 0 for a process that is gone, or whose parent is outside this container."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
