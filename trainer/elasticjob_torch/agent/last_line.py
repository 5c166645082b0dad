# SPDX-License-Identifier: Apache-2.0
"""Ends torchrun's log with the reason for its end, in one sentence, where Python would show sixty lines of torch's
calls.

The exceptions stay torch's own, as do the exit code and torch's summary of failed processes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


def end_with_a_sentence(name: str, what_failed: Callable[[], str]) -> None:
    """From now on show an exception that ends this process in one sentence. `what_failed` describes the training's own
    failure."""
    shown = getattr(sys.excepthook, "_elasticjob_shown", sys.excepthook)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sentence = str(error)
        if isinstance(error, SignalException):
            sentence = f"stopped by {error.sigval.name}"
        elif not isinstance(error, RendezvousError):
            shown(kind, error, trace)
            sentence = what_failed() if isinstance(error, ChildFailedError) else ""
        if sentence:
            print(f"{name}: {sentence}", file=sys.stderr, flush=True)

    hook._elasticjob_shown = shown  # type: ignore[attr-defined]
    sys.excepthook = hook
