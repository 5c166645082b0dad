# SPDX-License-Identifier: Apache-2.0
"""Makes and removes a job's worker pods as decided. Decides nothing."""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Collection, Container, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar, cast

from elasticjob.blocker_reasons import Reason
from elasticjob.kube.errors import ApiError, Busy, Conflict, Forbidden, Invalid, NotFound, Terminating, TimedOut
from elasticjob.objects import Object
from elasticjob.pods import pod_name
from elasticjob.reading import Pod
from elasticjob.rendezvous import Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.actions.slots import Slots
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.job.bad_nodes import BadNodesFound
from elasticjob_operator.job.cleanup import DEADLINE_SECONDS
from elasticjob_operator.job.observe import is_made_for, nodes_of_indices
from elasticjob_operator.job.outcome import Done, LookAgain, Retry
from elasticjob_operator.job.refusal_messages import PodRefusal, explained, refused
from elasticjob_operator.job.refusals import Answer, Refusals
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.view import JobView
from elasticjob_operator.objects.admitted import Admission
from elasticjob_operator.objects.pods import SidecarImage, render_pod

# the beginning of the API server's refusals; without it one cause has the same sentence for all workers
NAMED = re.compile(r'^pods? "[^"]*" is (forbidden|invalid): ', re.IGNORECASE)

# how long to wait for a name that another pod has: its grace period or the garbage collector may be about to end it
GOING_SECONDS = 60.0
PATIENCE = f"if it is there in {GOING_SECONDS:g} s, the worker's pod gets another number"

log = logging.getLogger(__name__)

T = TypeVar("T")


