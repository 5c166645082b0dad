# SPDX-License-Identifier: Apache-2.0
"""The processes of `make bench-fleet`, which runs beside no container that could start them."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from fleet.__main__ import WRITERS, writers
from rounds import logs

from support import ControlPlane
from support.canned_server import write_authority


def test_the_writers_start_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FOLDER", tmp_path / "logs")
    logs._folder.cache_clear()
    (tmp_path / "tokens.csv").write_text("a-token,admin,admin\n")
    authority = tmp_path / "ca.crt"
    write_authority(authority, tmp_path / "pair.pem")
    plane = SimpleNamespace(server="https://127.0.0.1:1", authority=authority, kubeconfig=tmp_path / "kubeconfig")
    with writers(cast(ControlPlane, plane)) as started:
        assert [child.ask("counted") for child in started] == [{"requests": 0}] * WRITERS
