"""Keeps the exception that ends a training process, as torch's ``@record`` does, for scripts that do not use it.

Called by ``sitecustomize``, at the start of each Python process: so it must stay cheap, and imports no torch.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_AGENT = "ELASTICJOB_AGENT"  # `orphans.MARK`: begins with the pid of the agent
_FILE = "TORCHELASTIC_ERROR_FILE"  # torch's: where a training process leaves its exception


def record_exception(environ: Mapping[str, str] = os.environ) -> None:
    """Write the exception that ends this process to its error file, if torch's agent has started it to train.

    A training process's own children, which have the same environment, are left alone; so is a file that is there.
    """
    agent, file = environ.get(_AGENT, "").partition(":")[0], environ.get(_FILE)
    if not file or agent != str(os.getppid()):
        return
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            _write(environ.get(_FILE, file), error, environ.get("RANK"))
        except Exception:  # the exception itself is what has to be shown
            traceback.print_exc()
        shown(kind, error, trace)

    sys.excepthook = hook


def _write(file: str, error: BaseException, rank: str | None) -> None:
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": stack, "timestamp": str(int(time.time())), "rank": rank}
    message = {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}
    try:
        with open(file, "x", encoding="utf-8") as opened:
            json.dump({"message": message}, opened)
    except FileExistsError:
        return  # by @record
