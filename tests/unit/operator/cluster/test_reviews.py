"""How long a verdict on a token is kept, and how little a stranger can make the operator ask."""

import asyncio
from typing import Any, cast

import pytest

from elasticjob.objects import Object
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.reviews import AT_ONCE, GRANTED_SECONDS, MAX_KEPT, REFUSED_SECONDS, Reviews, Verdict
from support.waiting import until


class Server:
    """Answers reviews: tokens are user names, and `allowed` may get the metrics."""

    def __init__(self) -> None:
        self.allowed = {"scraper"}
        self.asked: list[str] = []
        self.under_way = self.most_under_way = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def request(self, method: str, path: str, body: Any, *, seconds: float) -> Object:
        self.asked.append(path.rpartition("/")[2])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.hold.wait()
        self.under_way -= 1
        spec = body["spec"]
        if "token" in spec:
            known = not spec["token"].startswith("nobody")
            return {"status": {"authenticated": known, "user": {"username": spec["token"]}} if known else {}}
        return {"status": {"allowed": spec["user"] in self.allowed}}


@pytest.fixture
def server() -> Server:
    return Server()


def reviews_of(server: Server, now: list[float]) -> Reviews:
    return Reviews(cast("Kube", server), lambda: now[0])


async def test_a_verdict_is_kept_for_a_while(server: Server) -> None:
    now = [100.0]
    judge = reviews_of(server, now).judge
    assert [await judge("scraper") for _ in range(3)] == [Verdict.GRANTED] * 3
    assert server.asked == ["tokenreviews", "subjectaccessreviews"]
    server.allowed.clear()
    now[0] += GRANTED_SECONDS
    assert await judge("scraper") is Verdict.FORBIDDEN
    server.allowed.add("scraper")
    assert await judge("scraper") is Verdict.FORBIDDEN
    now[0] += REFUSED_SECONDS
    assert await judge("scraper") is Verdict.GRANTED
    assert await judge("nobody") is Verdict.UNKNOWN


async def test_strangers_displace_no_scraper_and_are_forgotten(server: Server) -> None:
    judge = (kept := reviews_of(server, [100.0])).judge
    await judge("scraper")
    for number in range(MAX_KEPT + 10):
        await judge(f"nobody {number}")
    assert len(kept._kept) == MAX_KEPT
    server.asked.clear()
    assert await judge("scraper") is Verdict.GRANTED
    assert server.asked == []


async def test_many_who_ask_at_once_cost_few_requests(server: Server) -> None:
    judge = reviews_of(server, [100.0]).judge
    server.hold.clear()
    asking = [asyncio.create_task(judge(token)) for token in ["scraper"] * 10 + [f"nobody {n}" for n in range(20)]]
    await until(lambda: server.under_way == AT_ONCE)
    server.hold.set()
    assert [await one for one in asking] == [Verdict.GRANTED] * 10 + [Verdict.UNKNOWN] * 20
    assert server.most_under_way == AT_ONCE
    assert server.asked.count("tokenreviews") < 10 + 20


async def test_what_could_not_be_asked_is_not_kept(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = reviews_of(server, [100.0]).judge

    async def refuse(*_: object, **__: object) -> Object:
        raise TimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(server, "request", refuse)
        with pytest.raises(TimeoutError):
            await judge("scraper")
    assert await judge("scraper") is Verdict.GRANTED
