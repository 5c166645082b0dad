# SPDX-License-Identifier: Apache-2.0
"""Makes the rendezvous handler of a torchrun, and connects it with what it needs of torch, of this process, and of
other packages.

Nothing is decided here but whether this torchrun may take part in the job. Everything that lasts for the whole process
is switched on here: hooks in torch, signals, the last line on stderr, the log.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from typing import TYPE_CHECKING

from elasticjob_torch.agent.handler import ElasticJobRendezvousHandler
from elasticjob_torch.agent.hooks import (
    join_again_when_ranks_break,
    look_at_updates,
    note_identical_workers,
    restart_processes,
    stop_processes,
    tell_processes,
)
from elasticjob_torch.agent.joined import BACKEND
from elasticjob_torch.agent.last_line import end_with_a_sentence
from elasticjob_torch.agent.membership import AgentMembership
from elasticjob_torch.agent.orphans import agent_above, end_orphans, leave_mark
from elasticjob_torch.agent.settings import SettingsError, parse_settings
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.agent.stopping import hear_signals
from elasticjob_torch.environment import HandedOn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousParameters

    from elasticjob_torch.agent.prestarting import Prestarting

log = logging.getLogger(__name__)


def create_handler(
    params: RendezvousParameters,
    switch_on: Callable[[Callable[[list[str]], bool]], Prestarting | None] = lambda _: None,
) -> ElasticJobRendezvousHandler:
    """Make the handler of this process.

    ``switch_on`` begins to prestart processes, and returns None if the job does not want that, or if it is impossible.
    Its argument receives the script's imports, and returns whether they are taken.

    Raises:
        SystemExit: with one sentence, if an option is wrong, another torchrun of this pod takes part in the job, or no
            sidecar of this job answers within ``sidecar_timeout`` (120 seconds).
    """
    _show_log()
    hear_signals()
    if above := agent_above(os.environ):
        raise SystemExit(
            f"{BACKEND}: the torchrun above this one (process {above}) takes part in the job, and a pod has one that "
            f"does; leave out --rdzv-backend={BACKEND} here: without it, or with --standalone, this one runs by itself"
        )
    try:
        settings = parse_settings(params.endpoint, params.run_id, params.config, os.environ)
        for sentence in settings.ignored:
            log.warning(sentence)
        membership = AgentMembership(settings)
        membership.open()
    except (SettingsError, CannotRunHere) as error:
        raise SystemExit(f"{BACKEND}: {error}") from None
    end_orphans(settings.run_id)
    leave_mark(settings.run_id)
    note_identical_workers(sys.argv, os.environ)
    warm = switch_on(membership.tell_imports)
    join_again_when_ranks_break()
    look_at_updates()
    restart_processes()
    inherited = HandedOn(os.environ, params.endpoint or str(settings.address))
    handler = ElasticJobRendezvousHandler(settings, membership, warm, inherited)
    failures, held = handler.failures, weakref.WeakMethod(handler.variables_for)  # a dropped handler is collected
    tell_processes(settings.run_id, lambda processes: made(processes) if (made := held()) is not None else {})
    stop_processes(settings.stop_timeout, failures.stopping)
    end_with_a_sentence(BACKEND, lambda: failures.last)
    return handler


def _show_log() -> None:
    """Show this package's few log lines on stderr, unless the program has set up logging itself."""
    package = logging.getLogger("elasticjob_torch")
    if not package.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"{BACKEND}: %(message)s"))
        package.addHandler(handler)
        package.setLevel(logging.INFO)
        package.propagate = False
