# SPDX-License-Identifier: Apache-2.0
"""What `support` says when a program is missing or does not come up."""

import time
from pathlib import Path

import pytest

from support import ControlPlane, ControlPlaneError
from support.programs import Program, find_program


def script(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_argument_comes_before_the_variable_and_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = {}
    for place in ("argument", "assets", "path"):
        directories[place] = tmp_path / place
        directories[place].mkdir()
        script(directories[place], "etcd", "exit 0")
    monkeypatch.setenv("PATH", str(directories["path"]))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(directories["assets"]))

    assert find_program("etcd", directories["argument"]) == str(directories["argument"] / "etcd")
    assert find_program("etcd") == str(directories["assets"] / "etcd")
    monkeypatch.delenv("KUBEBUILDER_ASSETS")
    assert find_program("etcd") == str(directories["path"] / "etcd")


def test_missing_program_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(
        ControlPlaneError, match=rf"no etcd in KUBEBUILDER_ASSETS={tmp_path}; download it with .*envtest"
    ):
        ControlPlane().start()


def test_end_of_a_program_shows_the_end_of_its_log(tmp_path: Path) -> None:
    program = Program([str(script(tmp_path, "etcd", "echo no disk left; exit 3"))], tmp_path / "log")
    try:
        with pytest.raises(ControlPlaneError, match=r"etcd ended with code 3: (?s:.)*no disk left"):
            program.await_ready(lambda: False, time.monotonic() + 30)
    finally:
        program.stop()


def test_wait_for_a_program_has_an_end(tmp_path: Path) -> None:
    program = Program([str(script(tmp_path, "etcd", "exec sleep 60"))], tmp_path / "log")
    try:
        with pytest.raises(ControlPlaneError, match=r"waited 0\.\d s for etcd to be ready"):
            program.await_ready(lambda: False, time.monotonic() + 0.1)
    finally:
        program.stop()
