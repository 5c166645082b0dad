"""How a status names many workers: with a word for each, `0/9f3c... 1/ab12...`.

As a list of objects a thousand members would be two thousand lines of `kubectl describe`, and half as many bytes again
for every sidecar.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

NUMBERS = re.compile(r"(?:[0-9]{1,9}/[0-9]{1,9}(?: (?!$)|$))*")
TEXT = re.compile(r"(?:[0-9]{1,9}/[^\s/]{1,32}(?: (?!$)|$))*")


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of one worker's sidecar: the worker's index, and the id that the sidecar has since its start."""

    index: int
    id: str


def read(text: Any) -> tuple[Incarnation, ...]:
    """From the form that `written` gives. Raises ValueError."""
    if isinstance(text, tuple) and all(isinstance(one, Incarnation) for one in text):
        return text
    if not isinstance(text, str) or not TEXT.fullmatch(text):
        raise ValueError("incarnations are written as index/id, with a space between two")
    parts = (word.partition("/") for word in text.split())
    return tuple(Incarnation(int(index), id) for index, _, id in parts)


def written(incarnations: tuple[Incarnation, ...]) -> str:
    """Each as index/id, in the given order."""
    return " ".join(f"{one.index}/{one.id}" for one in incarnations)


Incarnations = Annotated[
    tuple[Incarnation, ...],
    PlainValidator(read),
    PlainSerializer(written, return_type=str),
    WithJsonSchema({"type": "string"}),
]


def read_replacements(text: Any) -> dict[int, int]:
    """By index, from `index/number` words. Raises ValueError."""
    if isinstance(text, dict):
        return text
    if not isinstance(text, str) or not NUMBERS.fullmatch(text):
        raise ValueError("replacements are written as index/number, with a space between two")
    parts = (word.partition("/") for word in text.split())
    return {int(index): int(number) for index, _, number in parts}


def written_replacements(replacements: dict[int, int]) -> str:
    return " ".join(f"{index}/{number}" for index, number in replacements.items())


Replacements = Annotated[
    dict[int, int],
    PlainValidator(read_replacements),
    PlainSerializer(written_replacements, return_type=str),
    WithJsonSchema({"type": "string"}),
]
