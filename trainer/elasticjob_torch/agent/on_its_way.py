# SPDX-License-Identifier: Apache-2.0
"""Which exception is in flight in a process, as opposed to one that was caught and is being handled.

Python reports both alike: `sys.exc_info` has an exception in a ``finally`` and in an ``except``. An ``except`` that
raises nothing ends the exception, as in each look into a queue and much of the standard library, and no failure
follows. The source tells which of the two the process is in.
"""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def on_its_way(error: BaseException | None, frame: FrameType | None) -> BaseException | None:
    """Return `error`, or its cause, as far as it propagates from its present place. `frame`: what the process runs."""
    running = set()
    while frame is not None:
        running.add(frame)
        frame = frame.f_back
    while error is not None:
        trace = error.__traceback__
        if trace is not None and trace.tb_frame in running and not _is_handled(trace.tb_frame, trace.tb_lineno):
            return error
        error = error.__context__
    return None


def _is_handled(frame: FrameType, raised: int) -> bool:
    """Whether the running line belongs to an ``except`` that raises nothing, for what was raised at line `raised`."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    if not source:  # the interpreter's own modules handle many exceptions
        return frame.f_code.co_filename.startswith("<frozen")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    tries = (node for node in ast.walk(tree) if type(node).__name__ in ("Try", "TryStar"))
    found = [
        handler
        for node in tries
        if _covers(node.body, raised)  # type: ignore[attr-defined]
        for handler in node.handlers  # type: ignore[attr-defined]
        if _covers([handler], frame.f_lineno)
    ]
    return bool(found) and not any(isinstance(node, ast.Raise) for node in ast.walk(found[-1]))


def _covers(nodes: list[ast.stmt] | list[ast.excepthandler], line: int) -> bool:
    return bool(nodes) and nodes[0].lineno <= line <= (nodes[-1].end_lineno or 0)
