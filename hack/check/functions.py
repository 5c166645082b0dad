# SPDX-License-Identifier: Apache-2.0
"""A Python file as the functions it defines: what changed between two texts, and in which function a line stands.

Functions go by qualified name, as `Class.method`, so that they are found again when lines move. What is defined inside
a function belongs to it. Everything else runs when the file is imported and goes by the name "" (`AT_IMPORT`):
constants, the fields of classes, decorators, and the parameters of what is decorated. Comments and layout are nothing.

It reads text only; it knows neither files nor tests.
"""

import ast
import copy
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

AT_IMPORT = ""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Span(NamedTuple):
    """The lines of a function's body."""

    first: int
    last: int
    name: str


def digests(source: str) -> dict[str, str]:
    """Each function's digest, and that of what runs at import."""
    return _File(source).digests


def spans(source: str) -> list[Span]:
    file = _File(source)
    return [
        Span(node.body[0].lineno, node.end_lineno or node.lineno, name)
        for name, nodes in file.functions.items()
        for node in nodes
    ]


def changed(before: str, after: str) -> set[str]:
    """The functions that do another thing, or are gone.

    What is only new does nothing by itself: a function, a name at the top, an import. Of a name that stands for
    something else now, or for nothing, the functions that use it count as changed.
    """
    old, new = _File(before), _File(after)
    found = {name for name, digest in old.digests.items() if new.digests.get(name) != digest and name != AT_IMPORT}
    found |= set(new.digests) - set(old.digests) - new.called_by_name
    other = {name for name in old.names | new.names if old.names.get(name) != new.names.get(name)}
    imports = {name for name in other if name in old.imported | new.imported}
    constants = {name for name in other - imports if name in old.names}
    used_at_import = old.used[AT_IMPORT] | new.used[AT_IMPORT]
    passed_on = {name for name in imports & set(old.names) if not any(name in used for used in old.used.values())}
    if old.rest != new.rest or constants or passed_on or imports & used_at_import:
        found.add(AT_IMPORT)
    return found | {name for name, used in new.used.items() if name != AT_IMPORT and used & other}


class _File:
    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self.functions: dict[str, list[Function]] = defaultdict(list)
        self.called_by_name: set[str] = set()
        for name, node, called_by_name in _functions(tree):
            self.functions[name].append(node)
            if called_by_name:
                self.called_by_name.add(name)
        self.names: dict[str, str] = {}  # what the file binds at its top, by what it is bound to
        self.imported: set[str] = set()
        self.used = {name: _used(*nodes) for name, nodes in self.functions.items()}
        self.digests = {name: _digest(*map(ast.dump, nodes)) for name, nodes in self.functions.items()}
        rest, constants = [], []
        for node in _Heads().visit(tree).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._note_imports(node)
            elif target := _target(node):
                self.names[target] = ast.dump(node)
                constants.append(node)
            else:
                rest.append(node)
        self.used[AT_IMPORT] = _used(*rest, *constants)
        self.rest = _digest(*map(ast.dump, rest))
        self.digests[AT_IMPORT] = _digest(*map(ast.dump, [*rest, *constants]))

    def _note_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        origin = f"{'.' * node.level}{node.module or ''}" if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.names[name] = f"{self.names.get(name, '')} {origin} {alias.name}"
            self.imported.add(name)


def _functions(node: ast.AST, prefix: str = "", *, may_override: bool = False) -> Iterator[tuple[str, Function, bool]]:
    """Each with whether only those who name it call it: not Python, a base class, pytest or a decorator."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            known_to_others = may_override or child.decorator_list or child.name.startswith(("__", "pytest_"))
            yield f"{prefix}{child.name}", child, not known_to_others
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.", may_override=bool(child.bases or child.keywords))
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _functions(child, prefix, may_override=may_override)


class _Heads(ast.NodeTransformer):
    """Leaves of a function what runs when it is defined: nothing, or its decorators and what they see of it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        return self._head(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST | None:
        return self._head(node)

    @staticmethod
    def _head(node: Function) -> ast.AST | None:
        if not node.decorator_list:
            return None
        head = copy.copy(node)
        head.body = [ast.Expr(ast.Constant(ast.get_docstring(node)))]
        return head


def _target(node: ast.stmt) -> str | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None


def _used(*nodes: ast.AST) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=6).hexdigest()
