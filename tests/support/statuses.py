# SPDX-License-Identifier: Apache-2.0
"""A formed round as the operator keeps it, and the status that says it."""

from typing import Any

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.rendezvous import Clocks, Decision, Member, State
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.drain import Budget
from elasticjob_operator.job.finishing import Finishing
from elasticjob_operator.job.network import Network
from elasticjob_operator.job.quota import UNLIMITED
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.stalls import Hang
from elasticjob_operator.job.starts import UNKNOWN
from elasticjob_operator.job.status import status_of
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
    spec = changes.pop("spec", {})
    return Report(
        job=job(**spec),
        spec=ElasticJobSpec.parse(job(**spec)["spec"]),
        workers=changes.pop("workers", ()),
        ready=frozenset(changes.pop("ready", ())),
        decision=Decision(state, formed_after=changes.pop("formed_after", None)),
        before=before or ElasticJobStatus(),
        problem=changes.pop("problem", None),
        refusal=changes.pop("refusal", None),
        term=5,
        now=changes.pop("now", NOW),
        waits=changes.pop("waits", {}),
        hang=changes.pop("hang", Hang()),
        network=changes.pop("network", Network()),
        finishing=changes.pop("finishing", Finishing()),
        start=changes.pop("start", UNKNOWN),
        node_failures=changes.pop("node_failures", ()),
        allowance=changes.pop("allowance", UNLIMITED),
        budget=changes.pop("budget", Budget.CLOSED),
        started=changes.pop("started", {}),
        asked=changes.pop("asked", ()),
        active=changes.pop("active", None),
        budget_problem=changes.pop("budget_problem", None),
    )
