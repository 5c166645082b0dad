# SPDX-License-Identifier: Apache-2.0
"""Adapts torch's elastic agent to the job where torch has no hook: wraps five of its methods, in this process.

Nothing here knows a round or the sidecar. Each wrapper passes on the arguments and results of torch's own method, so
that an agent of another backend in the same process sees no difference.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.elastic.multiprocessing import PContext, SignalException

from elasticjob_torch.agent.alarm import await_end
from elasticjob_torch.agent.command_line import torchrun_options
from elasticjob_torch.agent.store import StoreBroken

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, MutableMapping, Sequence

log = logging.getLogger(__name__)


class CannotGoOn(Exception):
    """A handler's `next_rendezvous`, called while processes run: they do not go on, and torch looks at them again."""


_IDENTICAL = "TORCH_ELASTIC_WORKER_IDENTICAL"
_HEALTHY = "HEALTHY"  # a WorkerState is a string
_SHORTEST_SECONDS = 1e-6  # of torch's own sleep, which must not be 0


def join_again_when_ranks_break() -> None:
    """Let every agent of this process ask for the next round if this one breaks while torch assigns its ranks.

    That happens after `next_rendezvous`, in calls of the round's store, and would end the agent.
    """
    _wrap(SimpleElasticAgent, "_rendezvous", _joining_again)


def stop_processes(within: float | None, stopping: Callable[[Mapping[int, int], Mapping[int, str]], object]) -> None:
    """Let each agent of this process wait ``within`` seconds for processes that do not end at SIGTERM, before SIGKILL;
    and let it go on as soon as they have ended. Before that, `stopping` receives the running ones, by local rank: their
    pids, and the files where each may have left why it fails.

    torch waits 30 seconds at the end of each round, which may be too short for a save, and only newer versions have a
    setting for it, for the last round. An agent that a signal stopped keeps torch's time: no other agent waits for it.
    ``None`` is torch's time.
    """
    _wrap(PContext, "close", functools.partial(_stopping, within, stopping))


def tell_processes(run_id: str, variables_for: Callable[[Mapping[int, Mapping[str, str]]], Mapping[str, str]]) -> None:
    """Give these variables to processes that agents of the run start. They are requested at each start, before torch
    names its log folder by one of them. `variables_for` receives torch's own variables for each local rank."""
    _wrap(PContext, "__init__", functools.partial(_telling, run_id, variables_for))


def look_at_updates() -> None:
    """Let agents of this process look at their processes and at the rendezvous as soon as something has happened.

    torch sleeps for the monitor interval before each look. A handler with ``await_update`` is called instead, with the
    interval in seconds and the pids.

    Where ``goes_on`` says so after a look that found all processes healthy, the agent enters the next round and keeps
    them, and ``gone_on`` receives torch's variables for them, by local rank. A restart would stop and start them.
    """
    _wrap(SimpleElasticAgent, "_invoke_run", _looking_at_updates)


def restart_processes() -> None:
    """Let agents whose handler has ``max_restarts`` start failed processes again that often.

    An agent that has used up the number of its command line ends, and with it the prestarted processes; the kubelet
    starts the container again, later each time. That number is 0 with accelerate, unless the user sets another.
    """
    _wrap(SimpleElasticAgent, "__init__", _restarting)


def note_identical_workers(arguments: Sequence[str], environment: MutableMapping[str, str]) -> None:
    """Tell torch if every worker has the same number of processes, so that ranks need no exchange through the store.

    This is certain only if torchrun takes the number from the job. On its command line the number may differ between
    workers (``gpu``, a variable of the shell), and other launchers count by themselves.
    """
    if environment.get("PET_NPROC_PER_NODE", "").isdecimal() and _names_no_number(arguments):
        environment.setdefault(_IDENTICAL, "1")


def ranks_come_through_the_store(environment: MutableMapping[str, str]) -> bool:
    """Say whether torch's agent assigns ranks through the store: unless all workers have the same number of processes
    (`_assign_worker_ranks`)."""
    return environment.get(_IDENTICAL, "0") != "1"


def _names_no_number(arguments: Sequence[str]) -> bool:
    options = torchrun_options(arguments, nproc_per_node=None)
    return options is not None and options.nproc_per_node is None


