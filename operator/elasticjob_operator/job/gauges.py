# SPDX-License-Identifier: Apache-2.0
"""The state of one job in numbers, for the metrics of each job. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from elasticjob.members import Members
from elasticjob.objects import Object
from elasticjob.terms import Outcome
from elasticjob_operator.job.finishing import FINISHING
from elasticjob_operator.job.network import CONNECTED
from elasticjob_operator.job.stalls import PROGRESSING


class JobGauges(NamedTuple):
    """The state of one job, read from its newest known object. `numbers`: by the names of the metrics."""

    namespace: str
    name: str
    phase: str
    numbers: Mapping[str, int]
    step: int | None
    reported: Mapping[str, float]
    avoided_nodes: tuple[str, ...]


def gauges_of(job: Object) -> JobGauges:
    """The API server has filled in the spec's defaults. A job without a status is new."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    agreed, progress = status.get("rendezvous") or {}, status.get("progress") or {}
    done = {member.index for field in ("finished", "finishing") for member in _members(agreed.get(field))}
    closed = agreed.get("outcome") == Outcome.CLOSED  # its last round trains on
    conditions = {(one.get("type"), one.get("status")) for one in status.get("conditions", ())}
    least = 0 if (FINISHING, "True") in conditions else max(1, spec.get("minReplicas", 1) - len(done))
    numbers = {
        "world_size": len(_members(agreed.get("participants"))) if closed else agreed.get("worldSize", 0),
        "waiting": agreed.get("waiting", 0),
        "spares": status.get("spares", 0),
        "replicas": spec.get("replicas", 0),
        "spare_replicas": spec.get("spareReplicas", 0),
        "min_replicas": least,
        "round": agreed.get("round", 0),
        "restarts": status.get("restarts", 0),
        "max_restarts": spec.get("maxRestarts", 3),
        "invalid_records": int(("WorkersValid", "False") in conditions),
        "hangs": int((PROGRESSING, "False") in conditions),
        "network_fault": int((CONNECTED, "False") in conditions),
    }
    meta, phase = job["metadata"], status.get("phase", "Pending")
    avoided = () if phase in ("Complete", "Failed") else _avoided(status)
    step, reported = progress.get("step"), progress.get("metrics") or {}
    return JobGauges(meta["namespace"], meta["name"], phase, numbers, step, reported, avoided)


def _avoided(status: Object) -> tuple[str, ...]:
    return tuple(one["node"] for one in status.get("nodeFailures") or () if one.get("avoidedUntil"))


def _members(text: Any) -> Members:
    """The members in `text`, none if it is unreadable: a bad status must not hide the metrics of other jobs."""
    try:
        return Members.read(text)
    except ValueError:
        return Members()
