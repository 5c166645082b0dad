# SPDX-License-Identifier: Apache-2.0
"""Listings into the cache, and watches that go on from them."""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kopf._cogs.clients import errors, watching

from elasticjob.kube.errors import Forbidden
from elasticjob.reading import Node, Pod, Record
from elasticjob_operator.cluster import reflector as module
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.cluster.reflector import Reflector
from elasticjob_operator.cluster.watch_times import WatchTimes
from support.operator_objects import Object, job, pod, record

KEY = Key("ml", "digits")


class Lists:
    """What the API server has, at `version`; `denied` namespaces it does not show. `asked`: how often each kind was."""

    def __init__(self) -> None:
        self.version = "9"
        self.there: dict[str, list[Object]] = {"jobs": [job()], "pods": [pod(0)], "workers": [record(0)], "nodes": []}
        self.asked: defaultdict[str, int] = defaultdict(int)
        self.denied: set[str | None] = set()

    async def _list(self, kind: str, read: Any, namespace: str | None) -> Listing[Any]:
        self.asked[kind] += 1
        if namespace in self.denied:
            raise Forbidden(f"{kind} is forbidden", 403)
        return Listing([read(one) for one in self.there[kind]], self.version)

    async def jobs(self, namespace: str | None) -> Listing[Object]:
        return await self._list("jobs", dict, namespace)

    async def pods(self, namespace: str | None, _: str) -> Listing[Pod]:
        return await self._list("pods", Pod.read, namespace)

    async def workers(self, namespace: str | None, _: str) -> Listing[Record]:
        return await self._list("workers", Record.read, namespace)

    async def nodes(self) -> Listing[Node]:
        return await self._list("nodes", Node.read, None)


def reflector_of(lists: Lists, *namespaces: str, nodes: bool = True) -> tuple[Reflector, Cache]:
    cache = Cache()
    return Reflector(cast(Any, lists), cache, namespaces, nodes=nodes), cache


async def test_each_kind_is_listed_once_though_many_wait_and_watches_begin_there() -> None:
    lists = Lists()
    reflector, cache = reflector_of(lists)
    await asyncio.gather(*(reflector.list_all() for _ in range(3)))
    assert await reflector.begin(("pods", None)) == "9"
    assert set(lists.asked.values()) == {1}
    assert set(cache.view(KEY).pods) == set(cache.view(KEY).workers) == {"digits-0-0"}


async def test_a_watch_that_begins_again_begins_with_a_listing_and_what_has_vanished_is_news() -> None:
    lists, woken = Lists(), list[Key]()
    reflector, cache = reflector_of(lists)
    reflector.wake = lambda key, _: woken.append(key)
    await reflector.begin(("elasticjobs", None))
    await reflector.begin(("pods", None))
    woken.clear()
    lists.there["pods"], lists.version = [], "12"
    assert await reflector.begin(("pods", None)) == "12"
    assert (woken, cache.view(KEY).pods) == ([KEY], {})


async def test_who_was_there_before_is_told_from_who_comes() -> None:
    reflector, cache = reflector_of(Lists())
    await reflector.begin(("elasticjobs", None))
    cache.note_job(job() | {"metadata": job()["metadata"] | {"name": "newcomer", "uid": "another"}})
    assert reflector.listed_jobs == {KEY}


async def test_a_namespace_that_is_not_open_holds_up_no_other() -> None:
    lists = Lists()
    lists.denied = {"gone"}
    reflector, cache = reflector_of(lists, "ml", "gone", nodes=False)
    await reflector.list_all()
    assert cache.view(KEY).job is not None
    with pytest.raises(Forbidden):
        await reflector.begin(("pods", "gone"))


async def test_a_refusal_is_said_once_until_it_has_passed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "GONE_SECONDS", 0.0)
    lists, watches = Lists(), Watches(monkeypatch)
    reflector, _ = reflector_of(lists)
    for denied, said in ((True, 1), (True, 1), (False, 1), (True, 2)):
        lists.denied = {None} if denied else set()
        await watches.events(lists, reflector)
        assert caplog.text.count("pods in all namespaces are not watched: pods is forbidden") == said


async def test_what_is_not_open_at_all_is_an_error() -> None:
    lists = Lists()
    lists.denied = {None}
    with pytest.raises(Forbidden):
        await reflector_of(lists)[0].list_all()


class Watches:
    """In the place of kopf's `watch_objs`: each call gives the next of `answers`, and is noted by where it began. The
    timer of its silence is due when it ends with an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[Any]) -> None:
        self.answers, self.since = list(answers), list[str]()
        monkeypatch.setattr(watching, "watch_objs", self._watch)
        monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)

    async def _watch(self, *, since: str, **_: Any) -> AsyncIterator[Any]:
        self.since.append(since)
        async with asyncio.timeout(None) as timer:
            for event in self.answers.pop(0) if self.answers else [ended(410)]:
                if isinstance(event, Exception):
                    raise event
                if event["type"] == "ERROR":
                    timer.reschedule(asyncio.get_running_loop().time())
                yield event

    async def events(self, lists: Lists, reflector: Reflector | None = None, kind: str = "pods") -> list[Any]:
        """Until kopf's generator ends."""
        reflector = reflector or reflector_of(lists)[0]
        settings = SimpleNamespace(reflector=reflector, watches=WatchTimes())
        waiter = asyncio.get_running_loop().create_future()
        resource = SimpleNamespace(plural=kind)
        made = module._continuous_watch(
            settings=cast(Any, settings), resource=resource, namespace=None, operator_pause_waiter=waiter
        )
        return [event async for event in made]


