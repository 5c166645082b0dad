# SPDX-License-Identifier: Apache-2.0
"""A seeded mistake: the name of what it is in, and what is changed there. `mutants` tries them all.

`elasticjob.rendezvous.step:Step.give_up` names a function, a class, or a constant of a module or of a class. The change
is code that is left out there, or other code that takes its place. `code_patterns` says how code is compared; it has to
fit in exactly one place. Left out can be statements, an operand (of `and`, `or`, `+`, `|` and so on), an element, an
argument, an item of a dict (`key: value`), or a condition of a comprehension.

The tables are in the folder `mutations`, see `read`. After a rename in the sources, `python -m model.rename_mutants`
renames there.
"""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple

from model.code_patterns import Place, change, nodes_of, places

ROOT = Path(__file__).parents[2]
PARTS = (
    "core/elasticjob",
    "core/elasticjob_http",
    "operator/elasticjob_operator",
    "sidecar/elasticjob_sidecar",
    "trainer/elasticjob_torch",
)


INDENT = "    "
ADDRESS = re.compile(r"[\w.]+:[\w.]+")


class CannotBeMade(Exception):
    """The sources have nothing that a mutation could change, or several things."""


class Mutation(NamedTuple):
    """`new` is None where the old code is left out. `by` is the check that is tried first: one that is known to catch
    it."""

    address: str
    mistake: str
    old: str
    new: str | None
    by: str

    @property
    def module(self) -> str:
        return self.address.partition(":")[0]


def read(table: str) -> Iterator[Mutation]:
    """The mutations of a table. Each has a line that says what goes wrong by it, with the check that is tried first in
    brackets behind it, unless that is the one of the line `by:` at the table's head. Indented lines follow: `-` and the
    old code, `+` and the new code. The line before them that is an address counts until the next one.

    Raises:
        ValueError: a line has indented ones under it and is no mistake, or is one and has no old code.
    """
    default, address = "", ""
    for line, below in _with_indented(table):
        if is_address := bool(ADDRESS.fullmatch(line)):
            address = line
        if line.startswith("by: "):
            default = line.removeprefix("by: ")
        is_mistake = bool(line) and not is_address and not line.startswith(("#", "by: "))
        old, new = ("\n".join(one[2:] for one in below if one[0] == sign) for sign in "-+")
        if bool(old) != is_mistake:
            raise ValueError(f"under a mistake, and only there, is the code in which it is made: {line!r}")
        if is_mistake:
            sentence, _, by = line.removesuffix("]").partition(" [")
            yield Mutation(address, sentence, old, new or None, by or default)


def _with_indented(table: str) -> Iterator[tuple[str, list[str]]]:
    """Each line at the margin, with what is indented under it."""
    line, below = "", list[str]()
    for one in [*table.splitlines(), ""]:
        if one.startswith(INDENT):
            below.append(one.removeprefix(INDENT))
        else:
            yield line, below
            line, below = one, []


def mutated(mutation: Mutation) -> str:
    """The source of the module with the mistake in it."""
    tree = ast.parse((ROOT / file_of(mutation.address)).read_text())
    return ast.unparse(change(tree, place_of(mutation, tree), mutation.new))


def place_of(mutation: Mutation, tree: ast.Module) -> Place:
    named = _named(mutation.address, tree)
    found = [place for node in named for place in places(node, mutation.old, mutation.new)]
    if len(found) == 1:
        return found[0]
    if found:
        there = ", ".join(str(place.line) for place in found)
        raise CannotBeMade(f"{mutation.address} has {mutation.old!r} {len(found)} times, in lines {there}")
    nodes = (inner for node in named for inner in ast.walk(node) if isinstance(inner, ast.stmt | ast.expr))
    code = {ast.unparse(node).partition("\n")[0] for node in nodes}
    raise CannotBeMade(f"{mutation.address} has no {mutation.old!r} to change{_like(mutation.old, code)}")


def unknown_names(mutation: Mutation) -> set[str]:
    """Names in the new code that nothing in the sources has: the mutation would be caught for these alone."""
    if mutation.new is None:
        return set()
    return {name for node in nodes_of(mutation.new) for name in _names(node)} - _known_names()


def file_of(address: str) -> Path:
    """The path of its module in the repository."""
    if file := _modules().get(address.partition(":")[0]):
        return file.relative_to(ROOT)
    raise CannotBeMade(_unknown(address))


def tree_of(address: str) -> ast.Module:
    """The syntax tree of its module, which is not to be changed."""
    return _parsed(ROOT / file_of(address))


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _named(address: str, tree: ast.Module) -> list[ast.stmt]:
    """What in the module has this name: several statements where it is defined more than once."""
    name = address.partition(":")[2]
    if found := [node for known, node in _definitions(tree) if known == name]:
        return found
    raise CannotBeMade(_unknown(address))


def _unknown(address: str) -> str:
    """Candidates are what has the name in another module, and what is written like it."""
    name = address.partition(":")[2]
    moved = sorted(known for known in _addresses() if known.partition(":")[2] == name)[:4]
    return f"there is no {address}{_like(address, set(_addresses()), moved)}"


def _definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Functions, classes and constants, by qualified name."""
    for node in getattr(tree, "body", ()):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name, node
            case ast.ClassDef(name=name):
                yield prefix + name, node
                yield from _definitions(node, f"{prefix}{name}.")
            case ast.Assign(targets=targets):
                for name in (one.id for target in targets for one in ast.walk(target) if _is_set(one)):
                    yield prefix + name, node
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name, node


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@cache
def _modules() -> dict[str, Path]:
    found = {}
    for part in PARTS:
        for file in (ROOT / part).rglob("*.py"):
            path = file.relative_to((ROOT / part).parent).with_suffix("")
            found[".".join(path.parts).removesuffix(".__init__")] = file
    return found


@cache
def _addresses() -> frozenset[str]:
    """All that there is to name."""
    return frozenset(f"{module}:{name}" for module in _modules() for name, _ in _definitions(tree_of(module)))


def _like(name: str, names: set[str], first: Iterable[str] = ()) -> str:
    close = dict.fromkeys([*first, *get_close_matches(name, names)])
    return f"; there is {', '.join(close)}" if close else ""


@cache
def _known_names() -> frozenset[str]:
    return frozenset(dir(builtins)).union(*(_names(tree_of(module)) for module in _modules()))


def _names(tree: ast.AST) -> Iterator[str]:
    """Of the variables, attributes and keyword arguments that it uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
