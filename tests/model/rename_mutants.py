# SPDX-License-Identifier: Apache-2.0
"""Renames in the tables of mutations what was renamed in the sources: `python -m model.rename_mutants TABLE`.

TABLE is a file with an old and a new name in each line:

    elasticjob.rendezvous.decide elasticjob.rendezvous.rules
    elasticjob.rendezvous.step:Step.give_up elasticjob.rendezvous.pods:give_up
    worker_lost patience

The first two rename the addresses that begin with the old name, by the longest that fits: a module or package, and what
is in one. An identifier is renamed in the changes, and behind the colon of an address, wherever it is a whole name. So
a method that is renamed needs only the identifier, and what moves, and has another name in the changes, needs both.
Strings in the code, sentences and names of checks stay. Afterwards `make format` sets the tables again, and
`make unit K=test_mutants` tells what fits nowhere in the sources.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path

from model.mutants import TABLES

Names = Mapping[str, str]


def renamed_address(address: str, names: Names) -> str:
    parts = (old for old in names if "." in old or ":" in old)
    old = max((old for old in parts if re.match(rf"{re.escape(old)}([.:]|$)", address)), key=len, default="")
    new, rest = names.get(old, ""), address[len(old) :]
    before, colon, after = rest.rpartition(":") if ":" in rest else ("", "", rest)
    return new + before + colon + re.sub(r"\w+", lambda name: names.get(name[0], name[0]), after)


def renamed_code(code: str, names: Names) -> str:
    lines = code.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(code).readline))):
        if token.type == tokenize.NAME and token.string in names:
            row, start = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:start] + names[token.string] + line[token.end[1] :]
    return "".join(lines)


def renamed_table(source: str, names: Names) -> str:
    """The source of a module of mutations with the new names."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0, *accumulate(len(line) for line in lines)]
    text = b"".join(lines)
    found = sorted(_renamed(ast.parse(source), names), key=lambda one: (one[0].lineno, one[0].col_offset), reverse=True)
    for node, new in found:
        start = starts[node.lineno - 1] + node.col_offset
        text = text[:start] + repr(new).encode() + text[starts[node.end_lineno - 1] + node.end_col_offset :]
    return text.decode()


def _renamed(tree: ast.Module, names: Names) -> Iterator[tuple[ast.Constant, str]]:
    """The strings of a table that change, and what they become."""
    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=keys):
                strings, rename = keys, renamed_address
            case ast.Call(func=ast.Name(id="omit" | "replace"), args=[_, *codes]):
                strings, rename = codes, renamed_code
            case _:
                continue
        for string in strings:
            if isinstance(string, ast.Constant) and (new := rename(string.value, names)) != string.value:
                yield string, new


def names_of(table: str) -> Names:
    names = {}
    for number, line in enumerate(table.splitlines(), 1):
        if line.strip():
            if len(words := line.split()) != 2:
                raise ValueError(f"line {number} should have an old and a new name, and not {line!r}")
            names[words[0]] = words[1]
    return names


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__)
        return 2
    names = names_of(Path(arguments[0]).read_text())
    for module in TABLES:
        path = Path(module.__file__)
        path.write_text(renamed_table(path.read_text(), names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
