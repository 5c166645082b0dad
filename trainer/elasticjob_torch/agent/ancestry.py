# SPDX-License-Identifier: Apache-2.0
"""Who has started whom in this container, as far as /proc tells.

A training process may be started through a wrapper (``bash bind.sh``, numactl, nsys) that waits for it. What a training
process starts has the same environment, and is no training process. What tells them apart is whether another Python
stands between them and the agent.

Used at the start of each Python process: so it must stay cheap, and imports no torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from elasticjob_torch.environment import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_WRAPPERS = 16


def is_training_process(environ: Mapping[str, str]) -> bool:
    """Say whether torch's agent has started this process to train, itself or through wrappers that are no Python."""
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
        return True  # another user's, or gone: nothing is known of it


def _parent_of(process: int) -> int:
    """0 for one that is gone, or whose parent is outside of this container."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