class WorkerPods:
    """The pods of one job. All jobs share `slots`. `refusal`: why a pod could not be made. `taken`: the keys whose
    names other pods have that are not the job's, and that are not waited for."""

    def __init__(self, kube: Kube, cache: Cache, announcer: Announcer, image: SidecarImage, slots: Slots[Key]) -> None:
        self._kube, self._cache, self._announcer = kube, cache, announcer
        self._image, self._slots = image, slots
        self._refusals, self._made_from = Refusals(), ""
        self._in_the_way: dict[PodKey, float] = {}  # since when, on the event loop's clock
        self.refusal: PodRefusal | None = None
        self.taken: frozenset[PodKey] = frozenset()

    async def delete(self, job: Object, workers: Iterable[Worker]) -> None:
        await _all(self._delete(job, worker) for worker in workers)

    async def end(self, job: Object, workers: Iterable[Worker]) -> None:
        """Stops the workers' containers and keeps their pods."""
        await _all(self._end(job, worker) for worker in workers)

    def due(self, report: Report, wanted: Iterable[PodKey]) -> list[PodKey]:
        """The keys of the pods to try now. A refused pod waits for its next try. What is known of the pods that are not
        among `wanted` is forgotten."""
        wanted = tuple(wanted)
        self._in_the_way = {pod_key: self._in_the_way[pod_key] for pod_key in wanted if pod_key in self._in_the_way}
        self.taken = self.taken.intersection(wanted)
        if self._made_from != (made_from := report.spec.template_hash):
            self._refusals, self._made_from = Refusals(), made_from
        return self._refusals.due(wanted, asyncio.get_running_loop().time(), self._names_of_running(report.job))

    async def create(
        self,
        report: Report,
        due: Collection[PodKey],
        imports: str = "",
        spares: Container[int] = (),
        admissions: Mapping[PodKey, Admission] = MappingProxyType({}),
    ) -> Done | Retry | LookAgain:
        """Makes the pods with the keys that are `due`. Some may have to be retried.

        `imports`: as in `render_pod`. `spares`: the indices of workers without a place. `admissions`: what the quota of
        each pod adds to it.
        """
        job, known, rejecting = report.job, self.taken, report.of(BadNodesFound).rejecting
        batch, nodes = (secrets.token_hex(4), nodes_of_indices(self._view(job), rejecting)) if due else ("", {})
        answers = await _all(
            self._create(report, batch, nodes, imports, admissions.get(pod_key), pod_key, spare=pod_key[0] in spares)
            for pod_key in due
        )
        again = self._refusals.note(dict(zip(due, answers, strict=True)), asyncio.get_running_loop().time())
        if self.taken != known:
            return LookAgain(0.0)  # so that the status gets other numbers
        index, refusal = self._refusals.first or (0, None)
        if refusal == self.refusal:
            return again
        self.refusal = refusal
        if refusal:
            self._announcer.announce(job, "CreateFailed", f"worker {index}: {refusal.why}", warning=True)
        return LookAgain(0.0)  # so that the status says so

    async def _create(
        self,
        report: Report,
        batch: str,
        nodes: Mapping[str, set[str]],
        imports: str,
        admitted: Admission | None,
        pod_key: PodKey,
        *,
        spare: bool,
    ) -> Answer:
        job, spec, avoided = report.job, report.spec, report.of(BadNodesFound).avoided
        if admitted and admitted.problem:
            return Answer(refusal=PodRefusal(admitted.problem, object=f"Workload/{admitted.workload}"))
        async with self._slots.of(Key.of(job)):
            exclude = avoided if spec.avoid_nodes and spec.avoid_nodes.required else ()
            pod = render_pod(
                job,
                spec,
                *pod_key,
                self._image,
                batch=batch,
                avoid={*nodes.get(str(pod_key[0]), ()), *avoided}.difference(exclude),
                exclude=exclude,
                imports=imports,
                spare=spare,
                admitted=admitted,
            )
            try:
                self._cache.note_pod(await self._kube.create_pod(pod))
            except Conflict:
                why = await self._who_has(job, pod_key)
                refusal = PodRefusal(why, Reason.NAME_TAKEN, f"Pod/{pod['metadata']['name']}") if why else None
                return Answer(taken=True, refusal=refusal)
            except (Busy, Terminating):
                raise
            except TimedOut as error:
                return Answer(refusal=PodRefusal(f"{error}, as with a webhook that is slow"))
            except ApiError as error:
                if not error.status:  # nobody has refused it
                    raise
                return Answer(refusal=refused(explained(NAMED.sub("", str(error)), pod)))
        return Answer(made=True)

    async def _who_has(self, job: Object, pod_key: PodKey) -> str:
        """Why the name is taken, in a sentence. Empty if it will soon be free, if another number is used, or if the
        watch has not shown the job's own pod yet."""
        name, now = pod_name(job["metadata"]["name"], *pod_key), asyncio.get_running_loop().time()
        try:
            pod = Pod.read(await self._kube.pod(job["metadata"]["namespace"], name))
        except NotFound:
            return ""
        if is_made_for(pod, job):
            return ""
        since = self._in_the_way.setdefault(pod_key, now)
        if now - since >= GOING_SECONDS or not (pod.deleting or pod.owners):
            self.taken |= {pod_key}
            return ""
        return "" if pod.deleting else f"there is a pod {name} that is not of this job: {PATIENCE}"

    async def _delete(self, job: Object, worker: Worker) -> None:
        if (pod := self._pod_of(job, worker)) is not None:
            async with self._slots.of(Key.of(job)):
                await self._kube.delete_pod(pod.namespace, pod.name, pod.uid)

    async def _end(self, job: Object, worker: Worker) -> None:
        if (pod := self._pod_of(job, worker)) is None:
            return
        try:
            async with self._slots.of(Key.of(job)):
                ended = await self._kube.set_deadline(pod, DEADLINE_SECONDS)
        except (Invalid, Forbidden) as error:
            log.warning("%s/%s cannot be ended and is deleted: %s", pod.namespace, pod.name, error)
            await self._delete(job, worker)
        else:
            if ended is not None:
                self._cache.note_pod(ended)

    def _names_of_running(self, job: Object) -> frozenset[str]:
        """The names of the pods that run, including those being deleted: they take room until they are gone."""
        return frozenset(name for name, pod in self._view(job).pods.items() if not pod.is_over)

    def _pod_of(self, job: Object, worker: Worker) -> Pod | None:
        return self._view(job).pods.get(pod_name(job["metadata"]["name"], *worker.pod_key))

    def _view(self, job: Object) -> JobView:
        return self._cache.view(Key.of(job))


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results, once no call is in progress any more. Raises the first error."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)
