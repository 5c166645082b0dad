"""Fixtures of what the operator meets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from elasticjob_operator.cluster import leader
from support.operator_fakes import Leases, ListingServer


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    short = leader.Times(renew=0.01, request=5.0, lost_after=0.2, duration=0.25)
    monkeypatch.setattr(leader, "times_of", lambda _: short)
    return Leases()


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[ListingServer]:
    made = ListingServer()
    runner = web.AppRunner(made.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = tmp_path / "kubeconfig"
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "here", "cluster": {"server": made.url}}],
                "users": [{"name": "me", "user": {"token": "secret"}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                "current-context": "here",
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    yield made
    await runner.cleanup()
