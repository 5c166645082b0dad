"""Gives a job's workers the access and the budget that `objects` has, and mends what others delete or edit of it."""

import math
import time

from elasticjob.api import API_VERSION, JOB_LABEL, ElasticJobSpec
from elasticjob.objects import Object
from elasticjob_operator.cluster.client import ApiError, Busy, Conflict, Kube, NotFound
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.job.drain import Budget
from elasticjob_operator.job.observe import is_owned_by
from elasticjob_operator.job.outcome import Done, Retry
from elasticjob_operator.objects.access import change_of, render_access
from elasticjob_operator.objects.budget import render_budget
from elasticjob_operator.objects.paths import CORE
from elasticjob_operator.objects.pods import access_name, service_account

SOON_SECONDS = 1.0  # until it is tried again: what is on its way
REFUSED_SECONDS = 10.0  # what somebody has to mend
GOING_SECONDS = 5.0  # an object of an earlier job takes less to go, unless a finalizer holds it


class Obstacle(Exception):
    """An object is in the way; the sentence names it and says what to do."""


class Grants:
    """The access and the budget of one job's workers, as far as this operator knows. `problem`: what is in the way."""

    def __init__(self, kube: Kube, announcer: Announcer, *, network_policy: bool) -> None:
        self._kube, self._announcer, self._network_policy = kube, announcer, network_policy
        self._asked: tuple[str, Budget | None] = ("", None)  # the account, and the budget
        self._looked_at, self._going_since = -math.inf, math.inf
        self._came: Done | Retry = Done()  # of the last look
        self.problem: str | None = None

    async def give(
        self, job: Object, spec: ElasticJobSpec, *, within: float, budget: Budget, access: bool = True
    ) -> Done | Retry:
        """Make what is missing, and mend what is the job's own and differs; done once the workers have their access.

        To be called before pods are made: they are refused, even in a dry run, before their service account is there.
        What was found in order less than `within` seconds ago is not looked at again. Without `access` only the budget
        is looked at: of a job that has ended.
        """
        asked, now = (service_account(job["metadata"]["name"], spec), budget), time.monotonic()
        left = self._looked_at + (self._came.seconds if isinstance(self._came, Retry) else within) - now
        if asked == self._asked and left > 0:
            return Retry(left) if isinstance(self._came, Retry) else Done()
        self._asked, self._looked_at = asked, -math.inf  # until it is known, whatever is raised
        try:
            given, problem = await self._all_given(job, spec, access=access), None
        except Obstacle as obstacle:
            given, problem = False, str(obstacle)
        is_news = problem is not None and problem != self.problem
        self._looked_at, self.problem = time.monotonic(), problem
        self._came = Done() if given else Retry(REFUSED_SECONDS if problem and not is_news else SOON_SECONDS)
        if problem and is_news:
            self._announcer.announce(job, "AccessRefused", problem, warning=True)
        return self._came

    async def _all_given(self, job: Object, spec: ElasticJobSpec, *, access: bool) -> bool:
        account, budget = self._asked
        wanted = await self._access(job, spec, account) if access else []
        of_evictions = render_budget(job, is_open=budget is Budget.OPEN)
        if budget is not Budget.NONE:
            wanted.append(of_evictions)
        for path, body in wanted:  # one after the other: a binding is refused before its role is there
            if not await self._is_given(path, body, job):
                return False
        self._going_since = math.inf
        if budget is Budget.NONE:
            await self._drop(*of_evictions, job)
        return True

    async def _access(self, job: Object, spec: ElasticJobSpec, account: str) -> list[tuple[str, Object]]:
        own = account == access_name(job["metadata"]["name"])
        secrets = await self._pull_secrets(job["metadata"]["namespace"]) if own else []
        return list(render_access(job, spec, pull_secrets=secrets, network_policy=self._network_policy))

    async def _drop(self, path: str, body: Object, job: Object) -> None:
        """Delete what is the job's own, or an earlier one's of its name. Raises Obstacle."""
        name = body["metadata"]["name"]
        try:
            found = await self._kube.request("GET", f"{path}/{name}")
            if is_owned_by(found, job["metadata"]["uid"]) or _is_left_over(found, job):
                await self._kube.delete(f"{path}/{name}", found["metadata"]["uid"])
        except NotFound:
            pass
        except Busy:
            raise
        except ApiError as error:
            raise Obstacle(f"the {body['kind']} {name}, which is not to be, cannot be deleted: {error}") from error

    async def _pull_secrets(self, namespace: str) -> list[Object]:
        """Those of the account that pods have when they name none."""
        try:
            account = await self._kube.request("GET", f"{CORE}/namespaces/{namespace}/serviceaccounts/default")
        except NotFound:
            return []
        found: list[Object] = account.get("imagePullSecrets") or []
        return found

    async def _is_given(self, path: str, body: Object, job: Object) -> bool:
        """False while one of that name is on its way out, or has just changed. Raises Obstacle."""
        name = body["metadata"]["name"]
        what = f"the {body['kind']} {name}"
        try:
            return await self._ensure(path, f"{path}/{name}", body, job, what)
        except Conflict:
            return False
        except Busy:  # no object is at fault
            raise
        except ApiError as error:
            raise Obstacle(f"{what}, which the workers need, cannot be had: {error}") from error

    async def _ensure(self, collection: str, path: str, body: Object, job: Object, what: str) -> bool:
        try:
            found = await self._kube.request("GET", path)
        except NotFound:
            await self._kube.request("POST", collection, body)
            return True
        if "deletionTimestamp" in found["metadata"]:
            return self._is_going(what)
        if not (own := is_owned_by(found, job["metadata"]["uid"])) and not _is_left_over(found, job):
            raise Obstacle(f"{what} exists and is not this job's: delete it, or give the job another name")
        change = change_of(found, body)
        if own and change is None:
            return True
        if own and found.get("roleRef") == body.get("roleRef"):
            await self._kube.request("PUT", path, change)
        else:  # what a binding refers to cannot be changed
            await self._kube.delete(path, found["metadata"]["uid"])
            await self._kube.request("POST", collection, body)
        return True

    def _is_going(self, what: str) -> bool:
        now = time.monotonic()
        self._going_since = min(self._going_since, now)
        if now - self._going_since >= GOING_SECONDS:
            raise Obstacle(f"{what} is being deleted and does not go: see its metadata.finalizers")
        return False


def _is_left_over(found: Object, job: Object) -> bool:
    """Whether it is an earlier job's of that name: the garbage collector has not got to it yet, or was told not to
    (`--cascade=orphan`), and our label says whose it was. What it holds proves nothing: an account holds next to
    nothing."""
    name: str = job["metadata"]["name"]
    owners = found["metadata"].get("ownerReferences", ())
    if not owners:
        labels: dict[str, str] = found["metadata"].get("labels") or {}
        return labels.get(JOB_LABEL) == name
    former = (API_VERSION, "ElasticJob", name)
    return any((one["apiVersion"], one["kind"], one["name"]) == former for one in owners)
