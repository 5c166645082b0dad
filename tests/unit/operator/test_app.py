"""The operator's process: it stands by, waits for the CRDs, and goes on after a lost Lease."""

import asyncio

import pytest

from elasticjob_operator import app
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.options import parse
from support.recording_server import RecordingServer
from support.waiting import until, within


async def test_who_has_lost_the_lease_stands_by_again(leases: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "AGAIN_SECONDS", 0.01)
    terms: list[tuple[Leadership, asyncio.Task[None]]] = []

    async def work(_: object, __: object, led: Leadership, ___: object) -> None:
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
