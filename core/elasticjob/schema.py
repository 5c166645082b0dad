# SPDX-License-Identifier: Apache-2.0
"""How the API's types are read from and written as JSON, and how CEL rules are added to their schema."""

from collections.abc import Mapping, Sized
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel

from elasticjob.members import Members, read_replacements, written_replacements

PACKED_LENGTH = 2**18  # the packed form of the most members a job can have, each with an id of its own
PACKED = {"type": "string", "maxLength": PACKED_LENGTH}
INVALID, FORBIDDEN = "FieldValueInvalid", "FieldValueForbidden"  # the second: for fields that must not change


class Model(BaseModel):
    """An API type: camelCase in JSON, snake_case in Python. Unknown fields of a newer version are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    @classmethod
    def parse(cls, body: Mapping[str, Any] | None) -> Self:
        """Read `body`, JSON of the API server; None is read as empty. Raises pydantic.ValidationError."""
        return cls.model_validate(body or {})

    def dump(self) -> dict[str, Any]:
        """This object as JSON, without absent optional fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def is_empty(value: Sized) -> bool:
    """For a field's `exclude_if`: an empty value would be a useless line for people."""
    return not len(value)


MembersField = Annotated[
    Members,
    PlainValidator(Members.read),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(PACKED),
]
Replacements = Annotated[
    dict[int, int],
    PlainValidator(read_replacements),
    PlainSerializer(written_replacements, return_type=str),
    WithJsonSchema(PACKED),
]


def rule(expression: str, message: str, field_path: str | None = None, *, reason: str = INVALID) -> dict[str, str]:
    """A CEL rule. A message that starts with a quote or a variable is itself an expression.

    `reason`: the refusal's reason for programs; kubectl begins its message with it.
    """
    key = "messageExpression" if ".format(" in message else "message"
    return {"rule": expression, key: message, "reason": reason} | ({"fieldPath": field_path} if field_path else {})


def validations(*rules: dict[str, str]) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}
