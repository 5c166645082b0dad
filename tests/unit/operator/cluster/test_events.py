# SPDX-License-Identifier: Apache-2.0
"""Events: their order, and how many of them there are. In virtual time."""

import asyncio
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from elasticjob_operator.cluster.events import BURST, EACH_SECONDS, Announcer
from support.operator_objects import Object, job

pytestmark = pytest.mark.looptime


class Events:
    """An API server that takes events, each `slow[n]` seconds long."""

    def __init__(self, *slow: float) -> None:
        self.bodies: list[Object] = []
        self._slow = list(slow)

    async def request(self, method: str, path: str, body: Object) -> None:
        assert (method, path) == ("POST", "/api/v1/namespaces/ml/events")
        await asyncio.sleep(self._slow.pop(0) if self._slow else 0)
        self.bodies.append(body)

    @property
    def messages(self) -> list[str]:
        return [body["message"] for body in self.bodies]


def announcer(events: Events) -> Announcer:
    made: Any = events
    return Announcer(made, "operator-0")


def another_job() -> Object:
    body = job()
    body["metadata"] |= {"name": "other", "uid": "other"}
    return body


async def test_they_are_posted_in_the_order_in_which_they_were_told() -> None:
    events = Events(5.0)
    announcements = announcer(events)
    for message in ("broken", "formed", "complete"):
        announcements.announce(job(), message, message)
    await asyncio.sleep(10)
    assert events.messages == ["broken", "formed", "complete"]


async def test_why_is_a_word_for_programs_where_there_is_one() -> None:
    events = Events()
    announcements = announcer(events)
    announcements.announce(job(), "RoundFormed", "round 1 formed", cause="Scaled")
    announcements.announce(job(), "TemplateInvalid", "name one")
    await asyncio.sleep(1)
    said = [body["metadata"].get("annotations") for body in events.bodies]
    assert said == [{"elasticjob.io/cause": "Scaled"}, None]


async def test_one_job_does_not_wait_for_anothers() -> None:
    events = Events(60.0)
    announcements = announcer(events)
    announcements.announce(job(), "Slow", "slow")
    await asyncio.sleep(0)
    announcements.announce(another_job(), "Fast", "fast")
    await asyncio.sleep(10)
    assert events.messages == ["fast"]


async def test_kubectl_can_sort_those_of_one_moment() -> None:
    events = Events()
    announcements = announcer(events)
    for number in range(5):
        announcements.announce(job(), f"Reason{number}", "at once")
    await asyncio.sleep(1)
    times = [datetime.fromisoformat(body["eventTime"]) for body in events.bodies]
    names = [body["metadata"]["name"] for body in events.bodies]
    assert all(one < other for one, other in pairwise(times))
    assert names == sorted(names)
    assert len({len(name) for name in names}) == 1
    for body, time in zip(events.bodies, times, strict=True):
        assert [datetime.fromisoformat(body[name]) for name in ("firstTimestamp", "lastTimestamp")] == [
            time.replace(microsecond=0)
        ] * 2
        assert body["count"] == 1


async def test_a_flood_is_cut_and_its_rest_counted() -> None:
    events = Events()
    announcements = announcer(events)
    for number in range(383):
        announcements.announce(job(), "WorkerLost", f"worker {number} lost", warning=True)
    await asyncio.sleep(1)
    assert events.messages == [f"worker {number} lost" for number in range(BURST)]
    await asyncio.sleep(EACH_SECONDS)
    assert events.messages[BURST:] == [f"{383 - BURST} such events, of which the last: worker 382 lost"]
    assert {body["type"] for body in events.bodies} == {"Warning"}


async def test_a_flood_drowns_no_other_reason_and_no_other_job() -> None:
    events = Events()
    announcements = announcer(events)
    for _ in range(100):
        announcements.announce(job(), "WorkerFinished", "worker finished")
    announcements.announce(job(), "Complete", "all workers finished")
    announcements.announce(another_job(), "WorkerFinished", "the other's")
    await asyncio.sleep(1)
    assert "all workers finished" in events.messages
    assert "the other's" in events.messages


async def test_one_that_came_too_early_is_only_late() -> None:
    events = Events()
    announcements = announcer(events)
    for number in range(BURST + 1):
        announcements.announce(job(), "RoundFormed", f"round {number}")
    await asyncio.sleep(EACH_SECONDS + 1)
    assert events.messages == [f"round {number}" for number in range(BURST + 1)]


async def test_a_steady_flow_is_thinned_to_its_pace() -> None:
    events = Events()
    announcements = announcer(events)
    for number in range(3600):
        announcements.announce(job(), "WorkerLost", f"worker {number}")
        await asyncio.sleep(1)
    assert len(events.bodies) <= BURST + 3600 / EACH_SECONDS
    quiet = 2 * BURST * EACH_SECONDS
    await asyncio.sleep(quiet)
    events.bodies.clear()
    for number in range(BURST):
        announcements.announce(job(), "WorkerLost", f"later {number}")
    await asyncio.sleep(1)
    assert len(events.bodies) == BURST
