# SPDX-License-Identifier: Apache-2.0
"""The checks that need compiled programs, other environments or much time: each finds what it is there to find."""

import os
from pathlib import Path

import pytest

from guards.cases import SLOW
from support.broken_checkout import Case, Checkout, assert_found, assert_passes, each

# a package index, a registry: `make release` tries them
WITH_NETWORK = {"release-wheels", "release-chart"}


@pytest.mark.parametrize("target", sorted({case.target for case in SLOW if " " not in case.target} - WITH_NETWORK))
def test_nothing_is_found_where_nothing_is_broken(target: str, tmp_path: Path) -> None:
    assert_passes(target, Checkout(tmp_path))


@each(*SLOW)
def test_what_is_broken_is_found(case: Case, tmp_path: Path) -> None:
    assert_found(case, Checkout(tmp_path))


def test_a_registry_that_does_not_come_up(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("docker-registry", "skopeo"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    code, said = Checkout(tmp_path / "checkout").make("release-chart", PATH=f"{programs}:{os.environ['PATH']}")
    assert code != 0
    assert "error: the registry did not answer" in said
