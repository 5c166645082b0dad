# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events on the ElasticJob. They are for people: a lost event is logged, never waited for or retried.

The number of events of one job and reason posted at once is limited. Those left out are summed up later, by their
number and the last of them.
"""

import asyncio
import logging
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

from elasticjob.api import API_VERSION, CAUSE_ANNOTATION
from elasticjob.kube.errors import Terminating
from elasticjob.kube.paths import EVENTS
from elasticjob.objects import Object
from elasticjob.text import printable
from elasticjob_operator.cluster.client import Kube

COMPONENT = "elasticjob-operator"
LONGEST_MESSAGE = 1024
BURST, EACH_SECONDS = 25, 10.0  # events of one reason at once, and seconds until one more is allowed

log = logging.getLogger(__name__)


@dataclass(slots=True)
class EventBudget:
    """The budget of one reason of one job. `full_at`: when the budget is unused again, on the event loop's clock."""

    full_at: float = 0.0
    left_out: int = 0
    last: Object | None = None

    def wait(self, now: float) -> float:
        """Seconds until one more event may be posted, 0 or less if it may be posted now."""
        return self.full_at - now - (BURST - 1) * EACH_SECONDS

    def use(self, now: float) -> None:
        self.full_at = max(self.full_at, now) + EACH_SECONDS


class Announcer:
    def __init__(self, kube: Kube, identity: str) -> None:
        self._kube, self._identity = kube, identity
        self._budgets: defaultdict[str, defaultdict[str, EventBudget]] = defaultdict(lambda: defaultdict(EventBudget))
        self._posting: dict[str, asyncio.Task[None]] = {}
        self._last_ns = 0

    def announce(self, job: Object, reason: str, message: str, *, warning: bool = False, cause: str = "") -> None:
        """Posts an event on `job` in the background, after those announced before. `cause`: one word, for programs."""
        event = self._event(job, reason, message, "Warning" if warning else "Normal")
        if cause:
            event["metadata"]["annotations"] = {CAUSE_ANNOTATION: cause}
        uid, loop = job["metadata"]["uid"], asyncio.get_running_loop()
        budget = self._budgets[uid][reason]
        wait = budget.wait(loop.time())
        if wait <= 0:
            budget.use(loop.time())
            self._post(uid, event)
            return
        if not budget.left_out:
            loop.call_later(wait, self._make_up, uid, budget)
        budget.left_out, budget.last = budget.left_out + 1, event

    def forget(self, uid: str) -> None:
        self._budgets.pop(uid, None)

    def _make_up(self, uid: str, budget: EventBudget) -> None:
        event, left_out = budget.last, budget.left_out
        assert event is not None
        budget.last, budget.left_out = None, 0
        budget.use(asyncio.get_running_loop().time())
        if left_out > 1:
            event["message"] = f"{left_out} such events, of which the last: {event['message']}"[:LONGEST_MESSAGE]
        self._post(uid, event)

    def _post(self, uid: str, event: Object) -> None:
        task = asyncio.create_task(self._after(self._posting.get(uid), event))
        self._posting[uid] = task
        task.add_done_callback(lambda done: self._posted(uid, done))

    def _posted(self, uid: str, done: asyncio.Task[None]) -> None:
        if self._posting.get(uid) is done:
            del self._posting[uid]

    async def _after(self, before: asyncio.Task[None] | None, event: Object) -> None:
        if before is not None:
            await asyncio.wait({before})
        try:
            await self._kube.request("POST", EVENTS.all(event["metadata"]["namespace"]), event)
        except Terminating:  # nobody can read it
            log.debug("the event %r was not posted, as its namespace is being deleted", event["message"])
        except Exception as error:
            log.warning("the event %r was not posted: %s", event["message"], str(error) or type(error).__name__)

    def _event(self, job: Object, reason: str, message: str, kind: str) -> Object:
        """The body of an event. The older lastTimestamp, by which people and tools sort, has whole seconds. The API
        server lists by name, so the names contain the exact time, and kubectl's stable sort keeps the order."""
        meta = job["metadata"]
        self._last_ns = max(time.time_ns(), self._last_ns + 1000)
        now = datetime.fromtimestamp(self._last_ns // 1000 / 1e6, UTC)
        second = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{self._last_ns:x}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": "ElasticJob",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "reason": reason,
            "message": printable(message)[:LONGEST_MESSAGE],
            "type": kind,
            "action": reason,
            "count": 1,
            "firstTimestamp": second,
            "lastTimestamp": second,
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity,
        }
