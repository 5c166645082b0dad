"""What others wrote, as people may read it."""

import re

_ENDS = re.compile(r"[.;!?](?=\s)")
_LEAST = 0.5  # of the length: a sentence that ends before says too little


def plain(text: str, length: int) -> str:
    """`text` on one line, without what cannot be printed, and at most `length` characters of it."""
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    return cut(" ".join(words), length)


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
