"""Keeps why a training process fails: the exception that ends it, as torch's ``@record`` does, or its last words.

Python calls ``sys.excepthook`` neither for ``sys.exit("no such data")`` nor where a framework shows the exception by
itself, and argparse ends by such an exit, too. Then the last line on stderr is kept, as far as Python wrote it.

Called by ``sitecustomize``, at the start of each Python process: so it must stay cheap, and imports no torch.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, TextIO

from elasticjob_torch.agent.ancestry import is_training_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

_KEPT = 2000  # characters of what was written last
_FILE = "TORCHELASTIC_ERROR_FILE"  # torch's: where a training process leaves its exception


def record_exception(environ: Mapping[str, str] = os.environ) -> None:
    """Have this process leave in its error file why it fails, if torch's agent has started it to train.

    A training process's own children, which have the same environment, are left alone; so is a file that is there.
    """
    file = environ.get(_FILE)
    if not file or not is_training_process(environ):
        return
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            stack = "".join(traceback.format_exception(kind, error, trace))
            _write(environ.get(_FILE, file), f"{kind.__name__}: {error}", stack, environ.get("RANK"))
        except Exception:  # the exception itself is what has to be shown
            traceback.print_exc()
        shown(kind, error, trace)

    def leave_last_words() -> None:
        if said := last_line():
            try:
                _write(environ.get(_FILE, file), f"last on stderr: {said}", said, environ.get("RANK"))
            except OSError:
                return  # the agent tells the exit code

    sys.excepthook = hook
    last_line = _listen(sys.stderr)
    atexit.register(leave_last_words)  # the first that is registered runs last


def _listen(stderr: TextIO | None) -> Callable[[], str]:
    """Return what tells the last line that Python has written there, which is empty if there is none."""
    script = sys.argv[0] if sys.argv else ""
    missing = script not in ("", "-c", "-m") and not os.path.exists(script)
    text = f"can't open file {script!r}" if missing else ""  # Python says so beside `sys.stderr`
    if stderr is None:
        return lambda: text
    write = stderr.write

    def listen(written: str) -> int:
        nonlocal text
        text = (text + written)[-_KEPT:]
        return write(written)

    stderr.write = listen  # type: ignore[method-assign]
    return lambda: next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _write(file: str, said: str, stack: str, rank: str | None) -> None:
    extra = {"py_callstack": stack, "timestamp": str(int(time.time())), "rank": rank}
    try:
        with open(file, "x", encoding="utf-8") as opened:
            json.dump({"message": {"message": said, "extraInfo": extra}}, opened)
    except FileExistsError:
        return  # by @record, or the exception is there
