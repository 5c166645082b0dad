# SPDX-License-Identifier: Apache-2.0
"""The fields of messages: what each may hold, and how a message is read from JSON or a query and written again.

A message is a frozen dataclass whose fields are annotated with a type, a rule and a meaning. It is checked whenever it
is made: by the sender and by the reader. This module knows no call, and sends nothing.
"""

from __future__ import annotations

import dataclasses
import math
import re
import reprlib
import typing
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from elasticjob_torch.wire.limits import MAX_JSON_INTEGER

if typing.TYPE_CHECKING:
    from collections.abc import Mapping

M = TypeVar("M", bound="Message")

_DIGITS = re.compile("-?[0-9]{1,18}")


class InvalidMessage(ValueError):
    """A message has an invalid field. The sentence names the field and says what it may hold."""


class Fault(NamedTuple):
    """What is wrong: ``where`` in the field (empty: all of it), what is expected, and what is there."""

    where: str
    right: str
    found: Any


class Rule:
    """What a field may hold; `str()` says it in words."""

    def holds(self, value: Any) -> bool:
        """Say whether a field may hold the value."""
        raise NotImplementedError

    def fault(self, value: Any) -> Fault | None:
        """Return what is wrong with the value, None if a field may hold it."""
        return None if self.holds(value) else Fault("", str(self), value)

    def read(self, value: Any) -> Any:
        """Return the field's value for a JSON value. An unfit value is returned unchanged."""
        return value

    def parse(self, text: str) -> Any:
        """Return the field's value for a query's text. An unfit value is returned unchanged."""
        return self.read(text)


@dataclass(frozen=True)
class Whole(Rule):
    """A whole number."""

    least: int = 0
    most: int = MAX_JSON_INTEGER

    def holds(self, value: Any) -> bool:
        return _is_number(value, int) and self.least <= value <= self.most

    def parse(self, text: str) -> Any:
        return int(text) if _DIGITS.fullmatch(text) else text

    def __str__(self) -> str:
        return f"whole number from {self.least}" + (f" to {self.most}" if self.most < MAX_JSON_INTEGER else "")


@dataclass(frozen=True)
class Number(Rule):
    """Any number from ``least`` to ``most``; ``open`` excludes the least itself."""

    least: float
    most: float
    open: bool = False

    def holds(self, value: Any) -> bool:
        if not _is_number(value) or (self.open and value <= self.least):
            return False
        return bool(self.least <= value <= self.most)  # NaN compares with nothing

    def parse(self, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    def __str__(self) -> str:
        if self.open:
            return f"number above {self.least:g}, at most {self.most:g}"
        return f"number from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Text(Rule):
    """Text that can be encoded in UTF-8, of at most ``most`` characters; ``pattern`` has to match all of it."""

    most: int | None = None
    least: int = 0
    pattern: str = ""

    def holds(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) < self.least:
            return False
        if (self.most is not None and len(value) > self.most) or not _fits_utf8(value):
            return False
        return not self.pattern or re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return "text" if self.most is None else f"text of {self.least} to {self.most} characters"


@dataclass(frozen=True)
class Truth(Rule):
    """True or false."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, bool)

    def parse(self, text: str) -> Any:
        return {"true": True, "false": False}.get(text, text)

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class OneOf(Rule):
    """One of an enumeration's words; ``or_empty`` also allows an empty text."""

    words: type[Enum]
    or_empty: bool = False

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) and (
            (self.or_empty and value == "") or value in {word.value for word in self.words}
        )

    def read(self, value: Any) -> Any:
        try:
            return self.words(value)
        except ValueError:
            return value

    def __str__(self) -> str:
        return "one of " + ", ".join(str(word.value) for word in self.words)


@dataclass(frozen=True)
class Listed(Rule):
    """A list of at most ``most`` items; ``characters``: of all of them, separated by commas."""

    each: Text
    most: int
    characters: int

    def fault(self, value: Any) -> Fault | None:
        if not isinstance(value, list) or len(value) > self.most:
            return Fault("", str(self), value)
        for index, one in enumerate(value):
            if not self.each.holds(one):
                return Fault(f".{index}", str(self.each), one)
        long = len(",".join(value)) > self.characters
        return Fault("", f"at most {self.characters} characters with the commas between", value) if long else None

    def __str__(self) -> str:
        return f"list of at most {self.most}: {self.each}"


