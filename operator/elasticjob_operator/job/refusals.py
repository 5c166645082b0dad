# SPDX-License-Identifier: Apache-2.0
"""Which of a job's pods were refused, and when to try again. Pure; times are seconds of the caller's clock.

The cluster may allow later what it refuses now, because quotas, limits, policies and webhooks change. Refused pods are
retried in growing intervals, one pod at a time: the others are tried once that one was made. A pod takes its part of a
ResourceQuota until it has ended or is gone, so the end of a pod causes a retry at once.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from elasticjob.kube.retry import RetryPolicy
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.job.outcome import Done, Retry
from elasticjob_operator.job.refusal_messages import PodRefusal

RETRY = RetryPolicy(10.0, 160.0)
# doublings below the first pause: a quota is recounted a moment after a pod has gone
FREED_TRIES = -3


class Answer(NamedTuple):
    """The result of an attempt to make a pod. `refusal`: why it was not made; None if that need not be reported.
    `taken`: another pod has its name."""

    made: bool = False
    refusal: PodRefusal | None = None
    taken: bool = False


class Refusals:
    """The refusals of one job's pods. A taken name is not a refusal: it is tried at each call, but announced like
    one."""

    def __init__(self) -> None:
        self._refused: dict[PodKey, PodRefusal | None] = {}
        self._taken: dict[PodKey, PodRefusal | None] = {}
        self._tries, self._again_at = 0, 0.0
        self._there: frozenset[str] = frozenset()

    @property
    def first(self) -> tuple[int, PodRefusal] | None:
        """The lowest index of a worker without a pod to announce, and the reason."""
        known = self._taken | self._refused
        return min(((pod_key[0], why) for pod_key, why in known.items() if why), default=None)

    def due(self, wanted: Iterable[PodKey], now: float, there: frozenset[str] = frozenset()) -> list[PodKey]:
        """The pods among `wanted` to try now. The others are forgotten. `there`: the names of the pods that take
        room."""
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
        """Records the results of the pods that were due. Returns when others are due."""
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
