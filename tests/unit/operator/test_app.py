# SPDX-License-Identifier: Apache-2.0
"""The operator's process: it stands by, waits for the CRDs, and goes on after a lost Lease."""

import asyncio
import gc
import os
import signal
import time
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from elasticjob_operator import app, loop_watch, metrics
from elasticjob_operator.cluster import leader
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.options import parse
from support.operator_objects import job
from support.ports import free_port
from support.recording_server import RecordingServer
from support.waiting import until, within

LEASE = "leases/elasticjob-operator"


async def test_who_has_lost_the_lease_stands_by_again(leases: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "AGAIN_SECONDS", 0.01)
    terms: list[tuple[Leadership, asyncio.Task[None]]] = []

    async def work(_: object, __: object, led: Leadership, *___: object) -> None:
        this = asyncio.current_task()
        assert this is not None
        terms.append((led, this))
        await asyncio.Event().wait()

    async def connect() -> Kube:
        return leases.client()

    monkeypatch.setattr(app, "_work", work)
    monkeypatch.setattr(Kube, "connect", connect)
    options = parse(["--sidecar-image=x", "--lease-namespace=ops", "--health-port=18399"], {"POD_NAME": "one"})
    running = asyncio.create_task(app.run(options))
    await until(lambda: len(terms) == 1)
    leases.network.open.clear()
    (first, working), *_ = terms
    await until(working.cancelled)
    assert not running.done()
    leases.network.open.set()
    await until(lambda: len(terms) == 2)
    assert [led.term for led, _ in terms] == [1, 2]
    assert terms[1][0] is not first
    running.cancel()
    assert await running == 0
    assert leases.objects["leases/elasticjob-operator"]["spec"]["holderIdentity"] == ""


async def test_crds_that_come_late_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "CRDS_SECONDS", 0.05)
    api = RecordingServer()
    crds = [api.served.popitem() for _ in ("elasticworkers", "elasticjobs")]
    waiting = asyncio.create_task(app.until_served(api.client()))
    await until(lambda: caplog.messages)
    assert caplog.messages[0] == "the API server does not serve elasticjobs and elasticworkers: waiting for the CRDs"
    api.served.update([crds.pop()])
    await until(lambda: "the API server does not serve elasticworkers: waiting for the CRDs" in caplog.messages)
    api.served.update(crds)
    async with within("the CRDs to be served"):
        await waiting


@asynccontextmanager
async def operator(
    api: RecordingServer, monkeypatch: pytest.MonkeyPatch, url: str = ""
) -> AsyncIterator["asyncio.Task[int]"]:
    """The whole of it, with kopf, beside one job; over connections if there is a `url`."""

    async def connect() -> Kube:
        return Kube.of(Configuration(host=url)) if url else api.client()

    quick = leader.LeaseTimes(renew=0.01, request=5.0, lost_after=20.0, duration=25.0)
    monkeypatch.setattr(leader, "times_of", lambda _: quick)
    monkeypatch.setattr(Kube, "connect", connect)
    api.objects["elasticjobs/digits"] = job()
    options = parse(["--sidecar-image=x", "--lease-namespace=ml", f"--health-port={free_port()}"], {"POD_NAME": "one"})
    running = asyncio.create_task(app.run(options))
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.wait({running})


def awaited() -> float:
    return next(metric.samples[0].value for metric in metrics.JOBS_AWAITING_STEP.collect())


def are_free(made: list[weakref.ref[Any]]) -> bool:
    gc.collect()
    return all(one() is None for one in made)


def take_lease(api: RecordingServer, holder: str) -> None:
    with api.objects.edited(LEASE) as lease:
        lease["spec"] |= {"holderIdentity": holder, "leaseDurationSeconds": leader.LONGEST_SECONDS}


async def test_nothing_of_a_term_outlives_it(api: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cache holds all objects: a process that leads again would have them twice."""
    monkeypatch.setattr(app, "AGAIN_SECONDS", 0.2)
    made: list[weakref.ref[Any]] = []

    def noted(kind: type) -> Any:
        def make(*given: Any, **more: Any) -> Any:
            made.append(weakref.ref(one := kind(*given, **more)))
            return one

        return make

    kinds = ("Cache", "Reconciler", "WorkQueue", "FirstSteps")
    for kind in kinds:
        monkeypatch.setattr(app, kind, noted(getattr(app, kind)))
    collected: list[int] = []
    monkeypatch.setattr(app, "gc", SimpleNamespace(collect=lambda: collected.append(gc.collect())))
    # over connections, as asyncio keeps the context in which one was opened
    async with api.over_http() as url, operator(api, monkeypatch, url):
        for term in (1, 2, 3):
            await until(lambda term=term: len(made) == term * len(kinds), f"term {term}")
            await until(lambda: list(metrics.JOBS.known()) and awaited() == 0, "the job's first step")
            take_lease(api, "two")
            await until(lambda: collected, f"the end of term {term}")
            assert are_free(made)
            collected.clear()
            take_lease(api, "")


async def test_a_signal_while_a_lost_term_ends_ends_the_process(
    api: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf takes signals for itself; the pod would hang in Terminating until it is killed."""

    class Stopping(app.WorkQueue[Any]):
        async def stop(self) -> None:
            if not self._stopped:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.05)  # the event loop has heard of it
            await super().stop()

    monkeypatch.setattr(app, "WorkQueue", Stopping)
    async with operator(api, monkeypatch) as running:
        await until(lambda: list(metrics.JOBS.known()), "the job")
        take_lease(api, "two")
        async with within("the process to end"):
            assert await asyncio.shield(running) == 0
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "two"


async def test_the_lease_has_connections_of_its_own(api: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a renewal waits behind a take-over's hundreds of requests."""
    asked: defaultdict[int, set[bool]] = defaultdict(set)
    request = Kube.request

    async def noted(self: Kube, method: str, path: str, *given: Any, **more: Any) -> Any:
        asked[id(self)].add("/leases" in path)
        return await request(self, method, path, *given, **more)

    monkeypatch.setattr(Kube, "request", noted)
    async with operator(api, monkeypatch):
        await until(lambda: list(metrics.JOBS.known()) and awaited() == 0, "the job's first step")
    assert sorted(asked.values(), key=list) == [{False}, {True}]


async def test_an_event_loop_that_stands_still_is_noticed() -> None:
    metrics.LOOP_STALL.set(0)
    looking = asyncio.create_task(loop_watch.watch_loop(metrics.LongestStall().note))
    await asyncio.sleep(2 * loop_watch.LOOK_SECONDS)
    time.sleep(5 * loop_watch.LOOK_SECONDS)  # noqa: ASYNC251 - that is the fault
    await until(lambda: metrics.LOOP_STALL._value.get() >= 3 * loop_watch.LOOK_SECONDS)
    looking.cancel()
