# SPDX-License-Identifier: Apache-2.0
"""What the import contracts of `pyproject.toml` cannot say; what they find is in `guards.cases`."""

import ast

from guards.cases import PURE_ROOMS
from support.broken_checkout import ROOT


def test_pure_rooms_ask_no_clock_by_way_of_a_date() -> None:
    """Dates are read and written there, so `datetime` may be imported."""
    modules = [path for room in PURE_ROOMS for path in (ROOT / room).parent.glob("*.py")]
    assert len(modules) > len(PURE_ROOMS)
    for path in modules:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
        assert not called & {"now", "today", "utcnow"}, path
