# SPDX-License-Identifier: Apache-2.0
"""Keeps why a training process fails: the exception that ends it, as torch's ``@record`` does, or its last line.

Python calls ``sys.excepthook`` neither for ``sys.exit("no such data")`` nor if a framework shows the exception itself;
argparse ends by such an exit too. In these cases the last line on stderr is kept, if Python wrote it. When the agent
asks, as it is about to stop the process, the exception in flight is kept (`failures`).

``sitecustomize`` calls this at the start of each Python process: so it must be cheap, and imports no torch.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` imports much
import atexit
import contextlib
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, TextIO

from elasticjob_torch.agent.ancestry import is_training_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType, TracebackType

ASKED = 46  # SIGRTMIN+12, next to that of `stacks`
LAST_WORDS = "last on stderr: "
_KEPT = 2000  # of the last characters written
_FILE = "TORCHELASTIC_ERROR_FILE"  # torch's variable: where a training process leaves its exception


def record_exception(environ: Mapping[str, str] = os.environ) -> None:
    """Have this process leave in its error file why it fails, if torch's agent started it to train.

    A training process's own children, which have the same environment, are left alone; an existing file is kept.
    """
    file = environ.get(_FILE)
    if not file or not is_training_process(environ):
        return
    shown = sys.excepthook

    def keep(error: BaseException) -> None:
        try:
            stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            message = ": ".join(filter(None, (type(error).__name__, str(error))))
            _write(environ.get(_FILE, file), message, stack, environ.get("RANK"))
        except Exception:  # the exception itself has to be shown in any case
            traceback.print_exc()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        keep(error)
        shown(kind, error, trace)

    def answer(number: int, frame: FrameType | None) -> None:
        from elasticjob_torch.agent.on_its_way import on_its_way  # imports many modules

        with contextlib.suppress(Exception):  # the script did not ask for this, so it must not fail by it
            error = on_its_way(sys.exc_info()[1], frame)
            if isinstance(error, Exception):
                keep(error)
        _signal.signal(number, _signal.SIG_IGN)  # the agent sees by this that the process has answered

    def leave_last_words() -> None:
        if message := last_line():
            try:
                _write(environ.get(_FILE, file), f"{LAST_WORDS}{message}", message, environ.get("RANK"))
            except OSError:
                return  # the agent reports the exit code

    sys.excepthook = hook
    with contextlib.suppress(OSError, ValueError):  # a system without such signals
        _signal.signal(ASKED, answer)
    last_line = _listen(sys.stderr)
    atexit.register(leave_last_words)  # the first registered function runs last


def _listen(stderr: TextIO | None) -> Callable[[], str]:
    """Return a function that returns the last line that Python has written there, empty if there is none."""
    script = sys.argv[0] if sys.argv else ""
    missing = script not in ("", "-c", "-m") and not os.path.exists(script)
    text = f"can't open file {script!r}\n" if missing else ""  # Python 3.10 writes that without using `sys.stderr`
    if stderr is None:
        return lambda: text
    write = stderr.write

    def listen(written: str) -> int:
        nonlocal text
        text = (text + written)[-_KEPT:]
        return write(written)

    stderr.write = listen  # type: ignore[method-assign]
    return lambda: next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _write(file: str, message: str, stack: str, rank: str | None) -> None:
    extra = {"py_callstack": stack, "timestamp": str(int(time.time())), "rank": rank}
    try:
        with open(file, "x", encoding="utf-8") as opened:
            json.dump({"message": {"message": message, "extraInfo": extra}}, opened)
    except FileExistsError:
        return  # written by @record, or the exception is there
