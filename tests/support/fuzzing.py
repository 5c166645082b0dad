# SPDX-License-Identifier: Apache-2.0
"""What the fuzz tests share: how many inputs they try, and the JSON that they try.

`make unit` tries a fixed few of each kind, always the same ones; `make fuzz EXAMPLES=n` tries n new ones.
"""

import json
import os
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Json = Any
SHORT = 40

tried: Counter[str] = Counter()

_always: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
settings.register_profile("short", max_examples=SHORT, derandomize=True, **_always)
settings.register_profile("fuzz", max_examples=int(os.environ.get("EXAMPLES") or 2000), print_blob=True, **_always)

# what tends to break readers of numbers and texts
numbers = st.one_of(
    st.integers(-2, 5),
    st.sampled_from([2**31, 2**53, 2**63, -(2**63), 10**30, 1e300, -0.0, 0.5, float("inf"), float("nan")]),
    st.integers(),
    st.floats(),
)
texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["", " ", "null", "0", "NaN", "\x00", "\u202e", "a\nb", "../..", "é" * 300, "x" * 5000]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Json] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=8
)


def spoiled(fields: dict[str, st.SearchStrategy[Json]]) -> st.SearchStrategy[Json]:
    """Objects of these fields, each as it should be, or anything, or absent; and other things in the object's place."""
    some = st.fixed_dictionaries({}, optional={name: st.one_of(good, good, values) for name, good in fields.items()})
    most = st.fixed_dictionaries(fields).flatmap(
        lambda whole: st.dictionaries(st.sampled_from(sorted(fields)), values, max_size=1).map(lambda one: whole | one)
    )
    return st.one_of(most, most, some, st.fixed_dictionaries(fields), values)


def encoded(value: Json) -> bytes:
    """As Python writes JSON: NaN and Infinity as words that JSON does not have."""
    return json.dumps(value).encode("utf-8", "surrogatepass")
