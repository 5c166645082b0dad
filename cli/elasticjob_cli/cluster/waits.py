# SPDX-License-Identifier: Apache-2.0
"""Waits for the result of a command. Each wait has a deadline, and an error says what it waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.transport import may_pass
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.scene import Leader, Scene

LOOK_SECONDS = 0.5
T = TypeVar("T")


class Late(CliError):
    """The deadline has passed."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"waited {seconds:g} s for {what}", Exit.DEADLINE)


def glance(cluster: Cluster, name: str) -> Look:
    """The job alone, without its pods."""
    return look(Scene(job=cluster.job(name), leader=Leader(""), now=cluster.now))


def wait_until(what: str, probe: Callable[[], T | None], seconds: float) -> tuple[T, float]:
    """The result of `probe`, and the seconds that it took. Raises Late, and errors of `probe` that will not pass."""
    began = time.monotonic()
    while not (found := _tried(probe)):
        if time.monotonic() - began >= seconds:
            raise Late(what, seconds)
        time.sleep(LOOK_SECONDS)
    return found, time.monotonic() - began


def _tried(probe: Callable[[], T | None]) -> T | None:
    try:
        return probe()
    except CliError as error:
        if may_pass(error):
            return None
        raise
