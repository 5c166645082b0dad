"""What the import contracts of `pyproject.toml` cannot say; what they find is in `guards.cases`."""

import ast

from guards.cases import PURE_LAYERS
from support.broken_checkout import ROOT


def test_pure_layers_ask_no_clock_by_way_of_a_date() -> None:
    """Dates are read and written there, so `datetime` may be imported."""
    modules = [path for layer in PURE_LAYERS for path in (ROOT / layer).parent.glob("*.py")]
    assert len(modules) > len(PURE_LAYERS)
    for path in modules:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
        assert not called & {"now", "today", "utcnow"}, path
