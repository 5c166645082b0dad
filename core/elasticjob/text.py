# SPDX-License-Identifier: Apache-2.0
"""What others wrote, as people may read it."""

import re

_ENDS = re.compile(r"[.;!?](?=\s)")
# ECMA-48: a control sequence, such as a colour; a string that ends with BEL or ST, such as a window's title; one letter
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_LEAST = 0.5  # of the length: a sentence that ends before says too little


def bare(text: str) -> str:
    """`text` without what a terminal obeys: its escape sequences; a space stands for what else is not printable."""
    return "".join(letter if letter.isprintable() else " " for letter in _ESCAPES.sub("", text))


def printable(text: str) -> str:
    """`text` on one line, without what cannot be printed."""
    return text if text.isprintable() else " ".join(bare(text).split())


def plain(text: str, length: int) -> str:
    """The same, with single spaces, and at most `length` characters of it."""
    return cut(" ".join(bare(text).split()), length)


def escaped(text: str) -> str:
    """`text` on one line with what cannot be printed written as Python writes it, such as `\\n`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def cut(text: str, length: int) -> str:
    """At most `length` characters of `text`, cut after a sentence or else a word; "…" stands for the rest."""
    if len(text) <= length:
        return text
    room = text[: length - 1]  # one for the ellipsis, which stands right after what it follows
    sentences = [found.end() for found in _ENDS.finditer(text[:length]) if found.end() <= length - 2]
    if sentences and sentences[-1] >= length * _LEAST:
        return f"{room[: sentences[-1]]} …"
    space = room.rfind(" ")
    return f"{room[:space] if space >= length * _LEAST else room}…"
