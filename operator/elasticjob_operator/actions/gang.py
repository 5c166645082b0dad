# SPDX-License-Identifier: Apache-2.0
"""Keeps a job's Workloads as `quota` plans them, and reports what they allow. Decides nothing."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import ElasticJobSpec
from elasticjob.blocker_reasons import Reason
from elasticjob.kube.errors import (
    ApiError,
    Busy,
    Conflict,
    Forbidden,
    NotFound,
    Terminating,
    TimedOut,
    Unavailable,
)
from elasticjob.kube.paths import PRIORITIES, WORKLOAD_PRIORITIES, WORKLOADS
from elasticjob.objects import Object, is_owned_by
from elasticjob.reading import Pod
from elasticjob.rendezvous import State, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.actions.leftovers import delete_left
from elasticjob_operator.cluster.cache import Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.workloads import Workloads
from elasticjob_operator.job import quota
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.outcome import Done, LookAgain
from elasticjob_operator.job.quota import UNLIMITED, Allowance, Need, Plan, There
from elasticjob_operator.job.refusal_messages import PodRefusal
from elasticjob_operator.job.refusals import RETRY, Answer, Refusals
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.share import Share, share_of
from elasticjob_operator.objects.admitted import Admission, Update, admitted, of_flavor
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.objects.workloads import (
    LEAST,
    POD_SET,
    Ask,
    ask_of,
    collection,
    render_workload,
    workload_name,
)

# until the next look: after a change, while quota is awaited, otherwise, and after an error
CHANGED_SECONDS, WAITING_SECONDS, HELD_SECONDS, REFUSED_SECONDS = 0.5, 2.0, 5.0, 10.0
ASK = (0, 0)  # the key of the one request in `Refusals`
GANG = "spec.quotaAdmission is Gang"
TEMPLATES = "spec.template.spec.priorityClassName"
LOST = "QuotaLost"
REFUSED = "Kueue has refused the last Workload: "
NO_KUEUE = (
    f"{GANG}, and the cluster has no Kueue that serves {WORKLOADS.api_version}: install it, or leave the field out"
)
NO_RIGHT = f"{GANG}, and the operator may not see to it: set the chart's value kueue.gang"


class Trouble(NamedTuple):
    """Why Workloads cannot be read or changed. `is_fault`: somebody has to repair that."""

    why: str
    is_fault: bool


class Gang(Concern):
    """The Workloads of one job, as far as this operator knows. Does nothing for a job that is admitted by pods."""

    def __init__(
        self, kube: Kube, workloads: Workloads, announcer: Announcer, image: SidecarImage, *, are_left: bool = False
    ) -> None:
        """`are_left`: an earlier job of the name was a gang, and may have left Workloads."""
        self._kube, self._workloads, self._announcer, self._image = kube, workloads, announcer, image
        self._shares: tuple[Share, ...] | None = None
        self._admitted: dict[int, Admission] = {}  # for the shares that hold quota, by their numbers
        self._changed_at, self._within = -1.0, CHANGED_SECONDS
        self._is_fresh, self._wants_none = False, False
        self._are_left = are_left  # Workloads of an earlier job of the name, whose pods still run
        self._unseen: Trouble | None = None
        self._refused: Trouble | None = None  # about a change
        self._refusals = Refusals()  # by Kueue, of requests
        self._announced: tuple[str, bool] | None = None

    async def look(self, job: Object, spec: ElasticJobSpec) -> None:
        """Reads the job's Workloads, if it is time."""
        if self._wants_none or not self._may_have_some(job, spec):
            return
        meta, made_from = job["metadata"], spec.template_hash
        within = self._within if spec.admitted_as_gang else REFUSED_SECONDS
        self._is_fresh, key = False, Key.of(job)
        try:
            there = await self._workloads.of(key, self._changed_at, within)
        except ApiError as error:
            self._unseen = _trouble(error)
            if not spec.admitted_as_gang and isinstance(error, NotFound | Forbidden):
                self._shares, self._are_left = self._shares or (), False
            return
        self._are_left = True
        with suppress(ApiError):  # the next look tries again
            self._are_left = not await delete_left(self._kube, key, there)
        own = (share_of(one, job, made_from) for one in there if is_owned_by(one, meta["uid"]))
        self._shares = tuple(share for share in own if share)
        self._is_fresh, self._unseen = True, None
        self._admitted = {one.number: await self._admission(one, job, spec) for one in self._shares if one.counts}

    async def _admission(self, share: Share, job: Object, spec: ElasticJobSpec) -> Admission:
        """What the share's pods get, or why there can be none."""
        workload, flavors = workload_name(job["metadata"]["name"], share.number), list[Update]()
        for name in share.flavors:
            try:
                flavors.append(of_flavor(name, await self._workloads.flavor(name)))
            except ApiError as error:
                return Admission(workload, problem=_unread(name, error))
        return admitted(workload, flavors, share.checks, spec.template)

    def admissions(
        self, pods: Iterable[Pod], job: Object, spec: ElasticJobSpec, pod_keys: Sequence[PodKey]
    ) -> dict[PodKey, Admission]:
        """What each pod that is to be made gets from the quota that it uses. `pods`: the present pods, which use quota
        too."""
        if not (self._admitted and spec.admitted_as_gang):
            return {}
        named = {workload_name(job["metadata"]["name"], number): number for number in self._admitted}
        used = (named[pod.workload] for pod in pods if pod.workload in named and not (pod.is_over or pod.deleting))
        numbers = quota.assigned(self._shares or (), used, len(pod_keys))
        taken = zip(pod_keys, numbers, strict=False)
        return {pod_key: self._admitted[number] for pod_key, number in taken if number in self._admitted}

    @property
    def has_some(self) -> bool:
        return bool(self._shares)

    def _may_have_some(self, job: Object, spec: ElasticJobSpec) -> bool:
        """Whether the job may have Workloads. One that is admitted by pods, and names a queue, may have been a gang
        under an earlier operator."""
        unknown = self._shares is None and ask_of(job) is not None
        return spec.admitted_as_gang or unknown or bool(self._shares) or self._are_left

    def see(self, report: Report) -> Report:
        spec, workers = report.spec, report.workers
        allowance, starts_torchrun = self.allowance(spec, report.decision.state, workers), report.bounds.starts_torchrun
        bounds = rendezvous_spec(allowance.of(spec), len(workers), starts_torchrun=starts_torchrun)
        return report.noting(allowance, bounds=bounds)

    def allowance(self, spec: ElasticJobSpec, state: State, workers: Iterable[Worker]) -> Allowance:
        if not spec.admitted_as_gang:
            return UNLIMITED
        shares = None if self._unseen else self._shares
        found = quota.allowance(spec, state, quota.there_of(workers), shares)
        if not (found.unknown or found.message):
            return found
        trouble, before = self._unseen or self._refused, self._lately()
        message = "; ".join(filter(None, (found.message, trouble.why if trouble else before)))
        is_fault = trouble.is_fault if trouble else bool(before) or self._is_refused()
        return found._replace(message=message, refused=found.refused or is_fault)

    def _lately(self) -> str:
        """Why Kueue has refused the last Workload, once that is deleted."""
        if self._refusals.first is None or self._is_refused():
            return ""
        asks = any(share.waits for share in self._shares or ())
        again = "" if asks else f"; it asks again within {RETRY.longest:g} s"
        return f"{REFUSED}{self._refusals.first[1].why}{again}"

    def _is_refused(self) -> bool:
        return any(share.refused for share in self._shares or ())

    async def keep(self, report: Report) -> Done | LookAgain:
        """Makes, shrinks and deletes Workloads. To be called once the status is written: the status determines how many
        workers they are for."""
        job, spec, state = report.job, report.spec, report.decision.state
        if not self._may_have_some(job, spec):
            return Done()
        self._announce(report)
        if not report.of(Allowance).message:
            self._refusals = Refusals()
        if self._shares is None or not self._is_fresh:
            self._within = REFUSED_SECONDS
            return LookAgain(self._within)
        # pods that are admitted by themselves use none of it
        there = quota.there_of(report.workers) if spec.admitted_as_gang or spec.suspend else There()
        need = quota.need_of(spec, state, there) if spec.admitted_as_gang else Need()
        self._wants_none = not (self._shares or need.workers or self._are_left)
        if self._wants_none:
            return Done()
        plan = quota.plan(self._shares, need, there, None if report.problem else ask_of(job))
        if plan.create and not self._refusals.due([ASK], time.monotonic()):
            plan = plan._replace(create=None)
        if plan != Plan():
            left = self._changed_at + REFUSED_SECONDS - time.monotonic() if self._refused else 0
            return LookAgain(left if left > 0 else await self._carry_out(job, spec, plan))
        self._refused = None
        self._within = WAITING_SECONDS if report.of(Allowance).message else HELD_SECONDS
        return LookAgain(self._within)

    async def _carry_out(self, job: Object, spec: ElasticJobSpec, plan: Plan) -> float:
        """Carries out `plan`. Returns the seconds until the next look."""
        self._refused = None
        try:
            await self._apply(job, spec, plan)
        except (Busy, TimedOut):
            self._within = WAITING_SECONDS
        except Terminating:
            raise
        except ApiError as error:
            self._refused, self._within = _trouble(error), REFUSED_SECONDS
        else:
            self._within = CHANGED_SECONDS
        finally:
            self._changed_at = time.monotonic()
        return self._within

    async def _apply(self, job: Object, spec: ElasticJobSpec, plan: Plan) -> None:
        meta = job["metadata"]
        path = collection(meta["namespace"])
        for share in plan.delete:
            await self._kube.delete(f"{path}/{workload_name(meta['name'], share.number)}", share.uid)
            if share.refused:
                self._refusals.note({ASK: Answer(refusal=PodRefusal(share.message))}, time.monotonic())
        for share, kept in plan.shrink:
            back = [{"name": POD_SET, "count": share.ask.workers - kept}]
            name = workload_name(meta["name"], share.number)
            await self._patch(f"{path}/{name}/status", {"status": {"reclaimablePods": back}})
        if plan.change:
            share, ask = plan.change
            body = render_workload(job, spec, self._image, share.number, ask, None)
            meta_of_it = {"uid": share.uid, "annotations": {LEAST: body["metadata"]["annotations"][LEAST]}}
            change = {"metadata": meta_of_it, "spec": {"podSets": body["spec"]["podSets"]}}
            await self._patch(f"{path}/{body['metadata']['name']}", change)
        if plan.create:
            number, ask = plan.create
            priority = await self._priority(ask)
            body = render_workload(job, spec, self._image, number, ask, priority)
            try:
                await self._kube.request("POST", path, body)
            except Conflict as error:
                name = body["metadata"]["name"]
                why = f"there is a Workload {name} that is not this job's: delete it, or wait until it is gone"
                raise ApiError(why, 409) from error

    async def _patch(self, path: str, body: Object) -> None:
        """Changes a Workload. If it is gone, or another by now, that is no error: the next look will show it."""
        with suppress(NotFound, Conflict):
            await self._kube.request("PATCH", path, body)

    async def _priority(self, ask: Ask) -> int | None:
        if not ask.priority_class:
            return None
        classes = PRIORITIES if ask.by_pods else WORKLOAD_PRIORITIES
        try:
            found = await self._kube.request("GET", classes.one(ask.priority_class))
        except NotFound as error:
            kind, where = ("PriorityClass", TEMPLATES) if ask.by_pods else ("WorkloadPriorityClass", "the job's label")
            why = f"there is no {kind} {ask.priority_class}: make it, or change {where}"
            raise ApiError(why, 404) from error
        return int(found["value"])

    def _announce(self, report: Report) -> None:
        """Announces that quota is awaited, refused or lost, each when it begins."""
        if self._announced is None:
            self._announced = Reason.QUOTA_PENDING if report.before.reason == Reason.QUOTA_PENDING else "", False
        message, lost = report.of(Allowance).message, any(share.lost and share.held for share in self._shares or ())
        reason = (LOST if lost else Reason.QUOTA_PENDING) if message else ""
        asks = any(share.waits for share in self._shares or ())
        refused = bool(message) and not asks and (self._refusals.first is not None or self._is_refused())
        before, was_refused = self._announced
        if reason and (reason != before or (refused and not was_refused)):
            warning = refused or bool(self._unseen or self._refused)
            self._announcer.announce(report.job, reason, message, warning=warning)
        self._announced = reason, refused


def _trouble(error: ApiError) -> Trouble:
    return Trouble(_remedy(error), not isinstance(error, Unavailable))


def _remedy(error: ApiError) -> str:
    """Why the Workloads cannot be read or changed, and what to do about it."""
    if isinstance(error, NotFound):
        return NO_KUEUE
    if isinstance(error, Forbidden) and " cannot " in str(error):
        return f"{NO_RIGHT} ({error})"
    return f"Kueue's Workloads: {error}"


def _unread(flavor: str, error: ApiError) -> str:
    """Why a pod cannot be made, and what to do about it."""
    right = ": set the chart's value kueue.gang" if isinstance(error, Forbidden) else ""
    return f"the ResourceFlavor {flavor}, by which Kueue has admitted the job, cannot be read{right} ({error})"
