# SPDX-License-Identifier: Apache-2.0
"""What was refused of a job's pods, and when to ask again. Pure; times are seconds of the caller's clock.

The cluster may allow later what it refuses now: quotas, limits, policies, webhooks change. It is asked again in growing
intervals, and for one of many pods only: the others are tried when that one was made. A pod takes its part of a
ResourceQuota until it has ended or is gone, so once one has, it is asked again at once.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from elasticjob.kube.retry import RetryPolicy
from elasticjob.reading.waits import Reason
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.job.outcome import Done, Retry

RETRY = RetryPolicy(10.0, 160.0)
# by so many doublings sooner than the first time, as what has become free is counted a moment after a pod is gone
FREED_TRIES = -3
# how the API server's authorization refuses, and its quotas; it has no other word for the two than 403
NO_RIGHT = re.compile(r'User "[^"]+" cannot \w+ resource "')
QUOTA = re.compile(r"(?:exceeded|failed) quota: ([^,:\s]+)")


class Refusal(NamedTuple):
    """Why no pod is made: in a sentence, in a word, and the object at fault as Kind/name, where that is known."""

    why: str
    reason: Reason = Reason.ADMISSION_REFUSED
    object: str = ""


def refused(why: str) -> Refusal:
    """What the API server has refused, by what it says."""
    if NO_RIGHT.search(why):
        return Refusal(why, Reason.OPERATOR_WITHOUT_RIGHTS)
    if found := QUOTA.search(why):
        return Refusal(why, Reason.QUOTA_EXCEEDED, f"ResourceQuota/{found[1]}")
    return Refusal(why)


def without_access(why: str, object: str) -> Refusal:
    """That the workers cannot be given their access, of which `object` is a part."""
    by = refused(why)
    return by if by.reason is Reason.OPERATOR_WITHOUT_RIGHTS else Refusal(why, Reason.ACCESS_REFUSED, object)


class Answer(NamedTuple):
    """What came of a try to make a pod. `refusal`: why it was not made; None where that need not be said. `taken`:
    another pod has its name."""

    made: bool = False
    refusal: Refusal | None = None
    taken: bool = False


class Refusals:
    """Those of one job's pods. A name that is taken is no refusal: it is tried at each call, but announced like one."""

    def __init__(self) -> None:
        self._refused: dict[PodKey, Refusal | None] = {}
        self._taken: dict[PodKey, Refusal | None] = {}
        self._tries, self._again_at = 0, 0.0
        self._there: frozenset[str] = frozenset()

    @property
    def first(self) -> tuple[int, Refusal] | None:
        """The first worker to be announced, and why there is no pod for it."""
        known = self._taken | self._refused
        return min(((pod_key[0], why) for pod_key, why in known.items() if why), default=None)

    def due(self, wanted: Iterable[PodKey], now: float, there: frozenset[str] = frozenset()) -> list[PodKey]:
        """Those of `wanted` to try now; what is not wanted is forgotten. `there`: the pods that take room."""
        if self._there - there and self._refused:
            self._tries, self._again_at = FREED_TRIES, now
        self._there = there
        pod_keys = list(wanted)
        known = set(pod_keys)
        self._refused = {pod_key: why for pod_key, why in self._refused.items() if pod_key in known}
        self._taken = {pod_key: why for pod_key, why in self._taken.items() if pod_key in known}
        again = next(iter(self._refused), None) if now >= self._again_at else None
        return [pod_key for pod_key in pod_keys if pod_key == again or pod_key not in self._refused]

    def note(self, answers: Mapping[PodKey, Answer], now: float) -> Done | Retry:
        """What came of those that were due; returns when others are."""
        freed = False
        for pod_key in answers:
            self._refused.pop(pod_key, None)
            self._taken.pop(pod_key, None)
        if any(answer.made for answer in answers.values()):
            freed, self._tries = bool(self._refused), 0
            self._refused.clear()
        refused = {pod_key: one.refusal for pod_key, one in answers.items() if not one.made and not one.taken}
        self._taken |= {pod_key: one.refusal for pod_key, one in answers.items() if one.taken}
        if refused:
            self._refused |= refused
            self._again_at = now + RETRY.pause(self._tries)
            self._tries += 1
        if freed:
            return Retry(0.0)
        waits = ([self._again_at - now] if self._refused else []) + ([RETRY.first] if self._taken else [])
        return Retry(min(waits)) if waits else Done()
