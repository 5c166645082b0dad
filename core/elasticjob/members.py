# SPDX-License-Identifier: Apache-2.0
"""Members of the rendezvous, and their compact form in a status. A member is one life of one worker's sidecar.

`0-4/9f3c01d2.0 5/77ab4e10.0 6-1023/9f3c01d2.0`: a thousand members take a few words, one per run of indices with the
same id, in `kubectl describe` and for every sidecar that reads them. With ranks laid out by node labels there may be as
many runs as members. Too many for a person to read are written as `order:AAUAA... 5*9f3c01d2.0 1*77ab4e10.0
1018*9f3c01d2.0`: the indices in order, two bytes each in base64, then the ids by index, each with its number of
members. Only the standard library is used, as the rendezvous uses this module.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from struct import pack, unpack
from typing import Any, NamedTuple, overload

RUN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?/([^\s/]{1,32})")
MAX_MEMBERS = 2**16  # more than a job can have
READABLE_RUNS = 32
ORDER, PACKED_INDICES = "order:", 2**16  # two bytes
SAME = re.compile(r"([1-9][0-9]{0,5})\*([^\s/]{1,32})")
FORM = (
    "members are written as index/id or first-last/id, with a space between two, or as order: with their indices in "
    "base64 and then count*id"
)


class Member(NamedTuple):  # not a dataclass: hashing those took a third of a step with a thousand workers
    """One worker in one incarnation, which is one life of its sidecar.

    The id is unique among the incarnations of an index; pods made at once share it.
    """

    index: int  # type: ignore[assignment]  # nobody calls tuple.index
    id: str

    @property
    def pod(self) -> tuple[int, str]:
        """What all incarnations in one pod have in common: the index, and the id without its last part."""
        return self.index, self.id.rpartition(".")[0]


class Run(NamedTuple):
    """Workers with consecutive indices and the same id."""

    first: int
    last: int
    id: str

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}/{self.id}" if self.first == self.last else f"{self.first}-{self.last}/{self.id}"


class Members(Sequence[Member]):
    """An ordered sequence of members, stored as runs: a sidecar finds its rank among a thousand without a scan of
    all."""

    __slots__ = ("runs",)

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.runs = tuple(_runs(members))

    @classmethod
    def read(cls, text: Any) -> "Members":
        """Members from the form that `str` gives, or from an iterable of them. Raises ValueError."""
        if isinstance(text, Members):
            return text
        if isinstance(text, tuple) and all(isinstance(one, Member) for one in text):
            return cls(text)
        made = cls()
        if isinstance(text, str) and text:
            made.runs = _unpacked(text) if text.startswith(ORDER) else tuple(map(_run, text.split(" ")))
        if not isinstance(text, str) or len(made) > MAX_MEMBERS:
            raise ValueError(FORM)
        return made

    def position_of(self, member: Member) -> int | None:
        """The position of `member`, which among participants is its rank; None if it is absent."""
        (index, id), before = member, 0
        for run in self.runs:
            if run.id == id and run.first <= index <= run.last:
                return before + index - run.first
            before += run.size
        return None

    def id_of(self, index: int) -> str | None:
        """The id of the first member with this index; None if there is none."""
        return next((run.id for run in self.runs if run.first <= index <= run.last), None)

    @overload
    def __getitem__(self, position: int) -> Member: ...
    @overload
    def __getitem__(self, position: slice) -> "Members": ...
    def __getitem__(self, position: int | slice) -> "Member | Members":
        if isinstance(position, slice):
            return Members(tuple(self)[position])
        left = position if position >= 0 else position + len(self)
        for run in self.runs if left >= 0 else ():
            if left < run.size:
                return Member(run.first + left, run.id)
            left -= run.size
        raise IndexError(position)

    def __iter__(self) -> Iterator[Member]:
        return (Member(index, run.id) for run in self.runs for index in range(run.first, run.last + 1))

    def __len__(self) -> int:
        return sum(run.size for run in self.runs)

    def __contains__(self, one: object) -> bool:
        return isinstance(one, Member) and self.position_of(one) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and other.runs == self.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __str__(self) -> str:
        words = " ".join(map(str, self.runs))
        if len(self.runs) <= READABLE_RUNS or any(run.last >= PACKED_INDICES for run in self.runs):
            return words
        return min(words, _packed(self), key=len)

    def __repr__(self) -> str:
        return f"Members({self})"


def _runs(members: Iterable[Member]) -> Iterator[Run]:
    first = last = -1
    id = ""
    for one in members:
        if id and (one.index, one.id) == (last + 1, id):
            last = one.index
            continue
        if id:
            yield Run(first, last, id)
        first, last, id = one.index, one.index, one.id
    if id:
        yield Run(first, last, id)


def _packed(members: Members) -> str:
    """The compact form of members in any order; `_unpacked` reads it."""
    indices = pack(f">{len(members)}H", *(one.index for one in members))
    by_index = sorted(members, key=lambda one: one.index)
    ids = (f"{len(list(same))}*{id}" for id, same in groupby(one.id for one in by_index))
    return f"{ORDER}{b64encode(indices).decode()} {' '.join(ids)}"


@lru_cache(maxsize=4)  # consecutive statuses of a job mostly have the same members
def _unpacked(text: str) -> tuple[Run, ...]:
    """The runs in a packed text. Raises ValueError."""
    order, *words = text.removeprefix(ORDER).split(" ")
    try:
        packed = b64decode(order, validate=True)
    except ValueError:
        raise ValueError(FORM) from None
    found = [(int(one[1]), one[2]) for one in map(SAME.fullmatch, words) if one is not None]
    if len(found) < len(words) or not found or 2 * sum(count for count, _ in found) != len(packed):
        raise ValueError(FORM)
    indices = unpack(f">{len(packed) // 2}H", packed)
    by_index = sorted(range(len(indices)), key=indices.__getitem__)
    ids = dict(zip(by_index, chain.from_iterable(repeat(id, count) for count, id in found), strict=True))
    return tuple(_runs(Member(index, ids[place]) for place, index in enumerate(indices)))


@lru_cache(maxsize=4096)
def _run(word: str) -> Run:
    """The run in one word. Cached, as the same words are read again and again."""
    found = RUN.fullmatch(word)
    if found is None:
        raise ValueError(FORM)
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    if found[2] is not None and last <= first:
        raise ValueError(FORM)
    return Run(first, last, found[3])


def replacement_runs(text: Any) -> Members:
    """From `index/number` or `first-last/number` words: the replacement number of each index, in place of an id. A
    sidecar looks up one index now and then, and receives all at each change. Raises ValueError."""
    words = Members.read(text)
    if not all(run.id.isascii() and run.id.isdecimal() for run in words.runs):
        raise ValueError("replacements are written as index/number or first-last/number, with a space between two")
    return words


def read_replacements(text: Any) -> dict[int, int]:
    """Replacement numbers by index, from the same words. Raises ValueError."""
    return text if isinstance(text, dict) else {index: int(number) for index, number in replacement_runs(text)}


def written_replacements(replacements: dict[int, int]) -> str:
    return str(Members(Member(index, str(number)) for index, number in sorted(replacements.items())))
