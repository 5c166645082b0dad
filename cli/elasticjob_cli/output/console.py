# SPDX-License-Identifier: Apache-2.0
"""Where the output goes: to a terminal with colours and a width, else plain, one line for one thing."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticjob.text import bare

COLOUR, RESET = re.compile(r"(\x1b\[[0-9;]*m)"), "\x1b[0m"
PLAIN_WIDTH = 4096  # nothing is cut where a program reads


def console() -> Console:
    """Colours only for a terminal; NO_COLOR and FORCE_COLOR count, as rich has it."""
    known = Console(highlight=False)
    return known if known.is_terminal else Console(highlight=False, width=PLAIN_WIDTH, soft_wrap=False)


def say(text: str, *, err: bool = False) -> None:
    """Print one text. What others wrote may be in it: nothing that a terminal obeys gets there."""
    click.echo("\n".join(map(bare, text.split("\n"))), err=err)


def say_line(whose: str, text: str) -> None:
    """Print a line of a log; on a terminal nothing of what that obeys but colours."""
    if on_terminal := is_terminal():
        last = text.rstrip("\r").rpartition("\r")[2].replace("\t", "    ")  # of a progress bar
        text = "".join(one if COLOUR.fullmatch(one) else bare(one) for one in COLOUR.split(last))
        text += RESET if COLOUR.search(text) else ""
    click.echo(f"{whose}{text}", color=on_terminal or None)


def show(*parts: RenderableType) -> None:
    """Print them below each other, without spaces at the ends of lines."""
    target = console()
    if target.is_terminal:
        target.print(group(*parts))
        return
    say(plain(*parts))


def group(*parts: RenderableType) -> Group:
    """The parts below each other, without what a terminal obeys: a table has none already."""
    for part in parts:
        if isinstance(part, Text):
            part.plain = "\n".join(map(bare, part.plain.split("\n")))
    return Group(*parts)


def plain(*parts: RenderableType) -> str:
    target = Console(highlight=False, width=PLAIN_WIDTH, color_system=None, force_terminal=False)
    with target.capture() as captured:
        target.print(group(*parts))
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").splitlines())


def show_json(body: Any) -> None:
    click.echo(json.dumps(body, indent=2, default=str))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """As kubectl prints one: words above, no lines. A column `>NAME` is of numbers; None is shown as `-`."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        right = column.startswith(">")
        made.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text("-" if cell in (None, "") else bare(str(cell))) for cell in row))
    return made


def is_terminal() -> bool:
    return sys.stdout.isatty()
