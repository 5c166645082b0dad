"""What this operator keeps of its jobs between two steps, and when it reads them afresh. All of it can be lost."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import ElasticJobSpec
from elasticjob.objects import Object
from elasticjob.rendezvous import Clocks, Spec, State, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import RendezvousPhase
from elasticjob_operator import metrics
from elasticjob_operator.actions.gang import Gang
from elasticjob_operator.actions.grants import Grants
from elasticjob_operator.actions.leftovers import Leftovers
from elasticjob_operator.actions.slots import Slots
from elasticjob_operator.actions.status_writer import StatusWriter
from elasticjob_operator.actions.template_check import TemplateCheck
from elasticjob_operator.actions.worker_pods import WorkerPods
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.cluster.listing import Lister
from elasticjob_operator.cluster.workloads import Workloads
from elasticjob_operator.job.false_alarms import FalseAlarms
from elasticjob_operator.job.finishing import Crashes
from elasticjob_operator.job.network import Network
from elasticjob_operator.job.observations import Times
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.restless import Restless
from elasticjob_operator.job.rivals import Rivalry, Rivals
from elasticjob_operator.job.stalls import NOBODY, Asked
from elasticjob_operator.job.starts import UNKNOWN, Start
from elasticjob_operator.job.waiting import AnnouncedReasons
from elasticjob_operator.objects import template
from elasticjob_operator.objects.pods import SidecarImage, template_hash

RELIST_SECONDS = 300.0
SETTLE_SECONDS = 30.0  # at most twice as long: all jobs at once would be another take-over
Phase = tuple[int, RendezvousPhase]  # and the round's number

PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE = 64, 32


@dataclass(slots=True)
class Memory:
    """Of one job. `phase`: what `clocks` are of, once that is known. `settled`: it was listed by itself, not only with
    all others at a take-over. `heard`: when the first news came in that no status has answered yet, in monotonic
    seconds. `going`: since when pods have been seen on nodes that are about to go. `evictable`: it was announced that
    they may be evicted. `asked`: in which round all were asked why nobody takes steps. `restless`: who has ended formed
    rounds by joining again. `false_alarms`: who has suspected others without cause. `start`: what was last found of the
    round's start. `network`: what was last found of it, None before the first look. `crashes`: how often containers
    that go on after success have failed. `rejecting`: by index, the nodes that have rejected its pods. `ends`: with its
    namespace, which is being deleted."""

    uid: str
    epoch: int
    clocks: Clocks
    times: Times
    template: TemplateCheck
    status: StatusWriter
    grants: Grants
    pods: WorkerPods
    gang: Gang
    phase: Phase | None = None
    observer: Observer = field(default_factory=lambda: Observer(""))
    announced: AnnouncedReasons = field(default_factory=AnnouncedReasons)
    going: dict[PodKey, float] = field(default_factory=dict)
    evictable: bool = False
    listed_at: float = 0.0
    settled: bool = False
    heard: float | None = None
    asked: Asked = NOBODY
    network: Network | None = None
    crashes: Crashes = field(default_factory=lambda: MappingProxyType({}))
    restless: Restless = field(default_factory=Restless)
    false_alarms: FalseAlarms = field(default_factory=FalseAlarms)
    start: Start = UNKNOWN
    rejecting: Mapping[int, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    ends: bool = False

    def fresh_for(self) -> float:
        """Seconds until it is to be listed again."""
        return self.listed_at + RELIST_SECONDS - time.monotonic()

    def keep(self, state: State) -> None:
        """The clocks of a state that is agreed."""
        self.clocks, self.phase = state.clocks, (state.round, state.phase)

    def clocks_of(self, phase: Phase, now: float) -> Clocks:
        """Those of the phase that the status names. If they are of another, the answer to the write that began this one
        was lost: it began now, as far as is known here."""
        if self.phase not in (None, phase):
            clocks = replace(self.clocks, opened=now, formed=now, min_reached=None, newcomer=None)
            clocks = replace(clocks, all_running=None, all_spoke=None)
            self.clocks, self.phase = clocks, phase
        return self.clocks

    def observer_of(self, spec: ElasticJobSpec) -> Observer:
        """The one that pods made from `spec` are read by."""
        keys = spec.rank_order.topology_keys if spec.rank_order else ()
        read_by = template_hash(spec), spec.drain.taints, spec.pod_failure_policy, keys
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
    """Of all jobs that this operator looks after."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        leadership: Leadership,
        announcer: Announcer,
        image: SidecarImage,
        namespaces: tuple[str, ...],
        network_policy: bool,
        nodes: bool,
    ) -> None:
        self._kube, self._cache, self._leadership, self._nodes = kube, cache, leadership, nodes
        self._announcer, self._image, self._network_policy = announcer, image, network_policy
        self._lister = Lister(kube, cache, namespaces)
        self._known: dict[Key, Memory] = {}
        self._taken_over, self._taking_over = False, asyncio.Lock()
        self._workloads = Workloads(kube, by_namespace=bool(namespaces))
        self._pod_slots: Slots[Key] = Slots(PODS_AT_ONCE, PODS_OF_A_JOB_AT_ONCE)
        self._rivals = Rivals()
        self.leftovers = Leftovers(kube, namespaces)

    async def recall(self, key: Key) -> Memory | None:
        """That of job `key`, after a fresh listing where there is none or where it has aged; None without a job."""
        view, epoch = self._cache.view(key), self._leadership.clock.epoch
        if view.job is None or "deletionTimestamp" in view.job["metadata"]:
            self._forget(key)
            return None
        await self._take_over()
        await self.leftovers.take_over()
        metrics.NAMESPACES_LEFT.set(len(self._rivals.left))
        memory = self._known.get(key)
        if memory is not None and (memory.uid, memory.epoch) != (view.job["metadata"]["uid"], epoch):
            self._announcer.forget(memory.uid)
            memory = None
        if memory is None or memory.fresh_for() <= 0:
            if not await self._lister.list_one(key):
                self._forget(key)
                return None
            memory = memory or self._begin(view.job["metadata"], epoch)
            memory.settled = True
            memory.listed_at = time.monotonic()
            self._known[key] = memory
        return memory

    async def _take_over(self) -> None:
        """Once, and after kopf has begun to list: one listing for all jobs of the leader before.

        kopf's own lists may be a little younger, and nobody reports what ended between the two, so each job is listed
        once more soon. The nodes come first: a worker of one that is about to go would be taken for one that stays.
        """
        async with self._taking_over:
            if self._taken_over:
                return
            if self._nodes:
                await self._lister.list_nodes()
            for key in await self._lister.list_all():
                job = self._cache.view(key).job
                if job is None:  # deleted since
                    continue
                memory = self._begin(job["metadata"], self._leadership.clock.epoch)
                memory.listed_at = time.monotonic() - RELIST_SECONDS + random.uniform(1, 2) * SETTLE_SECONDS
                self._known[key] = memory
            self._taken_over = True

    def _begin(self, meta: Object, epoch: int) -> Memory:
        kube, now = self._kube, self._leadership.clock.now()
        rivalry = Rivalry(self._rivals, meta["namespace"])
        return Memory(
            meta["uid"],
            epoch,
            Clocks(opened=now, formed=now),
            Times(counted=now),
            template=TemplateCheck(kube, self._announcer, self._image),
            status=StatusWriter(kube, self._cache, self._leadership, self._announcer, rivalry),
            grants=Grants(kube, self._announcer, network_policy=self._network_policy),
            pods=WorkerPods(kube, self._cache, self._announcer, self._image, self._pod_slots),
            gang=Gang(kube, self._workloads, self._announcer, self._image),
        )

    def _forget(self, key: Key) -> None:
        if memory := self._known.pop(key, None):
            self._announcer.forget(memory.uid)
            if memory.gang.has_some:
                self.leftovers.expect(key)
        if self._cache.view(key).job is None:
            self._cache.forget(key)