@dataclass(frozen=True)
class Numbers(Rule):
    """Numbers by name. Infinite and NaN values are left out when read: a loss that became NaN is no reason to stop."""

    names: Text
    most: int

    def fault(self, value: Any) -> Fault | None:
        if not isinstance(value, dict) or len(value) > self.most:
            return Fault("", str(self), value)
        for name, number in value.items():
            if not self.names.holds(name):
                return Fault(f".{reprlib.repr(name)}", str(self.names), name)
            if not _is_number(number):
                return Fault(f".{name}", "number", number)
        return None

    def read(self, value: Any) -> Any:
        if not isinstance(value, dict) or len(value) > self.most:
            return value
        return {name: number for name, number in value.items() if not _is_number(number) or _finite(number)}

    def __str__(self) -> str:
        return f"object: {self.names} to number"


@dataclass(frozen=True)
class Inner(Rule):
    """A message inside another message."""

    message: type[Message]

    def holds(self, value: Any) -> bool:
        return isinstance(value, self.message)

    def read(self, value: Any) -> Any:
        return self.message.from_json(value)

    def __str__(self) -> str:
        return "object"


class JsonName(str):
    """A field's name in JSON, if it differs from the attribute's."""

    __slots__ = ()


class Field(NamedTuple):
    """A message's field. ``default`` is `dataclasses.MISSING` if the field is required."""

    name: str
    key: str
    rule: Rule
    meaning: str
    default: Any
    nullable: bool

    @property
    def needed(self) -> bool:
        return self.default is dataclasses.MISSING

    def check(self, value: Any) -> None:
        """Raise InvalidMessage unless the field may hold the value."""
        fault = None if value is None and self.nullable else self.rule.fault(value)
        if fault is not None:
            raise InvalidMessage(f"{self.key}{fault.where}: must be {fault.right}, not {reprlib.repr(fault.found)}")


_known: dict[type, tuple[Field, ...]] = {}


def fields_of(message: type[Message]) -> tuple[Field, ...]:
    """Return the fields of a message's class, in their order."""
    if message not in _known:
        hints = typing.get_type_hints(message, include_extras=True)
        fields: Any = message
        _known[message] = tuple(_field(field, hints[field.name]) for field in dataclasses.fields(fields))
    return _known[message]


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    key, rule, meaning = field.name, None, ""
    for extra in hint.__metadata__:
        if isinstance(extra, Rule):
            rule = extra
        elif isinstance(extra, JsonName):
            key = str(extra)
        else:
            meaning = extra
    if rule is None:
        raise TypeError(f"field {field.name} has no rule")
    make = field.default_factory
    default = field.default if make is dataclasses.MISSING else make()
    return Field(field.name, key, rule, meaning, default, type(None) in typing.get_args(hint.__origin__))


class Message:
    """The base of all messages: frozen dataclasses with arguments by name."""

    def __post_init__(self) -> None:
        """Raise InvalidMessage, which names the field, if a value is not allowed."""
        for field in fields_of(type(self)):
            field.check(getattr(self, field.name))

    @classmethod
    def from_json(cls: type[M], data: Any) -> M:
        """Read a message from a parsed body. Unknown fields are ignored.

        Raises:
            InvalidMessage: a field, which it names, is missing or has an invalid value.
        """
        if not isinstance(data, dict):
            raise InvalidMessage(f"must be a JSON object, not {reprlib.repr(data)}")
        return cls(**{field.name: field.rule.read(data[field.key]) for field in _given(cls, data)})

    @classmethod
    def from_query(cls: type[M], query: Mapping[str, str]) -> M:
        """Read a query's parameters, as `from_json` reads a body."""
        return cls(**{field.name: field.rule.parse(query[field.key]) for field in _given(cls, query)})

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; fields that are None by default, and are None, are left out."""
        values = {field.key: (getattr(self, field.name), field.default) for field in fields_of(type(self))}
        return {
            key: value.to_json() if isinstance(value, Message) else value
            for key, (value, default) in values.items()
            if not (value is None and default is None)
        }

    def to_query(self) -> dict[str, str]:
        """Return the parameters that `from_query` reads, not encoded."""
        values = self.to_json()
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}


def _given(message: type[Message], data: Mapping[str, Any]) -> list[Field]:
    """Return the fields that are present. Raises InvalidMessage if a required one is missing."""
    given = []
    for field in fields_of(message):
        if field.key in data:
            given.append(field)
        elif field.needed:
            raise InvalidMessage(f"{field.key}: is missing; it must be {field.rule}")
    return given


def _fits_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can express
        return False
    return True


def _is_number(value: Any, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer too large for a float
        return False