def changed(version: int) -> Object:
    return {"type": "MODIFIED", "object": pod(0, version=version)}


def ended(code: int) -> Object:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "etcd is compacted"}}


async def test_a_watch_goes_on_from_the_last_version_that_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    watches = Watches(monkeypatch, [changed(11), changed(12)], [{"type": "STRANGE", "object": {}}], [changed(13)])
    events = await watches.events(Lists())
    assert events[0] is watching.Bookmark.LISTED
    assert [event["object"]["metadata"]["resourceVersion"] for event in events[1:]] == ["11", "12", "13"]
    assert watches.since == ["9", "12", "12", "13"]


async def test_a_change_of_a_known_record_makes_no_work_for_kopf(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, woken = Lists(), list[tuple[Key, float]]()
    said: list[Object] = [{"heartbeat": 5}, {"heartbeat": 6}, {"heartbeat": 6, "rank": 1}, {"heartbeat": 6, "ack": 1}]
    forms = [record(0) | {"status": status} for status in said]
    forms.append(record(0, request={"type": "Join", "after": 0, "cause": "Started"}) | {"status": said[-1]})
    forms[-1]["metadata"]["generation"] = 2
    for version, form in enumerate(forms, 11):
        form["metadata"] |= {"resourceVersion": str(version)}
    lists.there["workers"] = [record(0) | {"status": {"heartbeat": 4}}]
    unknown: Object = {"type": "MODIFIED", "object": record(1)}
    unknown["object"]["metadata"] |= {"resourceVersion": "16"}
    watches = Watches(monkeypatch, [*({"type": "MODIFIED", "object": one} for one in forms), unknown])
    reflector, cache = reflector_of(lists)
    reflector.wake = lambda key, seconds: woken.append((key, seconds))
    cache.view(KEY).awaited = 2
    assert await watches.events(lists, reflector, "elasticworkers") == [watching.Bookmark.LISTED, unknown]
    assert cache.view(KEY).workers["digits-0-0"].version == 15
    assert woken == [(KEY, 0.0), (KEY, 1.0), (KEY, 1.0), (KEY, 1.0), (KEY, 0.0), (KEY, 0.1)]
    assert watches.since == ["9", "16"], "the next watch begins after them"


async def test_progress_that_the_operator_itself_has_shown_makes_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, woken = Lists(), list[tuple[Key, float]]()
    forms = [job() | {"status": status} for status in ({"progress": {"step": 7}}, {"restarts": 1})]
    for form, version in zip(forms, ("11", "12"), strict=True):
        form["metadata"] |= {"resourceVersion": version}
    watches = Watches(monkeypatch, [{"type": "MODIFIED", "object": one} for one in forms])
    reflector, cache = reflector_of(lists)
    reflector.wake = lambda key, seconds: woken.append((key, seconds))
    events = await watches.events(lists, reflector, "elasticjobs")
    assert [event["object"] for event in events[1:]] == forms[1:]
    assert woken == [(KEY, 0.0)], "by the listing"
    assert cache.view(KEY).job == forms[0], "kopf's handler notes the other"
    assert watches.since == ["9", "12"], "the next watch begins after them"


@pytest.mark.parametrize("code", [410, 500, 504])
async def test_no_error_of_a_watch_ends_the_operator(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = errors.APIError({"code": code, "message": "etcd is compacted", "kind": "Status"}, status=code, headers={})
    for event in (ended(code), refused):
        caplog.clear()
        events = await Watches(monkeypatch, [changed(11), event]).events(Lists())
        assert len(events) == 2
        assert ("etcd is compacted" in caplog.text) is (code != 410), "that is no news"


async def test_the_timer_of_a_watch_that_has_ended_ends_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that stood still: the next watch was cancelled, and no other began."""
    await Watches(monkeypatch).events(Lists())
    await asyncio.sleep(0.01)


def test_kopf_has_the_generator_in_whose_place_ours_is() -> None:
    """Its events are asked for by that name, with these arguments and no others."""
    module.install()
    source = inspect.getsource(watching.infinite_watch)
    assert "stream = continuous_watch(" in source
    ours = inspect.signature(module._continuous_watch).parameters
    assert set(ours) == {"settings", "resource", "namespace", "operator_pause_waiter"}
    assert all(f"{name}={name}," in source for name in ours)
    assert watching.continuous_watch is module._continuous_watch
    assert set(inspect.signature(watching.watch_objs).parameters) == {*ours, "since"}
