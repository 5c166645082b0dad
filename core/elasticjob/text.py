# SPDX-License-Identifier: Apache-2.0
"""Text from others, made fit to be shown to people."""

import re

_ENDS = re.compile(r"[.;!?](?=\s)")
# ECMA-48: a control sequence, such as a colour; a string that ends with BEL or ST, such as a window title; a letter
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_LEAST = 0.5  # of the length: a cut at an earlier sentence would say too little


def bare(text: str) -> str:
    """`text` without terminal escape sequences; a space replaces any other unprintable character."""
    return "".join(letter if letter.isprintable() else " " for letter in _ESCAPES.sub("", text))


def printable(text: str) -> str:
    """`text` on one line, without unprintable characters."""
    return text if text.isprintable() else " ".join(bare(text).split())


def plain(text: str, length: int) -> str:
    """`text` on one line, printable, with single spaces, cut to `length` characters."""
    return cut(" ".join(bare(text).split()), length)


def escaped(text: str) -> str:
    """`text` on one line with what cannot be printed written as Python writes it, such as `\\n`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def cut(text: str, length: int) -> str:
    """At most `length` characters of `text`, cut after a sentence or else a word; "…" replaces the rest."""
    if len(text) <= length:
        return text
    room = text[: length - 1]  # one for the ellipsis, which follows the text without a space
    sentences = [found.end() for found in _ENDS.finditer(text[:length]) if found.end() <= length - 2]
    if sentences and sentences[-1] >= length * _LEAST:
        return f"{room[: sentences[-1]]} …"
    space = room.rfind(" ")
    return f"{room[:space] if space >= length * _LEAST else room}…"
