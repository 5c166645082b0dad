# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of causes."""

from collections.abc import Callable
from typing import NamedTuple

from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.worker import WorkerView
from elasticjob_cli.why.causes import Cause


class JobRow(NamedTuple):
    """A cause of the job. `covers`: while it holds, its pods explain nothing more."""

    cause: Cause
    test: Callable[[Look], str | None]
    sentence: str
    remedy: str = ""
    covers: bool = True


class WorkerRow(NamedTuple):
    """A cause of one worker. `sentence` follows "worker 3, ". `stuck`: the worker will not come by itself, so nobody
    waits for it."""

    cause: Cause
    test: Callable[[WorkerView, Look], str | None]
    sentence: str
    remedy: str = ""
    stuck: bool = False
