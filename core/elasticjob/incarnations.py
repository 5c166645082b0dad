"""How a status names many workers, in a word for each run of them: `0-4/9f3c01d2.0 5/77ab4e10.0 6-1023/9f3c01d2.0`.

A thousand members are a few words so, for `kubectl describe` and for every sidecar that is told of them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, overload

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

RUN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?/([^\s/]{1,32})")
MOST = 2**16  # more than a job may have
FORM = "incarnations are written as index/id or first-last/id, with a space between two"


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of one worker's sidecar. The id tells it from all others of its index, and from no other worker's: pods
    made at once share theirs."""

    index: int
    id: str


class Run(NamedTuple):
    """Workers of indices that follow each other, all with the same id."""

    first: int
    last: int
    id: str

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}/{self.id}" if self.first == self.last else f"{self.first}-{self.last}/{self.id}"


class Incarnations(Sequence[Incarnation]):
    """In a given order, kept as runs: a sidecar finds its place among a thousand without looking at each."""

    __slots__ = ("runs",)

    def __init__(self, incarnations: Iterable[Incarnation] = ()) -> None:
        self.runs = tuple(_runs(incarnations))

    @classmethod
    def read(cls, text: Any) -> "Incarnations":
        """From the form that `str` gives, or from what they are. Raises ValueError."""
        if isinstance(text, Incarnations):
            return text
        if isinstance(text, tuple) and all(isinstance(one, Incarnation) for one in text):
            return cls(text)
        made = cls()
        made.runs = tuple(map(_run, text.split(" "))) if isinstance(text, str) and text else ()
        if not isinstance(text, str) or len(made) > MOST:
            raise ValueError(FORM)
        return made

    def place_of(self, incarnation: Incarnation) -> int | None:
        """Which it is, None if it is none of them."""
        before = 0
        for run in self.runs:
            if run.id == incarnation.id and run.first <= incarnation.index <= run.last:
                return before + incarnation.index - run.first
            before += run.size
        return None

    @overload
    def __getitem__(self, place: int) -> Incarnation: ...
    @overload
    def __getitem__(self, place: slice) -> "Incarnations": ...
    def __getitem__(self, place: int | slice) -> "Incarnation | Incarnations":
        if isinstance(place, slice):
            return Incarnations(tuple(self)[place])
        left = place if place >= 0 else place + len(self)
        for run in self.runs if left >= 0 else ():
            if left < run.size:
                return Incarnation(run.first + left, run.id)
            left -= run.size
        raise IndexError(place)

    def __iter__(self) -> Iterator[Incarnation]:
        return (Incarnation(index, run.id) for run in self.runs for index in range(run.first, run.last + 1))

    def __len__(self) -> int:
        return sum(run.size for run in self.runs)

    def __contains__(self, one: object) -> bool:
        return isinstance(one, Incarnation) and self.place_of(one) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Incarnations) and other.runs == self.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __str__(self) -> str:
        return " ".join(map(str, self.runs))

    def __repr__(self) -> str:
        return f"Incarnations({self})"


def _runs(incarnations: Iterable[Incarnation]) -> Iterator[Run]:
    first = last = -1
    id = ""
    for one in incarnations:
        if id and (one.index, one.id) == (last + 1, id):
            last = one.index
            continue
        if id:
            yield Run(first, last, id)
        first, last, id = one.index, one.index, one.id
    if id:
        yield Run(first, last, id)


def _run(word: str) -> Run:
    found = RUN.fullmatch(word)
    if found is None:
        raise ValueError(FORM)
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    if found[2] is not None and last <= first:
        raise ValueError(FORM)
    return Run(first, last, found[3])


IncarnationsField = Annotated[
    Incarnations,
    PlainValidator(Incarnations.read),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string"}),
]


def read_replacements(text: Any) -> dict[int, int]:
    """By index, from `index/number` or `first-last/number` words. Raises ValueError."""
    if isinstance(text, dict):
        return text
    words = Incarnations.read(text)
    if not all(run.id.isascii() and run.id.isdecimal() for run in words.runs):
        raise ValueError("replacements are written as index/number or first-last/number, with a space between two")
    return {one.index: int(one.id) for one in words}


def written_replacements(replacements: dict[int, int]) -> str:
    return str(Incarnations(Incarnation(index, str(number)) for index, number in sorted(replacements.items())))


Replacements = Annotated[
    dict[int, int],
    PlainValidator(read_replacements),
    PlainSerializer(written_replacements, return_type=str),
    WithJsonSchema({"type": "string"}),
]
