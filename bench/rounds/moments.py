# SPDX-License-Identifier: Apache-2.0
"""When each step of a round happens, in processes that run the real code: `note_sidecar` and `note_operator` wrap it.

    python -m rounds.moments FILE OPTION...     the operator with its options, its moments in FILE

Only a profile does so (`python -m rounds.profile`); what is measured otherwise runs as it is.
"""

import functools
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Moment = tuple[str, float]

# in the order in which a round comes about
STEPS = {
    "join asked": "the handler's request has reached the sidecar",
    "join sent": "the sidecar writes its ElasticWorker",
    "join taken": "the API server has it",
    "join seen": "the operator's watch has shown it",
    "decided": "the operator has formed the round",
    "status sent": "the operator writes the job's status",
    "status taken": "the API server has it",
    "round seen": "the sidecar's watch has shown it",
    "handed": "the sidecar answers the handler",
    "store posted": "rank 0's agent serves the store",
    "returned": "next_rendezvous() returns",
}


class Moments:
    """Those of this process. Appending to a list is all that a wrapped call costs more."""

    def __init__(self) -> None:
        self.noted: list[Moment] = []

    def note(self, step: str) -> None:
        self.noted.append((step, time.monotonic()))

    def take(self) -> list[Moment]:
        taken, self.noted = self.noted, []
        return taken

    def before(self, owner: Any, method: str, step: str, when: Callable[..., bool] = lambda *_: True) -> None:
        """Note `step` at each call of `owner.method` whose arguments fit `when`."""
        called = getattr(owner, method)

        @functools.wraps(called)
        def noting(*args: Any, **kwargs: Any) -> Any:
            if when(*args):
                self.note(step)
            return called(*args, **kwargs)

        setattr(owner, method, noting)

    def around(self, owner: Any, method: str, begins: str, ends: str, when: Callable[..., bool]) -> None:
        """As `before`, for a coroutine, and once more when it has returned."""
        called = getattr(owner, method)

        @functools.wraps(called)
        async def noting(*args: Any, **kwargs: Any) -> Any:
            if not when(*args):
                return await called(*args, **kwargs)
            self.note(begins)
            answer = await called(*args, **kwargs)
            self.note(ends)
            return answer

        setattr(owner, method, noting)


def note_sidecar(moments: Moments) -> None:
    from elasticjob_sidecar.api_server.client import KubeApi
    from elasticjob_sidecar.driver import Driver

    def joins(_: Any, __: str, body: dict[str, Any]) -> bool:
        return (body["spec"].get("request") or {}).get("type") == "Join"

    moments.before(Driver, "join", "join asked")
    moments.around(KubeApi, "replace_worker", "join sent", "join taken", joins)
    moments.before(Driver, "job_seen", "round seen", lambda _, status: status.phase == "Formed")
    moments.before(Driver, "_answer", "handed")
    moments.before(Driver, "store_posted", "store posted")


def note_operator(moments: Moments) -> None:
    from elasticjob_operator import reconciler
    from elasticjob_operator.cluster.cache import Cache
    from elasticjob_operator.cluster.client import Kube

    decide = reconciler.decide

    def noting(*args: Any) -> Any:
        decision = decide(*args)
        if decision.formed_after is not None:
            moments.note("decided")
        return decision

    reconciler.decide = noting

    def joins(_: Any, worker: dict[str, Any]) -> bool:
        return (worker["spec"].get("request") or {}).get("type") == "Join"

    def forms(_: Any, __: Any, status: dict[str, Any]) -> bool:
        return status["rendezvous"]["phase"] == "Formed"

    moments.before(Cache, "note_worker", "join seen", joins)
    moments.around(Kube, "replace_job_status", "status sent", "status taken", forms)


def table_of(began: float, ended: float, noted: Iterable[Moment]) -> str:
    """A line for each step: when it happened first, in the middle and last, in milliseconds from `began`."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for step, at in noted:
        if began <= at <= ended:
            times[step].append(1000 * (at - began))
    lines = [f"{'step':<14} {'times':>6} {'first ms':>9} {'median ms':>9} {'last ms':>9}"]
    for step, what in STEPS.items():
        if at := times.get(step):
            middle = statistics.median(at)
            lines.append(f"{step:<14} {len(at):>6} {min(at):>9.0f} {middle:>9.0f} {max(at):>9.0f}   {what}")
    return "\n".join(lines)


def main() -> None:
    """The operator, which ends by a signal: its moments are written one by one."""
    file, *options = sys.argv[1:]

    class Written(Moments):
        def __init__(self, path: Path) -> None:
            super().__init__()
            self._file = path.open("w", buffering=1)

        def note(self, step: str) -> None:
            self._file.write(json.dumps([step, time.monotonic()]) + "\n")

    note_operator(Written(Path(file)))
    sys.argv = ["elasticjob-operator", *options]
    from elasticjob_operator.__main__ import main as run

    run()


if __name__ == "__main__":
    main()
