# SPDX-License-Identifier: Apache-2.0
"""What passes through the API server: the agreed state as an ElasticJob's status, written and read by the real code."""

import json
from typing import Any

from elasticjob.agreed import rendezvous_spec, state_of
from elasticjob.api import ElasticJobSpec, ElasticJobStatus, RendezvousStatus
from elasticjob.rendezvous import Decision, State
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.status import status_of
from elasticjob_operator.job.view import JobView
from model.search import Violation

_JOB: dict[str, Any] = {"metadata": {"name": "job", "namespace": "default", "uid": "0", "generation": 1}}
_SPEC = ElasticJobSpec(replicas=1, template={})
_BOUNDS, _OBSERVER = rendezvous_spec(_SPEC), Observer("trainer")


class StatusRegister:
    """Remembers what it was given: the same state gives the same object, and a number to know it by."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.statuses: list[RendezvousStatus] = []

    def number(self, state: State) -> int:
        """The number in `statuses` of what sidecars read of `state`. Raises Violation."""
        members = (state.participants, state.leaving, state.finished)
        key = (state.round, state.phase, state.stage, *members, state.store, state.outcome)
        if key not in self._numbers:
            self._numbers[key] = len(self.statuses)
            self.statuses.append(stored(state).rendezvous)
        return self._numbers[key]


def stored(state: State) -> ElasticJobStatus:
    """The status as it comes back from the API server. Raises Violation unless it says what was agreed."""
    report = Report(
        job=_JOB,
        spec=_SPEC,
        workers=(),
        ready=frozenset(),
        decision=Decision(state),
        before=ElasticJobStatus(),
        view=JobView(),
        observer=_OBSERVER,
        bounds=_BOUNDS,
        at=0.0,
        now="2026-01-01T00:00:00Z",
        problem=None,
        refusal=None,
        budget_problem=None,
        term=1,
        lease=None,
    )
    status = ElasticJobStatus.parse(json.loads(json.dumps(status_of(report).dump())))
    if (read := state_of(status, state.clocks)) != state:
        raise Violation(f"a new operator reads another state than was written: {read}, and not {state}")
    return status
