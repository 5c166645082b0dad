# SPDX-License-Identifier: Apache-2.0
"""A class's name leads to one class: what two parts call alike is the same on both sides of a boundary, or renamed."""

import ast
from collections import defaultdict

from support.broken_checkout import ROOT

MOST = 15
WIRE = "a word of the wire, which the plug-in has to say without the core"
API_SERVER = "an answer of the API server, which the plug-in's own client has to know without the core"
TWICE = {
    "FailureKind": WIRE,
    "Outcome": WIRE,
    "ProcessState": WIRE,
    "ApiError": API_SERVER,
    "Unavailable": API_SERVER,
    "Forbidden": API_SERVER,
    "NotFound": API_SERVER,
    "Conflict": API_SERVER,
    "Gone": API_SERVER,
    "Concern": "the interface of a concern, which operator and sidecar call at other times and with other facts",
}


def test_a_class_has_its_name_for_itself() -> None:
    modules = defaultdict(set)
    for part in ("core", "operator", "sidecar", "trainer", "cli"):
        for path in (ROOT / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    modules[node.name].add(path.relative_to(ROOT).as_posix())
    assert len(modules) > 400
    twice = {name: sorted(where) for name, where in modules.items() if len(where) > 1}
    assert twice.keys() == TWICE.keys(), twice
    assert len(TWICE) <= MOST
