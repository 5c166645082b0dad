# SPDX-License-Identifier: Apache-2.0
"""A node of the cluster: its taints and its labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from elasticjob.objects import Object
from elasticjob.reading.shared import shared, word

CORDONED = "node.kubernetes.io/unschedulable"
KEEP_AWAY = frozenset({"NoSchedule", "NoExecute"})

Labels = Mapping[str, str]


class Taint(NamedTuple):
    """A taint, which keeps pods off a node."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """`ends`: it only delays the eviction."""

    key: str
    operator: str
    value: str
    effect: str
    ends: bool

    @classmethod
    def read(cls, body: Object) -> "Toleration":
        key, operator, value, effect = (word(body.get(field)) for field in ("key", "operator", "value", "effect"))
        return cls(key, operator, value, effect, ends=body.get("tolerationSeconds") is not None)

    def covers(self, taint: Taint) -> bool:
        """Whether it tolerates `taint`, by the scheduler's rules."""
        if self.effect not in ("", taint.effect) or self.ends or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or self.value == taint.value


@dataclass(frozen=True, slots=True)
class Node:
    """`version`: its resourceVersion. `labels`: all of them, as a job may name any. `taints`: those that keep pods off
    it, including the one that the cluster adds to a cordoned node a little later."""

    name: str
    version: int
    labels: Labels
    taints: tuple[Taint, ...]

    @classmethod
    def read(cls, body: Object) -> "Node":
        spec, labels = body.get("spec", {}), body["metadata"].get("labels") or {}
        found = {
            Taint(word(one["key"]), word(one.get("value")), word(one["effect"]))
            for one in spec.get("taints") or ()
            if one["effect"] in KEEP_AWAY
        }
        if spec.get("unschedulable"):
            found.add(Taint(CORDONED, "", "NoSchedule"))
        known = {word(key): word(value) for key, value in labels.items()}
        version = int(body["metadata"].get("resourceVersion", 0))
        return cls(word(body["metadata"]["name"]), version, known, shared(tuple(sorted(found))))
