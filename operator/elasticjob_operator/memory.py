# SPDX-License-Identifier: Apache-2.0
"""What this operator remembers of its jobs between two steps. All of it can be lost."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import ElasticJobSpec
from elasticjob.objects import Object
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import Clocks, Spec, State, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import RendezvousPhase
from elasticjob_operator import metrics
from elasticjob_operator.actions.access import Access
from elasticjob_operator.actions.gang import Gang
from elasticjob_operator.actions.leftovers import Leftovers
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
from elasticjob_operator.job.announced import AnnouncedReasons
from elasticjob_operator.job.false_alarms import FalseAlarms
from elasticjob_operator.job.finishing import Crashes
from elasticjob_operator.job.measurements import Times
from elasticjob_operator.job.min_available import MinAvailable
from elasticjob_operator.job.network import Network
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.restless import Restless
from elasticjob_operator.job.rivals import Rivalry, Rivals
from elasticjob_operator.job.stalls import NOBODY, StallQuestion
from elasticjob_operator.job.starts import UNKNOWN, Start
from elasticjob_operator.objects import template
from elasticjob_operator.objects.pods import SidecarImage

SETTLE_SECONDS = 30.0  # and up to ten times as long: all jobs at once would cause another burst of requests
Phase = tuple[int, RendezvousPhase]  # the round's number and its phase

PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE = 64, 32


@dataclass(slots=True)
class Memory:
    """The memory of one job; times are in seconds.

    `spec`: the last one, as JSON and parsed. `phase`: the phase that `clocks` belong to, once known. `heard`: time of
    the oldest event not yet reflected in a status, in monotonic seconds. `access_at`: when the workers' access is
    next checked although no pod is to be made, in monotonic seconds; after a take-over an option of the operator may
    have changed. `going`: since when pods have been seen on nodes that are about to go. `evictable`: it was announced
    that they may be evicted. `min_available`: that of a closed budget. `asked`: the round in which all members were
    asked about a stall. `restless`: the members that ended formed rounds by joining again. `false_alarms`: the
    members that suspected others without cause. `start` and `network`: what the last step found of the round's start
    and network, None for `network` before the first step. `crashes`: how often containers that continue after success
    have failed. `rejecting`: the nodes that have rejected pods, by index. `troubles`: what sidecars reported in the
    last step as keeping their workers away. `ends`: the job's namespace is being deleted.
    """

    uid: str
    epoch: int
    clocks: Clocks
    times: Times
    template: TemplateCheck
    status: StatusWriter
    access: Access
    pods: WorkerPods
    gang: Gang
    questions: SidecarQuestions
    spec: tuple[Object | None, ElasticJobSpec] | None = None
    phase: Phase | None = None
    observer: Observer = field(default_factory=lambda: Observer(""))
    announced: AnnouncedReasons = field(default_factory=AnnouncedReasons)
    going: dict[PodKey, float] = field(default_factory=dict)
    evictable: bool = False
    min_available: MinAvailable = field(default_factory=MinAvailable)
    access_at: float = 0.0
    heard: float | None = None
    asked: StallQuestion = NOBODY
    network: Network | None = None
    crashes: Crashes = field(default_factory=lambda: MappingProxyType({}))
    restless: Restless = field(default_factory=Restless)
    false_alarms: FalseAlarms = field(default_factory=FalseAlarms)
    start: Start = UNKNOWN
    rejecting: Mapping[int, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    troubles: Mapping[PodKey, Wait] = field(default_factory=lambda: MappingProxyType({}))
    ends: bool = False

    def spec_of(self, job: Object) -> ElasticJobSpec:
        """The job's spec: the same object while it says the same, with all that is derived from it. Raises
        ValidationError."""
        body = job.get("spec")
        if self.spec is None or self.spec[0] != body:
            self.spec = body, ElasticJobSpec.parse(body)
        return self.spec[1]

    def access_due_in(self) -> float:
        """Seconds until the access is to be checked, 0 once it is due."""
        return max(0.0, self.access_at - time.monotonic())

    def keep(self, state: State) -> None:
        """Keeps the clocks of an agreed state."""
        self.clocks, self.phase = state.clocks, (state.round, state.phase)

    def clocks_of(self, phase: Phase, now: float) -> Clocks:
        """The clocks of the phase that the status names. If the known clocks are of another phase, the answer to the
        write that began this one was lost. As far as is known here, the phase then begins now."""
        if self.phase not in (None, phase):
            clocks = replace(self.clocks, opened=now, formed=now, min_reached=None, newcomer=None)
            clocks = replace(clocks, all_running=None, all_spoke=None)
            self.clocks, self.phase = clocks, phase
        return self.clocks

    def observer_of(self, spec: ElasticJobSpec) -> Observer:
        """The observer for pods made from `spec`."""
        keys = spec.rank_order.topology_keys if spec.rank_order else ()
        read_by = spec.template_hash, spec.drain.taints, spec.pod_failure_policy, keys
        known = self.observer
        if (known.made_from, known.drained, known.policy, known.topology_keys) != read_by:
            hint = None if self.template.problem else template.hint(spec)
            made_from, drained, policy, _ = read_by
            self.observer = Observer(
                spec.trainer_container, made_from, hint=hint or "", drained=drained, policy=policy, topology_keys=keys
            )
        return self.observer

    def bounds_of(self, spec: ElasticJobSpec, workers: tuple[Worker, ...]) -> Spec:
        return rendezvous_spec(spec, len(workers), starts_torchrun=not self.observer.hint)


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
        namespaces: tuple[str, ...],
        network_policy: bool,
    ) -> None:
        self._kube, self._cache, self._reflector, self._leadership = kube, cache, reflector, leadership
        self._announcer, self._image, self._network_policy = announcer, image, network_policy
        self._known: dict[Key, Memory] = {}
        self._epoch: int | None = None  # the clock's epoch at the last listing
        self._listing = asyncio.Lock()
        self._workloads = Workloads(kube, by_namespace=bool(namespaces))
        self._pod_slots: Slots[Key] = Slots(PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE)
        self._rivals = Rivals()
        self.leftovers = Leftovers(kube, namespaces)

    async def recall(self, key: Key) -> Memory | None:
        """The memory of job `key`; None without a job. Raises FAILURES until everything has been listed."""
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
                memory.access_at = time.monotonic() + random.uniform(1, 10) * SETTLE_SECONDS
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
        kube, now = self._kube, self._leadership.clock.now()
        rivalry, are_left = Rivalry(self._rivals, key.namespace), self.leftovers.may_be_of(key)
        return Memory(
            uid,
            epoch,
            Clocks(opened=now, formed=now),
            Times(counted=now),
            template=TemplateCheck(kube, self._announcer, self._image),
            status=StatusWriter(kube, self._cache, self._leadership, self._announcer, rivalry),
            access=Access(kube, self._announcer, network_policy=self._network_policy),
            pods=WorkerPods(kube, self._cache, self._announcer, self._image, self._pod_slots),
            gang=Gang(kube, self._workloads, self._announcer, self._image, are_left=are_left),
            questions=SidecarQuestions(sidecars.trouble_of),
        )

    def _forget(self, key: Key) -> None:
        if memory := self._known.pop(key, None):
            self._announcer.forget(memory.uid)
            if memory.gang.has_some:
                self.leftovers.expect(key)
        self._cache.forget(key)
