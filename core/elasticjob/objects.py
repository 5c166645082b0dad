# SPDX-License-Identifier: Apache-2.0
"""Objects of the API server as parsed JSON. Only the models validate them."""

import json
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


def in_one_order(value: Any) -> Any:
    """JSON with each list of objects sorted: the API server takes another order for no change of a running job."""
    if isinstance(value, dict):
        return {name: in_one_order(field) for name, field in value.items()}
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return sorted(map(in_one_order, value), key=lambda one: json.dumps(one, sort_keys=True))
    return value
