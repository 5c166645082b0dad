# SPDX-License-Identifier: Apache-2.0
"""Whether the watches go on."""

from types import SimpleNamespace
from typing import Any, cast

import kopf
from yarl import URL

from elasticjob.kube.names import user_agent
from elasticjob_operator.cluster.watch_times import SILENT_SECONDS, WatchTimes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


ALL = ("/apis/elasticjob.io/v1alpha1/elasticjobs", "/api/v1/pods", "/apis/elasticjob.io/v1alpha1/elasticworkers")


def test_a_watch_that_does_not_begin_any_more_is_named() -> None:
    clock = Clock()
    watches = WatchTimes(clock)
    watches.start()
    for _ in range(20):
        clock.now += 10
        for path in ALL:
            watches.begins(path)
    assert (watches.problem(), watches.silence()[0]) == ("", 0)
    for _ in range(10):
        clock.now += 10
        for path in (ALL[0], ALL[2]):
            watches.begins(path)
    assert "the watch of pods has not begun for 100 s" in watches.problem()
    watches.begins(ALL[1])
    assert watches.problem() == ""


def test_one_that_never_began_is_missed_from_the_start() -> None:
    clock = Clock()
    watches = WatchTimes(clock)
    watches.start()
    watches.begins(ALL[0])
    watches.begins(ALL[1])
    clock.now += SILENT_SECONDS
    assert watches.problem() == ""
    clock.now += 1
    watches.begins(ALL[0])
    watches.begins(ALL[1])
    assert "the watch of elasticworkers" in watches.problem()


def test_of_several_namespaces_each_that_was_watched_is_to_go_on() -> None:
    clock = Clock()
    watches = WatchTimes(clock)
    watches.start()
    for kind in ("elasticjobs", "pods", "elasticworkers"):
        watches.begins(f"/api/v1/namespaces/a/{kind}")
        watches.begins(f"/api/v1/namespaces/b/{kind}")
    clock.now += SILENT_SECONDS + 1
    for kind in ("elasticjobs", "pods", "elasticworkers"):
        watches.begins(f"/api/v1/namespaces/a/{kind}")
    assert "/namespaces/b/" in watches.problem()


def test_who_does_not_lead_watches_nothing() -> None:
    clock = Clock()
    watches = WatchTimes(clock)
    clock.now += 1000
    watches.begins(ALL[0])
    assert (watches.silence(), watches.problem()) == ((0.0, ""), "")


async def test_a_namespace_that_was_deleted_is_no_fault_of_the_process() -> None:
    """Its role binding has gone with it, so its watches are refused; those of the others go on."""
    clock = Clock()
    watches = WatchTimes(clock)
    watches.start()
    kinds = ("elasticjobs", "pods", "elasticworkers")
    for kind in kinds:
        for namespace in ("a", "b"):
            await answered(watches, f"/api/v1/namespaces/{namespace}/{kind}?watch=true", 200)
    for _ in range(3):
        clock.now += SILENT_SECONDS / 2
        for kind in kinds:
            await answered(watches, f"/api/v1/namespaces/a/{kind}?watch=true", 200)
            await answered(watches, f"/api/v1/namespaces/b/{kind}?watch=true", 403)
    assert watches.problem() == ""
    clock.now += SILENT_SECONDS + 1
    assert watches.problem() != ""


async def test_a_watch_of_all_namespaces_that_is_refused_is_missed() -> None:
    clock = Clock()
    watches = WatchTimes(clock)
    watches.start()
    clock.now += SILENT_SECONDS + 1
    for path in ALL:
        await answered(watches, f"{path}?watch=true", 403)
    assert watches.problem() != ""


async def answered(watches: WatchTimes, url: str, status: int) -> None:
    answer = SimpleNamespace(method="GET", url=URL(url), response=SimpleNamespace(status=status))
    await watches._answered(None, None, cast(Any, answer))


async def test_each_request_of_kopf_is_counted_by_verb_and_code() -> None:
    watches, told = WatchTimes(Clock()), list[tuple[str, int]]()
    watches.ended = lambda verb, code: told.append((verb, code))
    await answered(watches, f"{ALL[0]}?watch=true", 200)
    await answered(watches, "/apis/elasticjob.io/v1alpha1", 404)
    failure = SimpleNamespace(method="GET", url=URL(f"{ALL[0]}?watch=true"))
    await watches._failed(None, None, cast(Any, failure))
    assert told == [("watch", 200), ("get", 404), ("watch", 0)]


async def test_kopfs_requests_name_this_operator() -> None:
    session = WatchTimes().session(kopf.ConnectionInfo(server="http://api"))
    assert session.aiohttp_session.headers["User-Agent"] == user_agent("operator")
    await session.aiohttp_session.close()
