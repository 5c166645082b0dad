# SPDX-License-Identifier: Apache-2.0
"""Objects of the API server as parsed JSON. Only the models validate them."""

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]


def is_owned_by(body: Object, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", ()))


def without_nulls(value: Any) -> Any:
    """`value` without null fields: the API server treats them as absent in a pod. Nulls in a list take a position, and
    stay."""
    if isinstance(value, dict):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value
