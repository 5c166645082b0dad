"""How a status names many workers: with a word for each, `0/9f3c... 1/ab12...`.

As a list of objects a thousand members would be two thousand lines of `kubectl describe`, and half as many bytes again
for every sidecar.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, overload

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

NUMBERS = re.compile(r"(?:[0-9]{1,9}/[0-9]{1,9}(?: (?!$)|$))*")
TEXT = re.compile(r"(?:[0-9]{1,9}/[^\s/]{1,32}(?: (?!$)|$))*")


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of one worker's sidecar: the worker's index, and the id that the sidecar has since its start."""

    index: int
    id: str

    def __str__(self) -> str:
        return f"{self.index}/{self.id}"


class Incarnations(Sequence[Incarnation]):
    """Each is read when it is looked at: of a thousand members a sidecar looks for its own place and at the first."""

    __slots__ = ("_words",)

    def __init__(self, incarnations: Iterable[Incarnation] = ()) -> None:
        self._words = tuple(map(str, incarnations))

    @classmethod
    def read(cls, text: Any) -> "Incarnations":
        """From the form that `str` gives, or from what they are. Raises ValueError."""
        if isinstance(text, Incarnations):
            return text
        if isinstance(text, tuple) and all(isinstance(one, Incarnation) for one in text):
            return cls(text)
        if not isinstance(text, str) or not TEXT.fullmatch(text):
            raise ValueError("incarnations are written as index/id, with a space between two")
        return cls._of(tuple(text.split()))

    @classmethod
    def _of(cls, words: tuple[str, ...]) -> "Incarnations":
        made = cls()
        made._words = words
        return made

    def place_of(self, incarnation: Incarnation) -> int | None:
        """Which it is, None if it is none of them."""
        word = str(incarnation)
        return self._words.index(word) if word in self._words else None

    @overload
    def __getitem__(self, place: int) -> Incarnation: ...
    @overload
    def __getitem__(self, place: slice) -> "Incarnations": ...
    def __getitem__(self, place: int | slice) -> "Incarnation | Incarnations":
        return self._of(self._words[place]) if isinstance(place, slice) else _incarnation(self._words[place])

    def __iter__(self) -> Iterator[Incarnation]:
        return map(_incarnation, self._words)

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, one: object) -> bool:
        return isinstance(one, Incarnation) and str(one) in self._words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Incarnations) and other._words == self._words

    def __hash__(self) -> int:
        return hash(self._words)

    def __str__(self) -> str:
        return " ".join(self._words)

    def __repr__(self) -> str:
        return f"Incarnations({self})"


def _incarnation(word: str) -> Incarnation:
    index, _, id = word.partition("/")
    return Incarnation(int(index), id)


IncarnationsField = Annotated[
    Incarnations,
    PlainValidator(Incarnations.read),
    PlainSerializer(str, return_type=str),
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
