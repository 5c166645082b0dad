# SPDX-License-Identifier: Apache-2.0
"""Replaces the processes that torch's agent starts by prestarted ones, and starts the first of these.

torch's `SubprocessHandler` starts a process by ``Popen``. That name is redefined in its module, and in no other. Calls
in an unknown form go to the real ``Popen``.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from elasticjob_torch.environment import START
from elasticjob_torch.warm import ahead
from elasticjob_torch.warm.command import can_be_prestarted
from elasticjob_torch.warm.orders import LEARN
from elasticjob_torch.warm.process import Start, outputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from elasticjob_torch.warm.pool import Pool

log = logging.getLogger(__name__)

_MODULE = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
_ANOTHER_WAY = "this torch starts its processes in another way"
_KNOWN = {"args", "env", "stdout", "stderr", "start_new_session"}


def switch_on(on_learned: Callable[[list[str]], bool]) -> Pool | None:
    """From now on use prestarted processes for those that torch's agent starts, if possible; None, with a log line, if
    not.

    ``on_learned`` receives the script's imports, and returns whether they are taken. The caller closes the result.
    """
    if not ahead.is_wanted(os.environ):
        return None
    try:
        module = importlib.import_module(_MODULE)
    except Exception as error:  # from a later torch, whatever it has become
        why: str | None = f"{_ANOTHER_WAY} ({error})"
    else:
        why = _cannot(module) or _begin_ahead()
    if why is not None:
        log.info("warm restart is off: %s", why)
        ahead.forget()
        return None
    pool = ahead.pool()
    _take_the_place(module, Launch(pool).popen)
    pool.tell(on_learned)
    pool.watch()
    return pool


def _begin_ahead() -> str | None:
    """Make the pool and start the first processes; return why not if the system refuses: torchrun goes on without."""
    try:
        ahead.pool()
        ahead.start_first()
    except OSError as error:
        return str(error)
    return None


class Launch:
    """Starts a training process, prestarted or not, as `subprocess.Popen` would."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._newest: dict[str, subprocess.Popen[bytes]] = {}  # by LOCAL_RANK

    def popen(self, *args: Any, **options: Any) -> subprocess.Popen[bytes]:
        rank = (options.get("env") or {}).get("LOCAL_RANK", "")
        if args or not options.keys() <= _KNOWN or not options.get("start_new_session") or not rank.isdecimal():
            return subprocess.Popen(*args, **options)
        earlier = self._newest.get(rank)
        if earlier is not None and earlier.poll() is None:  # a round's processes end before the next one's start
            self._pool.give_up(f"more than one process has LOCAL_RANK {rank}")
        self._newest[rank] = process = self._start(rank, options)
        return process

    def _start(self, rank: str, options: dict[str, Any]) -> subprocess.Popen[bytes]:
        environment = options["env"]
        if not can_be_prestarted(options["args"], sys.executable):
            log.info("training process %s starts in the ordinary way: it is no script or module of this Python", rank)
            return subprocess.Popen(**options)
        try:
            given = {
                name: value for name, value in environment.items() if name != START
            }  # a prestarted one has its own
            start = Start.now(options["args"], given, outputs(options.get("stdout"), options.get("stderr")))
            learn = self._pool.expects(int(rank), start)
        except OSError as error:
            log.info("training process %s starts in the ordinary way: %s", rank, error)
            return subprocess.Popen(**options)
        taken: subprocess.Popen[bytes] | None = self._pool.take(int(rank), start, learn)
        if taken is not None:
            return taken
        return subprocess.Popen(**{**options, "env": {**environment, LEARN: learn}})


def _cannot(module: Any) -> str | None:
    if ahead.startup() is None:
        return "the plug-in's sitecustomize is not the one that Python imports at its start here"
    code = getattr(getattr(getattr(module, "SubprocessHandler", None), "_popen", None), "__code__", None)
    if code is None or "Popen" not in code.co_names:
        return _ANOTHER_WAY
    if _real(module) is not subprocess.Popen and getattr(_real(module), "__func__", None) is not Launch.popen:
        return "something else has taken the place of subprocess.Popen in torch"
    return None


def _real(module: Any) -> Any:
    if hasattr(module, "Popen"):
        return module.Popen
    return getattr(getattr(module, "subprocess", None), "Popen", None)


def _take_the_place(module: Any, popen: Any) -> None:
    if hasattr(module, "Popen"):
        module.Popen = popen
    else:
        module.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": popen})
