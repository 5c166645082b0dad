# SPDX-License-Identifier: Apache-2.0
"""The job of the side `live`, and when it is ready for a cause: once it is known to live through changes."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from cluster_rounds.digits import Side, Training, digits

from e2e.job import STARTED_SECONDS
from e2e.kube import Object, wait_until
from elasticjob.indices import read_indices
from elasticjob.members import Members

SCRIPT = Path(__file__).with_name("live_digits.py")
MOUNT = "/bench"
NAME = "elasticjob/digits"


def objects(namespace: str, replicas: int, env: Mapping[str, str], at_minimum: bool, spares: int) -> list[Object]:
    """The digits job with the script of processes that live on. `at_minimum`: it trains with no worker less."""
    config = {"metadata": {"name": "live"}, "data": {SCRIPT.name: SCRIPT.read_text()}}
    job = digits(namespace, replicas, env)
    job["spec"] |= {"minReplicas": replicas if at_minimum else 1, "spareReplicas": spares}
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["command"] = ["torchrun", f"{MOUNT}/{SCRIPT.name}"]
    container["volumeMounts"].append({"name": "live", "mountPath": MOUNT})
    pod["volumes"].append({"name": "live", "configMap": {"name": "live"}})
    return [{"apiVersion": "v1", "kind": "ConfigMap", **config}, job]


def side(at_minimum: bool, spares: int) -> Side:
    return Side(NAME, partial(objects, at_minimum=at_minimum, spares=spares), spares=spares, live=True)


SIDES = {"live": side(at_minimum=False, spares=0), "live_spare": side(at_minimum=True, spares=1)}


def wait_until_known(training: Training) -> None:
    """Until the status says that all members live through changes, and that the spares wait. Raises Deadline."""

    def status() -> Object:
        found: Object = json.loads(training.namespace.kubectl("get", NAME, "--output=json")).get("status", {})
        return found

    def known() -> bool:
        found = status()
        agreed = found.get("rendezvous", {})
        members = sorted(member.index for member in Members.read(agreed.get("participants", "")))
        live = list(read_indices(agreed.get("live", "")))
        return bool(members) and live == members and found.get("spares", 0) == training.side.spares

    wait_until("all members to be known to live through changes", known, STARTED_SECONDS, status)
