# SPDX-License-Identifier: Apache-2.0
"""How long a verdict on a token is kept, and how little a stranger can make the operator ask."""

import asyncio

import pytest

from elasticjob.kube.errors import Unavailable
from elasticjob.objects import Object
from elasticjob_operator.cluster.reviews import (
    AT_ONCE,
    GRANTED_SECONDS,
    MAX_KEPT,
    REFUSED_SECONDS,
    Reviews,
    TokenVerdict,
)
from support.recording_server import RecordingServer
from support.waiting import until


class Reviewing(RecordingServer):
    """Tokens are user names, and `allowed` may get the metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = {"scraper"}
        self.reviews = {"tokenreviews": self._authenticate, "subjectaccessreviews": self._authorize}

    def _authenticate(self, spec: Object) -> Object:
        known = not spec["token"].startswith("nobody")
        return {"authenticated": known, "user": {"username": spec["token"]}} if known else {}

    def _authorize(self, spec: Object) -> Object:
        return {"allowed": spec["user"] in self.allowed}


@pytest.fixture
async def server() -> Reviewing:
    return Reviewing()


def reviews_of(server: Reviewing, now: list[float]) -> Reviews:
    return Reviews(server.client(), lambda: now[0])


async def test_a_verdict_is_kept_for_a_while(server: Reviewing) -> None:
    now = [100.0]
    judge = reviews_of(server, now).judge
    assert [await judge("scraper") for _ in range(3)] == [TokenVerdict.GRANTED] * 3
    assert server.asked == ["POST tokenreviews", "POST subjectaccessreviews"]
    server.allowed.clear()
    now[0] += GRANTED_SECONDS
    assert await judge("scraper") is TokenVerdict.FORBIDDEN
    server.allowed.add("scraper")
    assert await judge("scraper") is TokenVerdict.FORBIDDEN
    now[0] += REFUSED_SECONDS
    assert await judge("scraper") is TokenVerdict.GRANTED
    assert await judge("nobody") is TokenVerdict.UNKNOWN


async def test_strangers_displace_no_scraper_and_are_forgotten(server: Reviewing) -> None:
    judge = (kept := reviews_of(server, [100.0])).judge
    await judge("scraper")
    for number in range(MAX_KEPT + 10):
        await judge(f"nobody {number}")
    assert len(kept._kept) == MAX_KEPT
    server.calls.clear()
    assert await judge("scraper") is TokenVerdict.GRANTED
    assert server.asked == []


async def test_many_who_ask_at_once_cost_few_requests(server: Reviewing) -> None:
    judge = reviews_of(server, [100.0]).judge
    server.network.open.clear()
    asking = [asyncio.create_task(judge(token)) for token in ["scraper"] * 10 + [f"nobody {n}" for n in range(20)]]
    await until(lambda: server.network.under_way == AT_ONCE)
    server.network.open.set()
    assert [await one for one in asking] == [TokenVerdict.GRANTED] * 10 + [TokenVerdict.UNKNOWN] * 20
    assert server.network.most_under_way == AT_ONCE
    assert server.asked.count("POST tokenreviews") < 10 + 20


async def test_what_could_not_be_asked_is_not_kept(server: Reviewing) -> None:
    judge = reviews_of(server, [100.0]).judge
    server.network.refusing = True
    with pytest.raises(Unavailable):
        await judge("scraper")
    server.network.refusing = False
    assert await judge("scraper") is TokenVerdict.GRANTED
