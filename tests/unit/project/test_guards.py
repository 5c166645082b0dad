# SPDX-License-Identifier: Apache-2.0
"""Each check of `make lint` and `make release` finds what it is there to find: `guards.cases` has what is broken."""

import re

import pytest

from guards.cases import QUICK, SLOW
from support.broken_checkout import ROOT, Case, Checkout, assert_found, assert_passes, each

# what `make lint` runs finds nothing where nothing is broken: it is a part of `make test`
OTHERS = sorted({case.target for case in QUICK if " " not in case.target and not case.target.startswith("lint-")})


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One for all: the quick checks leave nothing."""
    return Checkout(tmp_path_factory.mktemp("checkout"))


@pytest.mark.parametrize("target", OTHERS)
def test_nothing_is_found_where_nothing_is_broken(target: str, checkout: Checkout) -> None:
    assert_passes(target, checkout)


@each(*QUICK)
def test_what_is_broken_is_found(case: Case, checkout: Checkout) -> None:
    assert_found(case, checkout)


def test_each_check_has_something_that_it_finds() -> None:
    makefile = (ROOT / "Makefile").read_text()
    checks = re.findall(r"^(?:lint|release): ([a-z -]+)", makefile, re.M)
    assert len(checks) == 3
    assert {name for line in checks for name in line.split()} <= {case.target for case in (*QUICK, *SLOW)}
    assert not re.search(r"^(?:lint|release):.*\n\t", makefile, re.M), "a command of its own is no check that is here"
