# SPDX-License-Identifier: Apache-2.0
"""What may change in torchrun's own process between two rounds, so that no prestarted process can stand for a new one.

Nothing in a job does so by itself: a launcher of one's own may, and torch's binding to a NUMA node does.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


class Change(NamedTuple):
    """What is done in torchrun's process, how a training process that was started after it shows it, and what the log
    says of a prestarted one."""

    make: Callable[[], Any]
    shows: Callable[[Process], bool]
    why: str


CHANGES = {
    "PYTHONWARNINGS": Change(
        lambda: os.environ.update(PYTHONWARNINGS="ignore:nothing"),
        lambda process: process.seen["flags"][2] == ["ignore:nothing"],
        "PYTHONWARNINGS",
    ),
    "LD_BIND_NOW": Change(
        lambda: os.environ.update(LD_BIND_NOW="1"),
        lambda process: process.seen["environment_in_c"].get("LD_BIND_NOW") == "1",
        "LD_BIND_NOW",
    ),
    "umask": Change(lambda: os.umask(0o027), lambda process: process.seen["status"]["Umask"] == "0027", "umask"),
    "limits": Change(
        no_core_files, lambda process: process.seen["limits"]["RLIMIT_CORE"] == [0, 0], "another RLIMIT_CORE"
    ),
    "folder": Change(lambda: os.chdir("/"), lambda process: process.seen["command"][6] == "/", "working directory"),
    "affinity": Change(one_processor, lambda process: len(process.seen["scheduling"][0][2]) == 1, "another CPUs"),
    "niceness": Change(
        lambda: os.setpriority(os.PRIO_PROCESS, 0, OTHER_NICENESS),
        lambda process: process.seen["scheduling"][0][0] == OTHER_NICENESS,
        "niceness",
    ),
    "binding": Change(
        bind, lambda process: process.seen["environment"].get("BOUND") == "1", "no script or module of this Python"
    ),
}


# By job, what is done in it, one after the other. What is the process's own is there for the next prestarted process,
# too. Affinity and niceness are the thread's that starts the training, and not of the one that prestarts.
JOBS = {
    "lasting": ["PYTHONWARNINGS", "LD_BIND_NOW", "umask", "limits", "folder"],
    "affinity": ["affinity"],
    "niceness": ["niceness"],
    "binding": ["binding"],
}


def impatient() -> None:
    """Whoever hangs is found out soon."""
    from elasticjob_torch.warm import handed

    handed._STILL_SECONDS = 2.0


MAKE = {"impatient": impatient, **{name: change.make for name, change in CHANGES.items()}}


def apply_before_starts(names: Sequence[str]) -> None:
    """Do them in this process, which is going to be torchrun's: one when it starts the second round's processes, one
    when it starts the third's, and so on."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    start, following = LocalElasticAgent._start_workers, iter(("", *names))

    def changed_start(agent: Any, group: Any) -> Any:
        if name := next(following, ""):
            MAKE[name]()
        return start(agent, group)

    LocalElasticAgent._start_workers = changed_start
