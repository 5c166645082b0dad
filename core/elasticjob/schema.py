# SPDX-License-Identifier: Apache-2.0
"""How the API's types are read and written as JSON, and how CEL rules are added to their schema."""

from collections.abc import Mapping, Sized
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel

from elasticjob.members import Members, read_replacements, written_replacements

PACKED_LENGTH = 2**18  # of as many members as a job may have, no two of which share an id
PACKED = {"type": "string", "maxLength": PACKED_LENGTH}
INVALID, FORBIDDEN = "FieldValueInvalid", "FieldValueForbidden"  # the second: what may not be changed


class Model(BaseModel):
    """camelCase in JSON, snake_case in Python; unknown fields of a newer version are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    @classmethod
    def parse(cls, body: Mapping[str, Any] | None) -> Self:
        """Read `body`, an object of the API server; absent means empty. Raises pydantic.ValidationError."""
        return cls.model_validate(body or {})

    def dump(self) -> dict[str, Any]:
        """This object as JSON, absent optional fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def is_empty(value: Sized) -> bool:
    """For a field's `exclude_if`: people who read the object are spared a line that says nothing."""
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
    """A CEL rule; a message that starts with a quote or a variable is an expression itself.

    `reason`: what programs read of a refusal; kubectl begins the message with it.
    """
    key = "messageExpression" if ".format(" in message else "message"
    return {"rule": expression, key: message, "reason": reason} | ({"fieldPath": field_path} if field_path else {})


def validations(*rules: dict[str, str]) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}
