"""The operator's process: it stands by, waits for the CRDs, and goes on after a lost Lease."""

import asyncio

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from elasticjob_operator import app
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.options import parse
from support.operator_fakes import Leases, ListingServer
from support.waiting import until, within


async def test_who_has_lost_the_lease_stands_by_again(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "AGAIN_SECONDS", 0.01)
    terms: list[tuple[Leadership, asyncio.Task[None]]] = []

    async def work(_: object, __: object, led: Leadership, ___: object) -> None:
        this = asyncio.current_task()
        assert this is not None
        terms.append((led, this))
        await asyncio.Event().wait()

    async def connect() -> Leases:
        return leases

    monkeypatch.setattr(app, "_work", work)
    monkeypatch.setattr(Kube, "connect", connect)
    options = parse(["--sidecar-image=x", "--lease-namespace=ops", "--health-port=18399"], {"POD_NAME": "one"})
    running = asyncio.create_task(app.run(options))
    await until(lambda: len(terms) == 1)
    leases.stuck.add("write")
    (first, working), *_ = terms
    await until(working.cancelled)
    assert not running.done()
    leases.stuck.clear()
    await until(lambda: len(terms) == 2)
    assert [led.term for led, _ in terms] == [1, 2]
    assert terms[1][0] is not first
    running.cancel()
    assert await running == 0
    assert leases.released


async def test_crds_that_come_late_are_waited_for(
    api: ListingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "CRDS_SECONDS", 0.05)
    kube = Kube(ApiClient(Configuration(host=api.url)))
    api.kinds = []
    waiting = asyncio.create_task(app.until_served(kube))
    await until(lambda: caplog.messages)
    assert caplog.messages[0] == "the API server does not serve elasticjobs and elasticworkers: waiting for the CRDs"
    api.kinds = ["elasticjobs"]
    await until(lambda: "the API server does not serve elasticworkers: waiting for the CRDs" in caplog.messages)
    api.kinds = ["elasticjobs", "elasticworkers"]
    async with within("the CRDs to be served"):
        await waiting
    await kube.close()
