# SPDX-License-Identifier: Apache-2.0
"""Finds assertions about a moment: on what a cluster shows at one read, and may show otherwise a little later.

The operator paces its conditions, kubelets tell of containers later, and each watch has a lateness of its own. So what
a wait has seen in one view need not be in another yet, and what it has seen may have moved on. An assertion is on what
a wait has returned, on what was recorded (`Job.rounds`, a `Watch`), or on what `support.waiting.settled` calls final.
"""

import ast
from collections.abc import Collection, Iterator

STATES = {"status", "rendezvous"}  # of a Job, if a field of them is read
READS = {"condition", "events", "pods", "present", "scene", "budget", "saved_step", "list", "has"}
PLACES = {"namespace", "operator"}  # whose `get` asks the API server
WAITS = ("wait_", "until", "settled")


def moments(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each assertion on what moves."""
    tree = ast.parse(source)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    live: set[str] = set()
    while new := {name for name, node in functions.items() if name not in live and _returns_a_moment(node, live)}:
        live |= new
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            names = {name for node in ast.walk(function) for name in _assigned(node, live)}
            for node in ast.walk(function):
                if isinstance(node, ast.Assert) and _reads(node.test, live, names):
                    yield node.lineno, ast.unparse(node.test)


def _assigned(node: ast.AST, live: set[str]) -> Iterator[str]:
    """The names that a statement gives to what is read outside of a wait."""
    if isinstance(node, ast.Assign) and _reads(node.value, live):
        for target in node.targets:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _returns_a_moment(function: ast.FunctionDef, live: set[str]) -> bool:
    """Whether what it gives was read outside of a wait: in what it returns, or in what that is made of."""
    if any(isinstance(node, ast.Yield) for node in ast.walk(function)):
        return False  # a fixture, or what is done meanwhile
    body = [node for node in function.body if not isinstance(node, ast.FunctionDef)]
    returns = any(isinstance(node, ast.Return) and node.value for one in body for node in ast.walk(one))
    return returns and any(_reads(one, live) for one in body)


def _reads(node: ast.AST, live: set[str], names: Collection[str] = ()) -> bool:
    match node:
        case ast.Name(id=name) if name in names:
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name.startswith(WAITS):
            return False
        case ast.Call(func=ast.Attribute(attr=name)) if name in READS:
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of) | ast.Attribute(attr=of), attr="get")) if of in PLACES:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in live:
            return True
        case ast.Subscript(value=ast.Attribute(attr=name)) | ast.Attribute(value=ast.Attribute(attr=name), attr="get"):
            if name in STATES:
                return True
    return any(_reads(child, live, names) for child in ast.iter_child_nodes(node))
