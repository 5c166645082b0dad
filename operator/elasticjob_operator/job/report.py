# SPDX-License-Identifier: Apache-2.0
"""What the operator has found in one look at a job. The status is made from it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import Active, Admitted, ElasticJobSpec, ElasticJobStatus, LeaseIdentity, NodeFailures, Progress
from elasticjob.objects import Object
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Decision, Spec, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.job.drain import Budget
from elasticjob_operator.job.finishing import Finishing
from elasticjob_operator.job.network import Network
from elasticjob_operator.job.quota import UNLIMITED, Allowance
from elasticjob_operator.job.refusals import Refusal
from elasticjob_operator.job.sidecars import SidecarQuestion
from elasticjob_operator.job.stalls import Hang
from elasticjob_operator.job.starts import Start


class Report(NamedTuple):
    """All that a status is made of. `ready`: the workers whose pods are ready. `waits`: those of wanted workers, by
    index. `budget_problem`: why the PodDisruptionBudget is not as it should be. `allowance`: what the quota allows of
    the spec. `started`: when trainers started, while the time runs in which their torchruns have to speak. `asked`: the
    sidecars to ask what keeps them from joining. `lease`: the Lease that `term` belongs to."""

    job: Object
    spec: ElasticJobSpec
    workers: tuple[Worker, ...]
    ready: frozenset[PodKey]
    decision: Decision
    before: ElasticJobStatus
    problem: str | None
    refusal: Refusal | None
    term: int
    now: str
    progress: Progress | None = None
    waits: Mapping[int, Wait] = MappingProxyType({})
    hang: Hang = Hang()
    network: Network = Network()
    start: Start = Start()
    finishing: Finishing = Finishing()
    node_failures: tuple[NodeFailures, ...] = ()
    allowance: Allowance = UNLIMITED
    started: Mapping[PodKey, str] = MappingProxyType({})
    asked: Sequence[SidecarQuestion] = ()
    budget: Budget = Budget.CLOSED
    budget_problem: str | None = None
    active: Active | None = None
    lease: LeaseIdentity | None = None

    @property
    def limited(self) -> ElasticJobSpec:
        """The spec that the rendezvous is given."""
        return self.allowance.of(self.spec)

    @property
    def admitted(self) -> Admitted | None:
        """The part of a gang that has quota; the previous status's value while that is unknown."""
        unseen = self.allowance.unknown and not self.allowance.suspends
        return self.before.admitted if unseen else self.allowance.admitted(self.spec)

    @property
    def bounds(self) -> Spec:
        return rendezvous_spec(self.limited)

    @property
    def suspended(self) -> bool:
        """Whether the job is suspended, by the user or for lack of quota."""
        return self.spec.suspend or self.allowance.suspends
