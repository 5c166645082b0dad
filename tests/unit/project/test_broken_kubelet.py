# SPDX-License-Identifier: Apache-2.0
"""A pod whose stand-in kubelet broke."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plane.kubelet import Kubelet, Node
from plane.pod_run import PodRun
from support.pod_life import new_credentials
from support.waiting import until


async def test_it_is_reported_once_and_removed_when_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, asked = list[str](), list[str]()

    async def breaks(run: PodRun) -> None:
        begun.append(run.uid)
        raise RuntimeError("it cannot go on")

    async def call(_: Kubelet, method: str, path: str, *__: Any) -> None:
        asked.append(f"{method} {path}")

    monkeypatch.setattr(PodRun, "run", breaks)
    monkeypatch.setattr(Kubelet, "call", call)
    authority = tmp_path / "ca.pem"
    authority.write_text(new_credentials().certificate)
    kubelet = Kubelet("https://127.0.0.1:1", authority, "token", tmp_path / "work")
    kubelet.nodes["n"] = Node(kubelet, "n")
    meta = {"name": "one", "namespace": "ml", "uid": "1"}
    body = {"metadata": meta, "spec": {"nodeName": "n", "containers": []}}
    kubelet._see("ADDED", body)
    await until(lambda: kubelet.broken, "the report")
    kubelet.broken = None
    kubelet._see("MODIFIED", body)
    kubelet._see("MODIFIED", {**body, "metadata": {**meta, "deletionTimestamp": "2026-01-02T03:04:05Z"}})
    await until(lambda: not kubelet.runs(), "its removal")
    assert (begun, asked, kubelet.broken) == (["1"], ["DELETE /api/v1/namespaces/ml/pods/one"], None)
    await kubelet.http.close()
    await asyncio.gather(*kubelet._tasks)
    await kubelet.api.close()