def _joining_again(rendezvous: Callable[..., Any]) -> Callable[..., Any]:
    def join(*args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return rendezvous(*args, **kwargs)
            except StoreBroken as error:
                log.info("the round broke while its ranks were given out, joining again: %s", error)

    return join


def _telling(
    run_id: str,
    variables_for: Callable[[Mapping[int, Mapping[str, str]]], Mapping[str, str]],
    init: Callable[..., None],
) -> Callable[..., None]:
    signature = inspect.signature(init)

    def make(*args: Any, **kwargs: Any) -> None:
        environments = signature.bind(*args, **kwargs).arguments.get("envs") or {}
        ours = {rank: one for rank, one in environments.items() if one.get("TORCHELASTIC_RUN_ID") == run_id}
        variables = variables_for(ours) if ours else {}
        for environment in ours.values():
            environment.update(variables)
        init(*args, **kwargs)

    return make


def _stopping(
    within: float | None, stopping: Callable[[Mapping[int, int], Mapping[int, str]], object], close: Callable[..., Any]
) -> Callable[..., Any]:
    def close_in_time(context: Any, death_sig: Any = None, timeout: float = 30) -> Any:
        kind = sys.exc_info()[0]
        stopped = kind is not None and issubclass(kind, SignalException)
        handlers = getattr(context, "subprocess_handlers", {})
        for handler in handlers.values():
            handler.proc.wait = functools.partial(_wait, handler.proc)
        running = {rank: handler.proc.pid for rank, handler in handlers.items() if handler.proc.poll() is None}
        if running and not stopped:
            stopping(running, context.error_files)
        return close(context, death_sig, timeout if stopped or within is None else within)

    return close_in_time


def _wait(process: subprocess.Popen[Any], timeout: float | None = None) -> int:
    """Replace the process's own `wait`, which would poll in growing pauses of up to 50 milliseconds."""
    began = time.monotonic()
    if process.returncode is None:
        await_end(process.pid, timeout)
    left = None if timeout is None else max(0.0, began + timeout - time.monotonic())
    return type(process).wait(process, left)


def _restarting(init: Callable[..., None]) -> Callable[..., None]:
    def make(agent: Any, spec: Any, *args: Any, **kwargs: Any) -> None:
        restarts = getattr(spec.rdzv_handler, "max_restarts", None)
        if restarts is not None:
            spec.max_restarts = restarts
        init(agent, spec, *args, **kwargs)

    return make


def _looking_at_updates(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_with_news(agent: Any, *args: Any, **kwargs: Any) -> Any:
        spec = agent.get_worker_group().spec
        handler = spec.rdzv_handler
        goes_on = getattr(handler, "goes_on", None)
        await_update, look = getattr(handler, "await_update", None), getattr(agent, "_monitor_workers", None)
        if await_update is None or look is None or "_monitor_workers" in vars(agent):
            return run(agent, *args, **kwargs)
        seconds, spec.monitor_interval = spec.monitor_interval, _SHORTEST_SECONDS

        def look_at_updates(group: Any) -> Any:
            await_update(seconds, [worker.id for worker in group.workers])
            result = look(group)
            if getattr(result, "state", None) == _HEALTHY and goes_on is not None and goes_on():
                _keep(agent, group)
            return result

        agent._monitor_workers = look_at_updates
        return run(agent, *args, **kwargs)

    return run_with_news


def _keep(agent: Any, group: Any) -> None:
    """Enter the next round as torch would, but keep the processes: rendezvous gives each a new record, without pid."""
    before = {worker.local_rank: worker.id for worker in group.workers}
    try:
        agent._rendezvous(group)
    except CannotGoOn as error:
        log.info("the training processes do not go on: %s", error)
        return
    for worker in group.workers:
        worker.id = before[worker.local_rank]
    agent.get_worker_group().spec.rdzv_handler.gone_on(
        {worker.local_rank: _variables(group, worker) for worker in group.workers}
    )


def _variables(group: Any, worker: Any) -> dict[str, str]:
    """Return what torch sets at the start of a process and a new round changes (`LocalElasticAgent._start_workers`)."""
    return {
        "RANK": str(worker.global_rank),
        "WORLD_SIZE": str(worker.world_size),
        "ROLE_RANK": str(worker.role_rank),
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "GROUP_RANK": str(group.group_rank),
        "GROUP_WORLD_SIZE": str(group.group_world_size),
        "MASTER_ADDR": group.master_addr,
        "MASTER_PORT": str(group.master_port),
    }


def _wrap(owner: type, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put `wrapper` around torch's own method, replacing an earlier one. A torch without the method stays as it is."""
    inner = getattr(owner, name, None)
    if inner is None:
        return
    inner = getattr(inner, "_elasticjob_inner", inner)
    wrapped = functools.wraps(inner)(wrapper(inner))
    wrapped._elasticjob_inner = inner  # type: ignore[attr-defined]
    setattr(owner, name, wrapped)
