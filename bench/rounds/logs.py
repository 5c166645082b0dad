# SPDX-License-Identifier: Apache-2.0
"""What the benchmark's processes print, each into a file of its own: torch's C++ traces would bury the progress."""

import functools
import itertools
import shutil
from pathlib import Path

FOLDER = Path("build/bench-logs")
LAST_LINES, LINE_LENGTH = 8, 160

_numbers = itertools.count(1)


@functools.cache
def _folder() -> Path:
    """Those of an earlier run are deleted."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    return FOLDER


def new_log(module: str) -> Path:
    return _folder() / f"{next(_numbers):03}-{module}.log"


def forget_if_empty(log: Path) -> None:
    if log.exists() and log.stat().st_size == 0:
        log.unlink()


def with_log(what: str, log: Path) -> str:
    """`what` went wrong with a process, where all that it printed is, and how that ends but for traces."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    if not lines:
        return what
    telling = [line for line in lines if line.strip() and not line.startswith("frame #")]
    end = "".join(f"\n    {line[:LINE_LENGTH]}" for line in telling[-LAST_LINES:])
    return f"{what}; the process printed {len(lines)} lines, see {log}, which ends with{end}"


def kept() -> str:
    """One sentence on what is left of this run's logs; empty when nothing was printed."""
    logs = [log for log in FOLDER.glob("*.log") if log.stat().st_size]
    return f"{len(logs)} of the benchmark's processes printed something: {FOLDER}" if logs else ""
