# SPDX-License-Identifier: Apache-2.0
"""Renames in the tables of mutations what was renamed in the sources: `python -m model.rename_mutants TABLE`.

TABLE is a file with an old and a new name in each line:

    elasticjob.rendezvous.decide elasticjob.rendezvous.rules
    elasticjob.rendezvous.step:Step.give_up elasticjob.rendezvous.pods:give_up
    worker_lost patience

The first two rename the addresses that begin with the old name, by the longest that fits: a module or package, and what
is in one. An identifier is renamed in the changes, and behind the colon of an address, wherever it is a whole name. So
a method that is renamed needs only the identifier, and what moves, and has another name in the changes, needs both.
Strings in the code, sentences and names of checks stay. Afterwards `make unit K=test_mutants` tells what fits nowhere
in the sources.
"""

import io
import re
import sys
import tokenize
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from model.mutants import TABLES
from model.mutation import ADDRESS, INDENT

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


def renamed_table(table: str, names: Names) -> str:
    """The table of mutations with the new names."""
    lines = []
    for sign, run in groupby(table.splitlines(), lambda line: line[len(INDENT)] if line.startswith(INDENT) else ""):
        if sign:
            code = "\n".join(line[len(INDENT) + 2 :] for line in run)
            lines += [f"{INDENT}{sign} {line}".rstrip() for line in renamed_code(code, names).split("\n")]
        else:
            lines += [renamed_address(line, names) if ADDRESS.fullmatch(line) else line for line in run]
    return "\n".join(lines) + "\n"


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
    for path in TABLES:
        path.write_text(renamed_table(path.read_text(), names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
