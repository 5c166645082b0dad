# SPDX-License-Identifier: Apache-2.0
"""Lines of text and tables, set in a width. Words are never broken. A table that is too wide for the terminal is shown
as one block of lines for each row. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from elasticjob.text import bare

GAP = "   "
CODES: Mapping[str, str] = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}


class Span(NamedTuple):
    """A part of a text. `style`: a key of CODES, or empty."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph. It may contain text of others: no control character of it is printed."""

    spans: tuple[Span, ...]

    @classmethod
    def of(cls, text: str, style: str = "") -> "Paragraph":
        return cls((Span(text, style),))


@dataclass(frozen=True, slots=True)
class Table:
    """A table as kubectl prints it: headers above, no lines. A column `>NAME` is aligned right, for numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Part = Paragraph | Table


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table. None and empty cells are shown as `-`."""
    cells = (tuple("-" if cell in (None, "") else bare(str(cell)) for cell in row) for row in rows)
    return Table(tuple(columns), tuple(cells))


def lines_of(parts: Iterable[Part], width: int, *, colours: bool = False, headers: bool = True) -> list[str]:
    """The parts below each other, without trailing spaces. `width`: of the terminal, in characters."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Paragraph):
            found += _paragraph(part, width, colours=colours)
        else:
            found += _table(part, width, colours=colours, headers=headers)
    return found


def _paragraph(text: Paragraph, width: int, *, colours: bool) -> Iterator[str]:
    """The lines of the text, folded between words."""
    letters = [(letter, span.style) for span in text.spans for letter in span.text]
    for line in "".join(letter for letter, _ in letters).split("\n"):
        for piece in _folded(line, width):
            yield _painted(letters[piece], colours=colours)
        letters = letters[len(line) + 1 :]


def _folded(line: str, width: int) -> Iterator[slice]:
    """The pieces into which a line is folded. The spaces between two pieces belong to neither."""
    begin = 0
    while len(line) - begin > width:
        at = line.rfind(" ", begin + 1, begin + width + 1)
        at = at if at > 0 else line.find(" ", begin)
        if at < 0:
            break
        yield slice(begin, begin + len(line[begin:at].rstrip()))
        begin = len(line) - len(line[at:].lstrip())
    yield slice(begin, len(line))


def _painted(letters: Sequence[tuple[str, str]], *, colours: bool) -> str:
    """One line. A run of characters with one style is painted as a whole."""
    runs = ((style, "".join(letter for letter, _ in run)) for style, run in groupby(letters, key=itemgetter(1)))
    return "".join(_paint(bare(text), style, colours=colours) for style, text in runs).rstrip()


def _paint(text: str, style: str, *, colours: bool) -> str:
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if colours and style and text else text


def _table(given: Table, width: int, *, colours: bool, headers: bool) -> Iterator[str]:
    names = [column.lstrip(">") for column in given.columns]
    head = [tuple(names)] if headers else []
    widths = _widths([*head, *given.rows] or [tuple(names)], width)
    if widths is None:
        yield from _blocks(names, given.rows, width, colours=colours)
        return
    right = [column.startswith(">") for column in given.columns]
    for row in head:
        yield from _row(row, widths, right, style="bold" if colours else "")
    for row in given.rows:
        yield from _row(row, widths, right)


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The widths of the columns: as wide as needed, or with the widest ones narrowed, down to their longest word. None
    if that does not suffice."""
    columns = list(zip(*rows, strict=True))
    wanted = [max(map(len, cells)) for cells in columns]
    least = [max(len(word) for cell in cells for word in cell.split() or ("",)) for cells in columns]
    over = sum(wanted) + len(GAP) * (len(wanted) - 1) - width
    while over > 0:
        column = max(range(len(wanted)), key=lambda index: (wanted[index] > least[index]) * wanted[index])
        if wanted[column] <= least[column]:
            return None
        wanted[column] -= 1
        over -= 1
    return wanted


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[bool], style: str = "") -> Iterator[str]:
    cells = [_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        pieces = (cell[number] if number < len(cell) else "" for cell in cells)
        set_in = (
            piece.rjust(width) if ends else piece.ljust(width)
            for piece, width, ends in zip(pieces, widths, right, strict=True)
        )
        yield _paint(GAP.join(set_in).rstrip(), style, colours=bool(style))


def _cell(text: str, width: int) -> list[str]:
    return [text[piece] for piece in _folded(text, width)]


def _blocks(names: Sequence[str], rows: Iterable[Sequence[str]], width: int, *, colours: bool) -> Iterator[str]:
    """A line for each cell, and an empty line between two rows."""
    room = max(map(len, names)) + len(GAP)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name, cell in zip(names, row, strict=True):
            first, *others = _cell(cell, max(1, width - room))
            yield _paint(name, "bold", colours=colours) + " " * (room - len(name)) + first
            yield from (" " * room + other for other in others)
