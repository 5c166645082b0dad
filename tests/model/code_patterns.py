# SPDX-License-Identifier: Apache-2.0
"""Code as a pattern of syntax trees: where in a tree it fits, and the change of what it fits.

Trees are compared, so that layout, comments and line breaks make no difference. `...` in a pattern fits any
expression, and any number of statements, elements or arguments; in what takes the place it stands for what it has
fitted. This module knows nothing of files and names.
"""

import ast
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

Nodes = list[Any]  # what a node has depends on its class
EXPRESSION, STATEMENTS, ARGUMENT, ITEM, HANDLER = "expression", "statements", "keyword argument", "dict item", "except"
# What can be left out, by what it is in. Of an operator with two sides either can be.
CAN_GO = {
    EXPRESSION: (
        (ast.BoolOp, "values"),
        (ast.BinOp, "left"),
        (ast.BinOp, "right"),
        (ast.Tuple, "elts"),
        (ast.List, "elts"),
        (ast.Set, "elts"),
        (ast.Call, "args"),
        (ast.comprehension, "ifs"),
    ),
    STATEMENTS: tuple((ast.AST, field) for field in ("body", "orelse", "finalbody")),
    ARGUMENT: ((ast.Call, "keywords"),),
    ITEM: ((ast.Dict, "keys"),),
    HANDLER: ((ast.Try, "handlers"),),
}


class Place(NamedTuple):
    """The nodes that a pattern fits, which are some of those that a node has in one of its fields."""

    kind: str
    holder: Any
    field: str
    start: int
    end: int
    filling: list[Nodes]  # what each `...` has fitted
    line: int


def places(tree: ast.AST, old: str, new: str | None) -> list[Place]:
    """Where the new code can take the place of the old, or, where there is none, where the old can be left out."""
    readings = _readings(old)
    if new is not None:
        if _holes(new) not in (0, _holes(old)):
            raise ValueError(f"the new code has other ... than the old: {old!r}, {new!r}")
        readings = {kind: nodes for kind, nodes in readings.items() if kind in _readings(new)}
        if EXPRESSION in readings:  # a statement contains it
            readings = {EXPRESSION: readings[EXPRESSION]}
    return [place for kind, nodes in readings.items() for place in _fitting(tree, kind, nodes, new is None)]


def change(tree: ast.Module, place: Place, new: str | None) -> ast.Module:
    """The tree, which is changed, with the new code in that place."""
    nodes = [] if new is None else _filled(_readings(new)[place.kind], list(place.filling))
    value = getattr(place.holder, place.field)
    if place.kind == ITEM:
        place.holder.keys[place.start : place.end] = nodes[:1]
        place.holder.values[place.start : place.end] = nodes[1:]
    elif isinstance(value, list):
        value[place.start : place.end] = nodes
    else:
        setattr(place.holder, place.field, nodes[0] if nodes else None)
    _Tidy().visit(tree)
    return ast.fix_missing_locations(tree)


def nodes_of(code: str) -> Nodes:
    return next(iter(_readings(code).values()))


class _Tidy(ast.NodeTransformer):
    """An operator with one operand is that operand, and a body without statements is `pass`."""

    def generic_visit(self, node: Any) -> Any:
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]
        match node:
            case ast.BoolOp(values=[only]) | ast.BinOp(left=None, right=only) | ast.BinOp(left=only, right=None):
                return only
        return node


def _readings(code: str) -> dict[str, Nodes]:
    """What the code may be: `name=value`, for one, is an argument as well as a statement."""
    if code.startswith("except"):
        (whole,) = ast.parse(f"try: ...\n{code}").body
        return {HANDLER: whole.handlers}
    try:
        body = ast.parse(code).body
    except SyntaxError:
        match ast.parse(f"{{{code}}}").body:
            case [ast.Expr(value=ast.Dict(keys=[key], values=[value]))]:
                return {ITEM: [key, value]}
        raise
    match body:
        case [ast.Expr(value=value)]:
            return {EXPRESSION: [value], STATEMENTS: list(body)}
        case [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
            return {ARGUMENT: [ast.keyword(name, value)], STATEMENTS: list(body)}
    return {STATEMENTS: list(body)}


def _fitting(tree: ast.AST, kind: str, pattern: Nodes, only_what_can_go: bool) -> Iterator[Place]:
    length = 1 if kind == ITEM else len(pattern)
    for holder in ast.walk(tree):
        for field, value in ast.iter_fields(holder):
            can_go = any(isinstance(holder, holding) and field == name for holding, name in CAN_GO[kind])
            if not can_go and (only_what_can_go or kind != EXPRESSION):
                continue
            nodes = value if isinstance(value, list) else [value]
            for start in range(len(nodes) - length + 1):
                found = nodes[start : start + length]
                filling: list[Nodes] = []
                if _fits(pattern, [*found, holder.values[start]] if kind == ITEM else found, filling):
                    line = getattr(found[0], "lineno", getattr(holder, "lineno", 0))
                    yield Place(kind, holder, field, start, start + length, filling, line)


def _fits(pattern: object, found: object, filling: list[Nodes]) -> bool:
    """Whether it does; then `filling` has what each `...` of the pattern has fitted, in the order of the code."""
    if isinstance(pattern, list):
        return isinstance(found, list) and _fits_list(pattern, found, filling)
    if _is_hole(pattern) and isinstance(found, ast.AST):
        filling.append([found])
        return True
    if not isinstance(pattern, ast.AST):
        return type(pattern) is type(found) and pattern == found
    return type(pattern) is type(found) and all(
        name == "ctx" or _fits(getattr(pattern, name, None), getattr(found, name, None), filling)
        for name in pattern._fields
    )


def _fits_list(pattern: Nodes, found: Nodes, filling: list[Nodes]) -> bool:
    """At most one item of the pattern fits any number of nodes."""
    hole = next((at for at, item in enumerate(pattern) if _is_hole(item)), None)
    if hole is None:
        return len(pattern) == len(found) and all(_fits(*pair, filling) for pair in zip(pattern, found, strict=True))
    end = len(found) - (len(pattern) - hole - 1)
    if end < hole or not _fits_list(pattern[:hole], found[:hole], filling):
        return False
    filling.append(found[hole:end])
    return _fits_list(pattern[hole + 1 :], found[end:], filling)


def _filled(nodes: Nodes, filling: list[Nodes]) -> Nodes:
    """New nodes, with what each `...` has fitted in its place."""
    found: Nodes = []
    for node in nodes:
        if _is_hole(node):
            found.extend(filling.pop(0))
            continue
        new = deepcopy(node)
        for field, value in ast.iter_fields(new) if isinstance(new, ast.AST) else ():
            if isinstance(value, list):
                setattr(new, field, _filled(value, filling))
            elif isinstance(value, ast.AST):
                setattr(new, field, _filled([value], filling)[0])
        found.append(new)
    return found


def _holes(code: str) -> int:
    found = (inner for node in nodes_of(code) for inner in ast.walk(node))
    return sum(isinstance(node, ast.Constant) and node.value is ... for node in found)


def _is_hole(node: object) -> bool:
    match node:
        case ast.Constant(value=value) | ast.Expr(value=ast.Constant(value=value)):
            return value is ...
    return False
