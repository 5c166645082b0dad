# SPDX-License-Identifier: Apache-2.0
"""What all parts call an object of the API server: its JSON as it came, checked only where a model reads it."""

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]


def is_owned_by(body: Object, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", ()))


def without_nulls(value: Any) -> Any:
    """`value` without the fields that are null, which are as good as left out, as the API server has it in a pod. In a
    list null takes a place, and stays."""
    if isinstance(value, dict):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value
