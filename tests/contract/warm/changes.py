# SPDX-License-Identifier: Apache-2.0
"""What may change in torchrun's own process before its second round, so that no prestarted process can stand for a new
one.

Nothing in a job does so by itself: a launcher of one's own may, and torch's binding to a NUMA node does.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.warm.runs import Process

OTHER_NICENESS = 11  # more than that of whatever runs the tests


def bind() -> None:
    """As torch does where it finds numactl: the command has another one before it."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

    popen = SubprocessHandler._popen
    SubprocessHandler._popen = lambda handler, args, env: popen(handler, ("/usr/bin/env", "BOUND=1", *args), env)


def one_processor() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def no_core_files() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


CHANGES: dict[str, Callable[[], Any]] = {
    "PYTHONWARNINGS": lambda: os.environ.update(PYTHONWARNINGS="ignore:nothing"),
    "LD_BIND_NOW": lambda: os.environ.update(LD_BIND_NOW="1"),
    "binding": bind,
    "affinity": one_processor,
    "umask": lambda: os.umask(0o027),
    "niceness": lambda: os.setpriority(os.PRIO_PROCESS, 0, OTHER_NICENESS),
    "limits": no_core_files,
    "folder": lambda: os.chdir("/"),
}

SEEN: dict[str, Callable[[Process], bool]] = {
    "PYTHONWARNINGS": lambda process: process.seen["flags"][2] == ["ignore:nothing"],
    "LD_BIND_NOW": lambda process: process.seen["environment_in_c"].get("LD_BIND_NOW") == "1",
    "binding": lambda process: process.seen["environment"].get("BOUND") == "1",
    "affinity": lambda process: len(process.seen["scheduling"][0][2]) == 1,
    "umask": lambda process: process.seen["status"]["Umask"] == "0027",
    "niceness": lambda process: process.seen["scheduling"][0][0] == OTHER_NICENESS,
    "limits": lambda process: process.seen["limits"]["RLIMIT_CORE"] == [0, 0],
    "folder": lambda process: process.seen["command"][6] == "/",
}


def impatient() -> None:
    """Whoever hangs is found out soon."""
    from elasticjob_torch.warm import handed

    handed._STILL_SECONDS = 2.0


OTHERS = {"impatient": impatient}


def apply_before_second_start(name: str) -> None:
    """Do it in this process, which is going to be torchrun's, when it starts the second round's processes."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    start, starts = LocalElasticAgent._start_workers, []

    def changed_start(agent: Any, group: Any) -> Any:
        starts.append(group)
        if len(starts) == 2:
            (CHANGES | OTHERS)[name]()
        return start(agent, group)

    LocalElasticAgent._start_workers = changed_start
