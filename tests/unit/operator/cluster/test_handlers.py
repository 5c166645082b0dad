# SPDX-License-Identifier: Apache-2.0
"""kopf as it is used here: its settings, its watches, its end. In real, short seconds."""

import asyncio
import threading
from collections import Counter
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest

from elasticjob_operator.cluster import handlers
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.cluster.reflector import KopfSettings, Reflector, install
from elasticjob_operator.cluster.watch_times import WatchTimes
from elasticjob_operator.cluster.workqueue import WorkQueue
from elasticjob_operator.job.debounce import JOINS_SECONDS
from support.operator_objects import record
from support.recording_server import RecordingServer
from support.waiting import until


class Nothing:
    """A cluster in which there is nothing."""

    async def nodes(self, *_: Any) -> Listing[Any]:
        return Listing([], "7")

    jobs = pods = workers = nodes


def settings_of(watches: WatchTimes | None = None) -> KopfSettings:
    return handlers.settings(Reflector(cast(Any, Nothing()), Cache()), watches or WatchTimes())


def test_kopf_copies_no_object_to_find_changes() -> None:
    class Uncopied(dict[str, Any]):
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("copied")

    storage = settings_of().persistence.diffbase_storage
    body = kopf.Body({"metadata": Uncopied(), "spec": Uncopied()})
    assert storage.build(body=body, extra_fields=[("spec",)]) == {}
    assert storage.fetch(body=body) is None


def test_no_refusal_ends_a_watch() -> None:
    """A namespace that vanished is refused, and kopf would never again watch one that failed for good."""
    backoffs = settings_of().networking.error_backoffs
    for _ in range(2):
        found = list(islice(backoffs, 10_000))
        assert (len(found), max(found)) == (10_000, 5)


class SeenWatches(WatchTimes):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def begins(self, path: str) -> None:
        self.seen.add(path)
        super().begins(path)


def watches_of(api: RecordingServer) -> Counter[str]:
    """How many each path had."""
    return Counter(call.path for call in api.calls if "watch" in call.query)


async def test_a_watch_that_falls_silent_is_opened_again(api: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "SILENT_SECONDS", 0.2)
    registry = kopf.OperatorRegistry()

    async def work(_: object) -> None: ...

    install()
    watches = SeenWatches()
    watches.start()
    handlers.register(registry, Cache(), WorkQueue(work), watches, nodes=True)
    stop = threading.Event()
    options = {"settings": settings_of(watches), "standalone": True, "clusterwide": True, "stop_flag": stop}
    # in a loop of its own: at its end kopf waits for all tasks of the loop
    watching = asyncio.create_task(asyncio.to_thread(kopf.run, registry=registry, **options))
    try:
        await until(lambda: len(found := watches_of(api)) == 4 and min(found.values()) >= 2)
    finally:
        stop.set()
        await watching
    assert {call.query["timeoutSeconds"] for call in api.calls if "watch" in call.query} == {"10"}
    assert watches.seen == set(watches_of(api))  # by which the process's health is judged


async def test_kopf_ends_and_begins_again_in_one_process(api: RecordingServer) -> None:
    async def work(_: object) -> None: ...

    install()
    before = asyncio.all_tasks()
    for _ in range(2):
        registry, settings = kopf.OperatorRegistry(), settings_of()
        assert settings.process.ultimate_exiting_timeout is None  # or kopf would kill this process, too late for pytest
        handlers.register(registry, Cache(), WorkQueue(work), WatchTimes(), nodes=True)
        watching = asyncio.create_task(
            kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True)
        )
        await until(lambda: len(watches_of(api)) == 4)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        ours = {task.get_name() for task in asyncio.all_tasks() - before if "RequestHandler" not in str(task)}
        assert ours == set()
        api.calls.clear()


async def test_a_join_that_kopf_hands_on_is_as_urgent_as_one_that_the_watch_takes() -> None:
    registry, cache, woken = kopf.OperatorRegistry(), Cache(), list[tuple[Key, float]]()
    queue = SimpleNamespace(add=lambda key, seconds: woken.append((key, seconds)))
    handlers.register(registry, cache, cast(Any, queue), WatchTimes(), nodes=False)
    worker_event = {one.selector.any_name: one.fn for one in registry._watching.get_all_handlers()}["elasticworkers"]
    for generation in (1, 2, 3):
        body = record(0, request={"type": "Join", "after": generation, "cause": "Started"})
        body["metadata"] |= {"generation": generation, "resourceVersion": str(generation)}
        await worker_event(event={"type": "ADDED", "object": body})
        cache.view(Key("ml", "digits")).awaited += 2
    assert [seconds for _, seconds in woken] == [0.0, JOINS_SECONDS, JOINS_SECONDS]
