# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: what somebody may have written into an ElasticWorker."""

from hypothesis import strategies as st

from support.fuzzing import Json, spoiled, texts
from support.operator_objects import CERTIFICATES

IDS = st.sampled_from([*CERTIFICATES, "f" * 32])
SMALL = st.integers(0, 3)
REQUESTS = spoiled(
    {
        "type": st.sampled_from(["Join", "Join", "Join", "Leave", "Finish", "Close"]),
        "after": SMALL,
        "round": SMALL,
        "cause": st.sampled_from(["Started", "WorkerFailed", "AgentLost"]) | texts,
    }
)
IMPORTS = st.sampled_from(["torch,sklearn.datasets", ""]) | texts
STATUSES = spoiled(
    {"heartbeat": SMALL, "round": SMALL, "rank": SMALL, "metrics": st.just({"loss": 0.5}), "imports": IMPORTS}
)


def specs(index: int) -> st.SearchStrategy[Json]:
    own = st.just(f"10.0.0.{index}:27601")
    addresses = st.one_of(own, own, own, st.sampled_from(["10.0.0.9:27601", "[::1]:27601", "x:1", "10.0.0.0:99999"]))
    fields = {"job": st.just("digits"), "index": st.just(index), "id": IDS, "address": addresses, "request": REQUESTS}
    return st.one_of(spoiled(fields), spoiled(fields | {"certificate": texts})).map(certified)


def certified(spec: Json) -> Json:
    """With the certificate that its id is the hash of, where there is one and no other is given."""
    if not isinstance(spec, dict) or not isinstance(spec.get("id"), str):
        return spec
    return {"certificate": CERTIFICATES.get(spec["id"], ""), **spec}
