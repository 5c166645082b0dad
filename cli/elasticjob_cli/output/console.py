# SPDX-License-Identifier: Apache-2.0
"""Prints to a terminal, with colours and a width, or as plain text, one line for each item."""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

import click

from elasticjob.text import bare
from elasticjob_cli.output.tables import Part, lines_of

COLOUR, RESET = re.compile(r"(\x1b\[[0-9;]*m)"), "\x1b[0m"
PLAIN_WIDTH = 2**20  # no line is folded if a program reads it
CLEAR_BELOW = "\x1b[J"


def say(text: str, *, err: bool = False) -> None:
    """Prints one text. It may contain text of others: no control character of it is printed."""
    click.echo("\n".join(map(bare, text.split("\n"))), err=err)


def say_line(whose: str, text: str) -> None:
    """Prints a line of a log. On a terminal, colours are the only control sequences that are printed."""
    if on_terminal := is_terminal():
        last = text.rstrip("\r").rpartition("\r")[2].replace("\t", "    ")  # the last state of a progress bar
        text = "".join(one if COLOUR.fullmatch(one) else bare(one) for one in COLOUR.split(last))
        text += RESET if COLOUR.search(text) else ""
    click.echo(f"{whose}{text}", color=on_terminal or None)


def show(parts: Iterable[Part], *, headers: bool = True) -> None:
    """Prints the parts below each other."""
    click.echo("\n".join(_lines(parts, headers=headers)), color=has_colours())


def plain(parts: Iterable[Part], *, headers: bool = True) -> str:
    return "\n".join(lines_of(parts, PLAIN_WIDTH, headers=headers))


class Screen:
    """Output that replaces the previous output on a terminal, as much of it as fits."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, parts: Iterable[Part], *, headers: bool = True) -> None:
        room = shutil.get_terminal_size()
        lines = _lines(parts, headers=headers, width=room.columns)[: room.lines - 1]
        back = f"\x1b[{self._shown}F" if self._shown else ""
        click.echo(f"{back}{CLEAR_BELOW}" + "\n".join(lines), color=True)
        self._shown = max(1, len(lines))


def _lines(parts: Iterable[Part], *, headers: bool, width: int | None = None) -> Sequence[str]:
    known = width or (shutil.get_terminal_size().columns if is_terminal() else PLAIN_WIDTH)
    return lines_of(parts, known, colours=has_colours(), headers=headers)


def has_colours() -> bool:
    """Whether to print colours. NO_COLOR and FORCE_COLOR are respected, as defined by no-color.org and
    force-color.org."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal()


def is_terminal() -> bool:
    return sys.stdout.isatty()
