# SPDX-License-Identifier: Apache-2.0
"""What the operator has found in one look at a job: the input of the rules, and of the status."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from elasticjob.api import Admitted, ElasticJobSpec, ElasticJobStatus, LeaseIdentity
from elasticjob.objects import Object
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Decision, Spec, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.quota import Allowance
from elasticjob_operator.job.refusal_messages import PodRefusal
from elasticjob_operator.job.view import JobView

F = TypeVar("F")


class Report(NamedTuple):
    """All that a decision and a status are made of. Each concern adds what it finds.

    `view`: the objects, and `observer` what was read of them. `bounds`, `workers`: the input of the rules. `ready`: the
    workers whose pods are ready. `decision`: until it is made, the state that `before` contains. `at`: the time of the
    look in seconds of the leader's clock, and `now` by the wall clock. `waits`: those of wanted workers, by index.
    `budget_problem`: why the PodDisruptionBudget is not as it should be. `lease`: the Lease that `term` belongs to.
    `facts`: what the concerns have found, each of a type of its own.
    """

    job: Object
    spec: ElasticJobSpec
    before: ElasticJobStatus
    view: JobView
    observer: Observer
    bounds: Spec
    workers: tuple[Worker, ...]
    ready: frozenset[PodKey]
    decision: Decision
    at: float
    now: str
    problem: str | None
    refusal: PodRefusal | None
    budget_problem: str | None
    term: int
    lease: LeaseIdentity | None
    waits: Mapping[int, Wait] = MappingProxyType({})
    facts: Mapping[type, Any] = MappingProxyType({})

    def of(self, kind: type[F]) -> F:
        """The fact of that type; one without content if no concern has found any."""
        found: F | None = self.facts.get(kind)
        return kind() if found is None else found

    def noting(self, fact: object, **changes: Any) -> "Report":
        """The report with `fact` in place of an earlier one of its type, and with other values of its own fields."""
        return self._replace(facts={**self.facts, type(fact): fact}, **changes)

    @property
    def admitted(self) -> Admitted | None:
        """The part of a gang that has quota; the previous status's value while that is unknown."""
        allowance = self.of(Allowance)
        unseen = allowance.unknown and not allowance.suspends
        return self.before.admitted if unseen else allowance.admitted(self.spec)

    @property
    def started(self) -> Mapping[PodKey, str]:
        """When trainers started, while the time runs in which their torchruns have to speak."""
        return {} if self.decision.state.clocks.all_running is None else self.observer.started

    @property
    def suspended(self) -> bool:
        """Whether the job is suspended, by the user or for lack of quota."""
        return self.spec.suspend or self.of(Allowance).suspends
