# SPDX-License-Identifier: Apache-2.0
"""What this operator remembers of its jobs between two steps. All of it can be lost."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from elasticjob.api import ElasticJobSpec
from elasticjob.objects import Object
from elasticjob_operator import metrics
from elasticjob_operator.actions.access import Access
from elasticjob_operator.actions.decided_pods import DecidedPods
from elasticjob_operator.actions.expiry import Expiry
from elasticjob_operator.actions.gang import Gang
from elasticjob_operator.actions.leftovers import LeftoverWorkloads
from elasticjob_operator.actions.sidecar_questions import SidecarQuestions
from elasticjob_operator.actions.slots import Slots
from elasticjob_operator.actions.status_writer import StatusWriter
from elasticjob_operator.actions.template_check import TemplateCheck
from elasticjob_operator.actions.worker_pods import WorkerPods
from elasticjob_operator.cluster import sidecars
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.cluster.reflector import Reflector
from elasticjob_operator.cluster.workloads import Workloads
from elasticjob_operator.concerns import concerns_of
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.evictions import Evictions
from elasticjob_operator.job.measurements import JobTimes
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.outcome import Outcome
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.rivals import Rivalry, Rivals
from elasticjob_operator.job.round_clocks import RoundClocks
from elasticjob_operator.objects import template
from elasticjob_operator.objects.pods import SidecarImage

# until a new leader looks at the access of a job that it has listed: all at once would be a burst of requests
ACCESS_SECONDS = (30.0, 300.0)

PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE = 64, 32


class Action(Protocol):
    """Something that follows from a status."""

    async def keep(self, report: Report) -> Outcome:
        """Does what follows from `report`, whose status is agreed."""
        ...


@dataclass(slots=True)
class Memory:
    """The memory of one job. What a concern or an action knows, it keeps itself.

    `actions`: in the order in which they follow from a status. `spec`: the last one, as JSON and parsed. `heard`: time
    of the oldest event not yet reflected in a status, in monotonic seconds. `ends`: the job's namespace is being
    deleted.
    """

    uid: str
    epoch: int
    times: JobTimes
    template: TemplateCheck
    status: StatusWriter
    access: Access
    pods: WorkerPods
    gang: Gang
    clocks: RoundClocks
    concerns: tuple[Concern, ...]
    actions: tuple[Action, ...]
    spec: tuple[Object | None, ElasticJobSpec] | None = None
    observer: Observer = field(default_factory=lambda: Observer(""))
    heard: float | None = None
    ends: bool = False

    def spec_of(self, job: Object) -> ElasticJobSpec:
        """The job's spec: the same object while it says the same, with all that is derived from it. Raises
        ValidationError."""
        body = job.get("spec")
        if self.spec is None or self.spec[0] != body:
            self.spec = body, ElasticJobSpec.parse(body)
        return self.spec[1]

    def observer_of(self, spec: ElasticJobSpec) -> Observer:
        read_by: dict[str, Any] = {
            "made_from": spec.template_hash,
            "drained": spec.drain.taints,
            "devices": spec.drain.unhealthy_devices,
            "policy": spec.pod_failure_policy,
            "topology_keys": spec.rank_order.topology_keys if spec.rank_order else (),
        }
        if any(getattr(self.observer, name) != value for name, value in read_by.items()):
            hint = None if self.template.problem else template.hint(spec)
            self.observer = Observer(spec.trainer_container, hint=hint or "", **read_by)
        return self.observer


class Memories:
    """The memories of all jobs of this operator."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        reflector: Reflector,
        leadership: Leadership,
        announcer: Announcer,
        image: SidecarImage,
        *,
        namespaces: tuple[str, ...] = (),
        network_policy: bool = False,
        nodes: bool = False,
    ) -> None:
        """`nodes`: whether the cluster's nodes are watched."""
        self._kube, self._cache, self._reflector, self._leadership = kube, cache, reflector, leadership
        self._announcer, self._image, self._network_policy, self._nodes = announcer, image, network_policy, nodes
        self._known: dict[Key, Memory] = {}
        self._epoch: int | None = None  # the clock's epoch at the last listing
        self._listing = asyncio.Lock()
        self._workloads = Workloads(kube, by_namespace=bool(namespaces))
        self._pod_slots: Slots[Key] = Slots(PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE)
        self._rivals = Rivals()
        self.leftovers = LeftoverWorkloads(kube, namespaces)

    async def recall(self, key: Key) -> Memory | None:
        """The memory of job `key`; None without a job. Raises ApiError until everything has been listed."""
        await self._list()
        await self.leftovers.take_over()
        view, epoch = self._cache.view(key), self._leadership.clock.epoch
        if view.job is None or "deletionTimestamp" in view.job["metadata"]:
            self._forget(key)
            return None
        metrics.NAMESPACES_LEFT.set(len(self._rivals.left))
        memory, uid = self._known.get(key), view.job["metadata"]["uid"]
        if memory is not None and (memory.uid, memory.epoch) != (uid, epoch):
            self._announcer.forget(memory.uid)
            memory = None
        if memory is None:
            memory = self._known[key] = self._begin(key, view.job["metadata"]["uid"], epoch)
            if key in self._reflector.listed_jobs:
                memory.access.due_at = time.monotonic() + random.uniform(*ACCESS_SECONDS)
        self._reflector.listed_jobs.discard(key)
        return memory

    async def _list(self) -> None:
        """Lists all that the previous leader has left, and again after a time in which this process may have stood
        still."""
        async with self._listing:
            epoch = self._leadership.clock.epoch
            if self._epoch != epoch:
                await self._reflector.list_all(anew=self._epoch is not None)
                self._epoch = epoch

    def _begin(self, key: Key, uid: str, epoch: int) -> Memory:
        kube, announcer, image, clock = self._kube, self._announcer, self._image, self._leadership.clock
        rivalry, now, are_left = Rivalry(self._rivals, key.namespace), clock.now(), self.leftovers.may_be_of(key)
        access = Access(kube, announcer, network_policy=self._network_policy)
        pods = WorkerPods(kube, self._cache, announcer, image, self._pod_slots)
        gang = Gang(kube, self._workloads, announcer, image, are_left=are_left)
        questions, evictions = SidecarQuestions(sidecars.trouble_of), Evictions(watched=self._nodes)
        clocks = RoundClocks(now)
        return Memory(
            uid,
            epoch,
            JobTimes(counted=now),
            template=TemplateCheck(kube, announcer, image),
            status=StatusWriter(kube, self._cache, self._leadership, announcer, rivalry),
            access=access,
            pods=pods,
            gang=gang,
            clocks=clocks,
            concerns=concerns_of(questions, clocks, gang, evictions, access),
            actions=(DecidedPods(pods, access, gang, evictions, clock), gang, questions, Expiry(kube)),
        )

    def _forget(self, key: Key) -> None:
        if memory := self._known.pop(key, None):
            self._announcer.forget(memory.uid)
            if memory.gang.has_some:
                self.leftovers.expect(key)
        self._cache.forget(key)
