# SPDX-License-Identifier: Apache-2.0
"""What a row of the table of causes is."""

from collections.abc import Callable
from typing import NamedTuple

from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.worker import WorkerView
from elasticjob_cli.why.causes import Cause


class JobRow(NamedTuple):
    """`covers`: nothing of its pods explains more while this holds."""

    cause: Cause
    test: Callable[[Look], str | None]
    sentence: str
    remedy: str = ""
    covers: bool = True


class WorkerRow(NamedTuple):
    """`sentence` follows "worker 3, ". `stuck`: it will not come by itself, so nobody waits for it."""

    cause: Cause
    test: Callable[[WorkerView, Look], str | None]
    sentence: str
    remedy: str = ""
    stuck: bool = False
