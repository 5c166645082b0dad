"""What was refused of a job's pods, and when to ask again. Pure; times are seconds of the caller's clock.

What the cluster refuses now it may allow later: quotas, limits, policies, webhooks. It is asked again in growing
intervals, and of many pods with one only: the next are tried when that one was made.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from elasticjob_operator.job.outcome import Done, Retry

FIRST_SECONDS, LONGEST_SECONDS = 10.0, 160.0

Place = tuple[int, int]  # index and number


class Answer(NamedTuple):
    """To the try to make a pod. `why` it was not made, in a sentence; `taken`: another pod has its name."""

    made: bool = False
    why: str = ""
    taken: bool = False


class Refusals:
    """Of one job's pods. A name that is taken is no refusal: it is tried at each call, and told all the same."""

    def __init__(self) -> None:
        self._refused: dict[Place, str] = {}
        self._taken: dict[Place, str] = {}
        self._tries, self._again_at = 0, 0.0

    @property
    def first(self) -> tuple[int, str] | None:
        """The first worker that is told of, and why there is no pod for it."""
        told = {place: why for place, why in (self._taken | self._refused).items() if why}
        return min((place[0], why) for place, why in told.items()) if told else None

    def due(self, wanted: Iterable[Place], now: float) -> list[Place]:
        """Those of `wanted` to try now; what is not wanted is forgotten."""
        places = list(wanted)
        known = set(places)
        self._refused = {place: why for place, why in self._refused.items() if place in known}
        self._taken = {place: why for place, why in self._taken.items() if place in known}
        again = next(iter(self._refused), None) if now >= self._again_at else None
        return [place for place in places if place == again or place not in self._refused]

    def note(self, answers: Mapping[Place, Answer], now: float) -> Done | Retry:
        """What came of those that were due; returns when others are."""
        freed = False
        for place in answers:
            self._refused.pop(place, None)
            self._taken.pop(place, None)
        if any(answer.made for answer in answers.values()):
            freed, self._tries = bool(self._refused), 0
            self._refused.clear()
        refused = {place: one.why for place, one in answers.items() if not one.made and not one.taken}
        self._taken |= {place: one.why for place, one in answers.items() if one.taken}
        if refused:
            self._refused |= refused
            self._again_at = now + min(FIRST_SECONDS * 2**self._tries, LONGEST_SECONDS)
            self._tries += 1
        if freed:
            return Retry(0.0)
        waits = ([self._again_at - now] if self._refused else []) + ([FIRST_SECONDS] if self._taken else [])
        return Retry(min(waits)) if waits else Done()
