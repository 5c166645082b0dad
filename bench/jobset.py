# SPDX-License-Identifier: Apache-2.0
"""A JobSet of three pods loses the pod with index 0 in mid-training: with c10d, and with the kubernetes backend.

The manifest is examples/jobset; the sides differ in variables alone. With c10d the plug-in is not imported, the
endpoint is the full host name that JobSet gives to pod 0, and the last call is as long as c10d_job.py found to work
best. Seconds are from the deletion: until any pod takes a step again, and until the last one does in the group of all.
A side that forms none within the deadline has no seconds, and a sentence that says how its pods are.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from c10d_job import PORT

from e2e.job import STARTED_SECONDS
from e2e.jobset import FixedJob, jobset
from e2e.kube import BUSY, Object, wait_until
from e2e.scene import new_namespace
from support.waiting import Deadline

PODS = 3
JSON = Path("build/bench-jobset.json")
C10D = {
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ENDPOINT": f"digits-node-0-0.digits.{{namespace}}.svc.cluster.local:{PORT}",
    "PET_RDZV_CONF": "last_call_timeout=20",
    "PYTHONPATH": "",
}
SIDES: Mapping[str, Mapping[str, str]] = {
    "kubernetes": {},
    "c10d": C10D,
    "c10d, store not shared": {**C10D, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
}


class Row(NamedTuple):
    side: str
    again_seconds: float | None  # to the first step of a group of whatever size
    whole_seconds: float | None  # to that of the last pod in the group of all
    agents_died: int
    detail: str = ""


def measure(side: str, deadline: float) -> Row:
    """Apply the job, delete its first pod once it has saved, and wait for the new group."""
    with new_namespace("jobset") as namespace:
        job = FixedJob(namespace)
        variables = {name: value.format(namespace=namespace.name) for name, value in SIDES[side].items()}
        job.apply(LOGLEVEL="INFO", **variables)
        run_id = namespace.get("jobset", "digits")["metadata"]["uid"]
        group = job.wait_for_group(PODS, STARTED_SECONDS)
        job.wait_for_checkpoint(STARTED_SECONDS)
        struck, began = job.delete_first(), time.monotonic()
        try:
            ended = wait_until("the next group or the job's end", lambda: outcome(job, group), deadline / BUSY)
        except Deadline:
            ended = f"no new group within {time.monotonic() - began:.0f} s; {job.describe()}"
        died = sum(deaths(pod) for pod in job.pods().values())
        job.forget_checkpoint(run_id)
        if ended.startswith("group "):
            whole = job.began(ended.removeprefix("group ")) - struck
            return Row(side, job.resumed(struck) - struck, whole, died)
        return Row(side, None, None, died, ended)


def outcome(job: FixedJob, before: str) -> str | None:
    """The group of all pods that follows, or how the job has ended."""
    body = job.namespace.get("jobset", "digits")
    for condition in body.get("status", {}).get("conditions", ()):
        if condition["type"] == "Failed" and condition["status"] == "True":
            return f"the JobSet has failed: {condition['message']}"
    group = job.group(PODS)
    return f"group {group}" if group not in (None, before) else None


def deaths(pod: Object) -> int:
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))


def shown(row: Row) -> str:
    took = ("-" if seconds is None else f"{seconds:.1f}" for seconds in (row.again_seconds, row.whole_seconds))
    return f"| {row.side} | {' | '.join(took)} | {row.agents_died} | {row.detail} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="jobset.py", description="A JobSet that loses its first pod.")
    parser.add_argument("--side", choices=SIDES, action="append", help="default: all")
    parser.add_argument("--deadline", type=float, default=240, metavar="SECONDS", help="for the new group to train")
    options = parser.parse_args()
    rows = []
    with new_namespace("jobset-controller") as home, jobset(home):
        for side in options.side or SIDES:
            rows.append(measure(side, options.deadline))
            print(shown(rows[-1]), flush=True)
    JSON.parent.mkdir(exist_ok=True)
    JSON.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    print("\n| side | until any train, s | until all do, s | agents that died | |\n|---|---|---|---|---|")
    print("\n".join(map(shown, rows)))


if __name__ == "__main__":
    main()
