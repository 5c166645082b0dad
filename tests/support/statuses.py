# SPDX-License-Identifier: Apache-2.0
"""A formed round as the operator keeps it, and the status that says it."""

from typing import Any

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.rendezvous import Clocks, Decision, Member, State
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.quota import Allowance
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.status import status_of
from elasticjob_operator.job.view import JobView
from support.operator_objects import job

NOW = "2026-01-02T03:04:05Z"
CLOCKS = Clocks(opened=0, formed=0)
FORMED = State(
    clocks=CLOCKS,
    round=3,
    phase=RendezvousPhase.FORMED,
    participants=(Member(1, "b"), Member(0, "a")),
    replicas=2,
    restarted_at="2026-01-01T00:00:00Z",
    leaving=(Member(2, "c"),),
    finished=(Member(3, "d"),),
    replacements={1: 2},
    restarts=1,
    ping=4,
    pinged=(Member(0, "a"),),
    store="10.0.0.1:27601",
    reason="scaled from 1 to 2",
    cause="Scaled",
)


def status(state: State, before: ElasticJobStatus | None = None, **changes: Any) -> ElasticJobStatus:
    return status_of(report(state, before, **changes))


def report(state: State, before: ElasticJobStatus | None = None, **changes: Any) -> Report:
    """`spec`: fields of the job's. `facts`: what concerns have found. The rest is as in `Report`."""
    given = changes.pop("spec", {})
    body = changes.pop("job", job(**given))
    spec = ElasticJobSpec.parse(body["spec"])
    workers = changes.pop("workers", ())
    made = Report(
        job=body,
        spec=spec,
        before=before or ElasticJobStatus(),
        view=changes.pop("view", JobView()),
        observer=changes.pop("observer", Observer("trainer")),
        bounds=rendezvous_spec(spec, len(workers)),
        workers=workers,
        ready=frozenset(changes.pop("ready", ())),
        decision=changes.pop("decision", Decision(state, formed_after=changes.pop("formed_after", None))),
        at=0.0,
        now=NOW,
        problem=None,
        refusal=None,
        budget_problem=None,
        term=5,
        lease=None,
    )
    for fact in changes.pop("facts", ()):
        made = made.noting(fact)
    made = made._replace(bounds=rendezvous_spec(made.of(Allowance).of(spec), len(workers)))
    return made._replace(**changes)
