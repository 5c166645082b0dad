# SPDX-License-Identifier: Apache-2.0
"""Fixtures of what the operator meets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from elasticjob_operator.cluster import leader
from support.recording_server import RecordingServer


@pytest.fixture
async def leases(monkeypatch: pytest.MonkeyPatch) -> RecordingServer:
    """An API server, and Leases of short times."""
    short = leader.LeaseTimes(renew=0.01, request=5.0, lost_after=0.2, duration=0.25)
    monkeypatch.setattr(leader, "times_of", lambda _: short)
    return RecordingServer("ops")


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[RecordingServer]:
    """An API server over HTTP, where a kubeconfig says."""
    made, config = RecordingServer(), tmp_path / "kubeconfig"
    async with made.over_http() as url:
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "here", "cluster": {"server": url}}],
                    "users": [{"name": "me", "user": {"token": "secret"}}],
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                    "current-context": "here",
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        yield made
