# SPDX-License-Identifier: Apache-2.0
"""Digits jobs whose processes record their steps: the example, and one whose processes live through changes."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from cluster_rounds.digits import SIDES as DIGITS
from cluster_rounds.digits import Side, Training, digits

from e2e.job import STARTED_SECONDS
from e2e.kube import Object, wait_until
from elasticjob.indices import read_indices
from elasticjob.members import Members

RECORD, LIVE = (Path(__file__).with_name(name) for name in ("record.py", "live_digits.py"))
MOUNT = "/bench"
JOB = "elasticjob/digits"


def recorded(side: Side) -> Side:
    """The side, with its steps recorded beside the example's own script."""

    def objects(namespace: str, replicas: int, env: Mapping[str, str]) -> list[Object]:
        (job,) = side.objects(namespace, replicas, env)
        return with_script(job, RECORD, "train.py")

    return side._replace(objects=objects, recorded=True)


def live(at_minimum: bool, spares: int) -> Side:
    """Processes that live through changes. `at_minimum`: the job trains with no worker less."""

    def objects(namespace: str, replicas: int, env: Mapping[str, str]) -> list[Object]:
        job = digits(namespace, replicas, env)
        job["spec"] |= {"minReplicas": replicas if at_minimum else 1, "spareReplicas": spares}
        job["spec"].pop("warmRestart", None)  # its default
        return with_script(job, LIVE)

    return Side(JOB, objects, spares=spares, live=True, recorded=True)


def with_script(job: Object, script: Path, *arguments: str) -> list[Object]:
    """The job with that command, and the ConfigMap with its files."""
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["command"] = ["torchrun", f"{MOUNT}/{script.name}", *arguments]
    container["volumeMounts"].append({"name": "bench", "mountPath": MOUNT})
    pod["volumes"].append({"name": "bench", "configMap": {"name": "bench"}})
    files = {file.name: file.read_text() for file in (RECORD, LIVE)}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bench"}, "data": files}, job]


SIDES = {
    "live": live(at_minimum=False, spares=0),
    "live_spare": live(at_minimum=True, spares=1),
    "warm": recorded(DIGITS["warm"]),
    "fresh": recorded(DIGITS["ours"]),
}


def wait_until_known(training: Training) -> None:
    """Until the status says that all members live through changes, and the spares wait with processes that are ready.
    Raises Deadline."""

    def read(what: str) -> Object:
        found: Object = json.loads(training.namespace.kubectl("get", what, "--output=json"))
        return found

    def status() -> Object:
        found: Object = read(JOB).get("status", {})
        return found

    def ready_spares(members: Collection[int]) -> int:
        records = [one["spec"] for one in read("elasticworkers")["items"] if one["spec"]["index"] not in members]
        return sum(bool((one.get("request") or {}).get("live")) for one in records)

    def known() -> bool:
        agreed = status().get("rendezvous", {})
        members = sorted(member.index for member in Members.read(agreed.get("participants", "")))
        lives = list(read_indices(agreed.get("live", "")))
        return bool(members) and lives == members and ready_spares(members) == training.side.spares

    wait_until("all members to be known to live through changes", known, STARTED_SECONDS, status)
