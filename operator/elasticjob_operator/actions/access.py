# SPDX-License-Identifier: Apache-2.0
"""Makes the access and the budget of a job's workers, and repairs what others delete or edit."""

import math
import time
from dataclasses import replace

from elasticjob.api import API_VERSION, JOB_LABEL, ElasticJobSpec
from elasticjob.kube.errors import ApiError, Busy, Conflict, NotFound, Terminating, Unavailable
from elasticjob.kube.paths import SERVICE_ACCOUNTS
from elasticjob.objects import Object, is_owned_by
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.evictions import Budget, Protection
from elasticjob_operator.job.outcome import Done, LookAgain, Retry
from elasticjob_operator.job.refusal_messages import PodRefusal, without_access
from elasticjob_operator.job.report import Report
from elasticjob_operator.objects.access import BUDGET, change_of, render_access, render_budget
from elasticjob_operator.objects.pods import access_name, service_account

SOON_SECONDS = 1.0  # until the next try, if an object is changing
REFUSED_SECONDS = 10.0  # if somebody has to repair it
# no pod is made for so long while the budget's state is unknown; a longer wait would be for a webhook that is down
UNKNOWN_SECONDS = 30.0
# for so long a successful check of the access is valid: for new pods; for existing ones
ACCESS_SECONDS, ACCESS_KEPT_SECONDS = 10.0, 300.0
ENDED_SECONDS = 3600.0  # between two looks at an ended job
DELETING_SECONDS = 5.0  # an earlier job's object goes sooner, unless a finalizer holds it
WITHOUT_BUDGET = (
    "the job trains without it, and a drain does not wait for the replacements of its workers; to do without a budget "
    "set spec.drain.graceSeconds to 0"
)

Given = tuple[str, Budget | None, int]  # account, budget and its `minAvailable`


class Obstacle(Exception):
    """An object is in the way. The message names it and says what to do. `object`: the object as Kind/name. `passes`:
    the cause may pass by itself, for example an overloaded API server; the write may have been done or not."""

    def __init__(self, sentence: str, body: Object, *, passes: bool = False) -> None:
        super().__init__(sentence)
        self.object = f"{body['kind']}/{body['metadata']['name']}"
        self.passes = passes


