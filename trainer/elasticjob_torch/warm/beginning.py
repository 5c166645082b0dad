# SPDX-License-Identifier: Apache-2.0
"""The imports at the beginning of a script, read from its text: for the first start, when nothing is learned yet.

Pure. It stops at the first statement that may do more than import or define, and at the first import of one of the
script's own modules, so nothing is guessed.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def first_imports(source: str, is_own: Callable[[str], bool]) -> list[str]:
    """Return the modules that a script imports at its beginning, in order; for ``from a import b`` that is ``a``.

    Args:
        is_own: whether a top-level module is the script's own.
    """
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return []
    names: list[str] = []
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for name in _imported(statement):
                if is_own(name.partition(".")[0]):
                    return names
                names.append(name)
        elif not _does_nothing(statement):
            break
    return list(dict.fromkeys(names))


def _imported(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif statement.module and not statement.level and statement.module != "__future__":
        yield statement.module


def _does_nothing(statement: ast.stmt) -> bool:
    """Say whether a statement certainly changes nothing that an import may see."""
    if isinstance(statement, ast.Assign) and not all(isinstance(each, ast.Name) for each in statement.targets):
        return False
    if isinstance(statement, (ast.Assign, ast.Expr)):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and not (
        statement.decorator_list or statement.args.defaults or any(statement.args.kw_defaults)
    )
