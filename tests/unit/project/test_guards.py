# SPDX-License-Identifier: Apache-2.0
"""Each check of `make lint` and `make release` finds what it is there to find: `guards.cases` has what is broken."""

import re
from pathlib import Path

import pytest

from guards.cases import QUICK, SLOW
from support.broken_checkout import ROOT, Case, assert_found, assert_passes, each


@pytest.mark.parametrize("target", sorted({case.target for case in QUICK if " " not in case.target}))
def test_nothing_is_found_where_nothing_is_broken(target: str, tmp_path: Path) -> None:
    assert_passes(target, tmp_path)


@each(*QUICK)
def test_what_is_broken_is_found(case: Case, tmp_path: Path) -> None:
    assert_found(case, tmp_path)


def test_each_check_has_something_that_it_finds() -> None:
    makefile = (ROOT / "Makefile").read_text()
    checks = re.findall(r"^(?:lint|release): ([a-z -]+)", makefile, re.M)
    assert len(checks) == 3
    assert {name for line in checks for name in line.split()} <= {case.target for case in (*QUICK, *SLOW)}
    assert not re.search(r"^(?:lint|release):.*\n\t", makefile, re.M), "a command of its own is no check that is here"