class Access(Concern):
    """The access and the budget of one job's workers, as far as this operator knows. `problem`: why the workers lack
    access; no pod is made without it. `budget_problem`: why the budget is not as it should be, and what follows.
    `due_at`: when the access is next checked although no pod is to be made, in monotonic seconds; after a take-over an
    option of the operator may have changed. `found`: the budget's own `minAvailable` if the last look was the first and
    has kept it as the larger number, else 0."""

    def __init__(self, kube: Kube, announcer: Announcer, *, network_policy: bool) -> None:
        self._kube, self._announcer, self._network_policy = kube, announcer, network_policy
        self._asked: Given = ("", None, 0)
        self._looked_at, self._deleting_since, self._unknown_since = -math.inf, math.inf, math.inf
        self._access_at = -math.inf  # when it was last correct
        self._came: Done | Retry | LookAgain = Done()  # the result of the last look
        self.problem: str | None = None
        self._in_the_way = ""
        self.budget_problem: str | None = None
        self.due_at = 0.0
        self.found, self._is_number_known = 0, False

    def again(self, report: Report, now: float) -> float:
        return ENDED_SECONDS if report.decision.state.ended else self._due_in() or ACCESS_KEPT_SECONDS

    def _due_in(self) -> float:
        """Seconds until the access is to be checked, 0 once it is due."""
        return max(0.0, self.due_at - time.monotonic())

    async def keep(self, report: Report, min_available: int, *, soon: bool) -> Done | Retry | LookAgain:
        """Gives the workers their access and budget, if it is time. `soon`: pods are to be made. The rest is as for
        `give`."""
        found = report.of(Protection)
        if not (soon or found.draining or self.owes(found.budget, min_available) or self._due_in() <= 0):
            return Done()
        within, access = ACCESS_SECONDS if soon else ACCESS_KEPT_SECONDS, not report.decision.state.ended
        # the cluster warns of a budget without pods; the first pod is seen, and protected, before it is ready
        is_first = not (report.observer.pods or self.has_budget)
        budget = None if is_first and found.budget is not Budget.NONE else found.budget
        return await self.give(
            report.job, report.spec, within=within, budget=budget, min_available=min_available, access=access
        )

    @property
    def refusal(self) -> PodRefusal | None:
        """`problem` in the form for the status."""
        return without_access(self.problem, self._in_the_way) if self.problem else None

    def owes(self, budget: Budget, min_available: int) -> bool:
        """Whether the workers have their access, and a different budget from this one or none so far."""
        return bool(self._asked[0]) and self._asked[1:] != (budget, _least(budget, min_available))

    @property
    def has_budget(self) -> bool:
        """Whether a budget was made or found, and is to stay."""
        return self._asked[1] in (Budget.CLOSED, Budget.OPEN)

    async def give(
        self,
        job: Object,
        spec: ElasticJobSpec,
        *,
        within: float,
        budget: Budget | None,
        min_available: int,
        access: bool = True,
    ) -> Done | Retry | LookAgain:
        """Makes what is missing, and repairs the job's own objects where they differ.

        To be called before pods are made: they are refused, even in a dry run, until their service account exists.
        Objects that were correct less than `within` seconds ago are not checked again. `access` is False for a job that
        has ended: only the budget is checked. `budget` is None to leave the budget as it is. `min_available`: the
        number of ready pods that a closed budget keeps; the first look keeps a larger one that the budget has.

        Returns a `Retry` if no new pods can be made: without the access, or for a while if the state of the budget is
        unknown. Other problems of the budget lead to another look, and training goes on without it.
        """
        self.found = 0
        account, now = service_account(job["metadata"]["name"], spec), time.monotonic()
        asked = account, budget, _least(budget, min_available)
        left = self._looked_at + (within if isinstance(self._came, Done) else self._came.seconds) - now
        if asked == self._asked and left > 0:
            return self._came if isinstance(self._came, Done) else replace(self._came, seconds=left)
        is_known = not access or (asked[0] == self._asked[0] and now < self._access_at + within)
        self._asked, self._looked_at = asked, -math.inf  # stays so if an exception is raised
        announced = {self.problem, self.budget_problem}
        if is_known:
            self.problem = None
        given = is_known or await self._look_at_access(job, spec)
        if given and budget is not None:
            given = await self._is_budget_given(job, budget)
        new = {self.problem, self.budget_problem} - announced - {None}
        self._looked_at = time.monotonic()
        problem = self.budget_problem if given else self.problem
        seconds = SOON_SECONDS if problem is None or problem in new else REFUSED_SECONDS
        self._came = Retry(seconds) if not given else LookAgain(seconds) if self.budget_problem else Done()
        for reason, one in (("AccessRefused", self.problem), ("BudgetRefused", self.budget_problem)):
            if one in new:
                self._announcer.announce(job, reason, str(one), warning=True)
        return self._came

    async def _look_at_access(self, job: Object, spec: ElasticJobSpec) -> bool:
        """Whether the access is correct. If it cannot be, `problem` says why."""
        self._access_at = -math.inf
        try:
            given = await self._is_access_given(job, spec)
        except Obstacle as obstacle:
            self.problem, self._in_the_way = str(obstacle), obstacle.object
            return False
        self.problem = None
        if given:
            self._access_at = time.monotonic()
        return given

    async def _is_access_given(self, job: Object, spec: ElasticJobSpec) -> bool:
        for path, body in await self._access(job, spec, self._asked[0]):
            if not await self._is_given(path, body, job):  # a binding is refused until its role exists
                return False
        return True

    async def _is_budget_given(self, job: Object, budget: Budget) -> bool:
        """Whether the budget is settled; False while it is changing. An obstacle does not keep pods from being made."""
        path, body = render_budget(job, min_available=self._asked[2])
        try:
            if budget is Budget.NONE:
                await self._drop(path, body, job)
            elif not await self._is_given(path, body, job):
                return False
        except Obstacle as obstacle:
            if obstacle.passes and budget is not Budget.NONE and self._may_pass():
                return False
            self.budget_problem = str(obstacle) if budget is Budget.NONE else f"{obstacle}; {WITHOUT_BUDGET}"
            return True
        self._deleting_since = self._unknown_since = math.inf
        self.budget_problem, self._is_number_known = None, True
        return True

    def _may_pass(self) -> bool:
        now = time.monotonic()
        self._unknown_since = min(self._unknown_since, now)
        return now - self._unknown_since < UNKNOWN_SECONDS

    async def _access(self, job: Object, spec: ElasticJobSpec, account: str) -> list[tuple[str, Object]]:
        own = account == access_name(job["metadata"]["name"])
        secrets = await self._pull_secrets(job["metadata"]["namespace"]) if own else []
        return list(render_access(job, spec, pull_secrets=secrets, network_policy=self._network_policy))

    async def _drop(self, path: str, body: Object, job: Object) -> None:
        """Deletes the object if it is this job's, or an earlier job's of the same name. Raises Obstacle."""
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
            raise Obstacle(f"the {body['kind']} {name} is unwanted and cannot be deleted: {error}", body) from error

    async def _pull_secrets(self, namespace: str) -> list[Object]:
        """The pull secrets of the account that pods use if they name none."""
        try:
            account = await self._kube.request("GET", SERVICE_ACCOUNTS.one("default", namespace))
        except NotFound:
            return []
        found: list[Object] = account.get("imagePullSecrets") or []
        return found

    async def _is_given(self, path: str, body: Object, job: Object) -> bool:
        """Whether the object is correct; False while one of that name is being deleted, or has just changed. Raises
        Obstacle."""
        name = body["metadata"]["name"]
        what = f"the {body['kind']} {name}"
        try:
            return await self._ensure(path, f"{path}/{name}", body, job, what)
        except Conflict:
            return False
        except (Busy, Terminating):  # no object is at fault
            raise
        except ApiError as error:
            need = "" if body["kind"] == BUDGET else ", which the workers need,"
            raise Obstacle(
                f"{what}{need} cannot be had: {error}", body, passes=isinstance(error, Unavailable)
            ) from error

    async def _ensure(self, collection: str, path: str, body: Object, job: Object, what: str) -> bool:
        try:
            found = await self._kube.request("GET", path)
        except NotFound:
            await self._kube.request("POST", collection, body)
            return True
        if "deletionTimestamp" in found["metadata"]:
            return self._is_being_deleted(what, body)
        if not (own := is_owned_by(found, job["metadata"]["uid"])) and not _is_left_over(found, job):
            raise Obstacle(f"{what} exists and is not this job's: delete it, or give the job another name", body)
        if own and body["kind"] == BUDGET and not self._is_number_known:
            body = self._with_its_own_number(found, body)
        change = change_of(found, body)
        if own and change is None:
            return True
        if own and found.get("roleRef") == body.get("roleRef"):
            await self._kube.request("PUT", path, change)
        else:  # a binding's roleRef cannot be changed
            await self._kube.delete(path, found["metadata"]["uid"])
            await self._kube.request("POST", collection, body)
        return True

    def _with_its_own_number(self, found: Object, body: Object) -> Object:
        """The closed budget with the number that it has, if that is the larger one."""
        (account, budget, least), number = self._asked, (found.get("spec") or {}).get("minAvailable")
        if budget is not Budget.CLOSED or not isinstance(number, int) or number <= least:
            return body
        self.found, self._asked = number, (account, budget, number)
        return {**body, "spec": {**body["spec"], "minAvailable": number}}

    def _is_being_deleted(self, what: str, body: Object) -> bool:
        now = time.monotonic()
        self._deleting_since = min(self._deleting_since, now)
        if now - self._deleting_since >= DELETING_SECONDS:
            raise Obstacle(f"{what} is being deleted and does not go: see its metadata.finalizers", body)
        return False


def _least(budget: Budget | None, min_available: int) -> int:
    """The budget's `minAvailable`; 0 if there is no budget."""
    return min_available if budget is Budget.CLOSED else 0


def _is_left_over(found: Object, job: Object) -> bool:
    """Whether the object is an earlier job's of that name. The garbage collector has not deleted it yet, or was told
    not to (`--cascade=orphan`), in which case our label names its job. The contents prove nothing: an account has next
    to none."""
    name: str = job["metadata"]["name"]
    owners = found["metadata"].get("ownerReferences", ())
    if not owners:
        labels: dict[str, str] = found["metadata"].get("labels") or {}
        return labels.get(JOB_LABEL) == name
    former = (API_VERSION, "ElasticJob", name)
    return any((one["apiVersion"], one["kind"], one["name"]) == former for one in owners)
