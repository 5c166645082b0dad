# SPDX-License-Identifier: Apache-2.0
"""`python -m e2e.faults.readme`: README's table "What happens when", of the figures in build/faults.json.

It has the sentences of each row; whatever else README says of a fault is not made here.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

JSON = Path("build/faults.json")
LED = "training goes on; {detail}"

# event: what it is called there, and what happens
ROWS = {
    "scale-up": (
        "`kubectl scale` up",
        "the group trains on until the newcomers have joined; then one new round, in which members keep their ranks",
    ),
    "scale-burst": ("`kubectl scale`, three times within a second", "one new round, of the last size"),
    "scale-up-down": ("scaled up, and down again before the newcomer joined", "no new round"),
    "scale-down": (
        "`kubectl scale` down",
        "the workers with the highest ranks are told to leave and exit with code 75; no failure is counted",
    ),
    "scale-down-up": (
        "scaled from 3 to 1 to 3 within two seconds",
        "the workers told to leave still leave; new pods take their indices",
    ),
    "agent-killed": ("torchrun is killed", "its container restarts in place; counts as one failure"),
    "worker-process-killed": ("a training process is killed", "torchrun starts it again; counts as one failure"),
    "oom-killed": ("a worker runs out of memory", "the same"),
    "pod-deleted": (
        "a pod is deleted",
        "it is replaced; one new round of the full size; no failure is counted",
    ),
    "pod-deleted-rank0": ("rank 0's pod is deleted", "the same"),
    "pod-deleted-spare": (
        "a pod is deleted, with `spareReplicas: 1`",
        "the spare takes its rank at once, and no other rank changes; the new pod is the spare",
    ),
    "sidecar-killed": ("rank 0's sidecar is killed", "it restarts in place, the trainers' containers run on"),
    "rank0-hangs-before-store": (
        "rank 0 hangs before it serves the round's store",
        "after `storeReadySeconds` (15 in the test) it is lost and replaced",
    ),
    "node-paused": (
        "a node freezes, and wakes up later",
        "its workers are replaced elsewhere; the old ones get no store and no rank",
    ),
    "node-paused-spare": ("the same, with `spareReplicas: 1`", "the spare takes the lost worker's rank at once"),
    "node-and-leader-paused": (
        "a node with the leading operator freezes",
        "the same, once another operator leads: the Lease lasts for `leaseSeconds`, 10 by default",
    ),
    "node-killed": ("a node loses its power", "its workers are replaced elsewhere; no failure is counted"),
    "eviction": (
        "`kubectl drain`",
        "replacements start elsewhere first; then one planned round, before which scripts may save",
    ),
    "replacement-unschedulable": (
        "no room for a replacement",
        "the group goes on without it at `minReplicas` or above, and grows when there is room",
    ),
    "image-missing": (
        "an image cannot be pulled",
        "`kubectl get ej` says `ImagePull`, the condition `Rendezvoused` names it",
    ),
    "crash-loop": ("the training fails again and again", "`Failed` after `maxRestarts`, with the reason"),
    "operator-stopped": ("the leading operator's pod is deleted", LED),
    "operator-killed": ("the leading operator is killed", LED),
    "two-operators": (
        "the leading operator freezes for longer than its Lease, then wakes up",
        "all its writes are refused; {detail}",
    ),
    "leader-frozen": ("the leading operator freezes for a minute", LED),
    "lease-deleted": ("the Lease is deleted", LED),
    "api-paused-2m": (
        "the API server is away for two minutes",
        "training goes on; no new round, and no worker counts as lost",
    ),
    "api-slow": ("each API request takes half a second longer; a pod is deleted", "the same as without the delay"),
    "etcd-compacted": ("the API server forgets its history (410 Gone)", "all watches start again; no new round"),
    "finish-uneven": ("one rank ends early, one saves for two minutes", "`Complete` after the last one has ended"),
    "finish-beside-restart": (
        "a worker fails after another has finished",
        "the others go on at once, without the finished worker",
    ),
    "suspend-forming": (
        "suspended while a round forms, then resumed",
        "the pods are deleted, the job's state stays; the next round forms with new pods",
    ),
}
FIGURES = ("survivors_told_seconds", "first_step_seconds", "first_step_warm_seconds")


def lines(faults: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The table. Raises ValueError for an event that did not pass, or only with fresh or with warm processes."""
    known = {fault["event"]: fault for fault in faults}
    if odd := ROWS.keys() ^ known.keys():
        raise ValueError(f"not both in {JSON} and in {Path(__file__).name}: {', '.join(sorted(odd))}")
    if odd := {event for event, fault in known.items() if not fault["ok"] or _is_half(fault)}:
        raise ValueError(f"failed in {JSON}, or only fresh or warm: {', '.join(sorted(odd))}")
    yield "| event | what happens | told | first step | warm |"
    yield "|---|---|---|---|---|"
    for event, (title, happens) in ROWS.items():
        fault = known[event]
        figures = " | ".join(_seconds(fault[name]) for name in FIGURES)
        yield f"| {title} | {happens.format(detail=fault['detail'])} | {figures} |"


def _is_half(fault: dict[str, Any]) -> bool:
    return (fault["first_step_seconds"] is None) != (fault["first_step_warm_seconds"] is None)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def main() -> None:
    if not JSON.exists():
        sys.exit(f"{JSON} is not there: run `make faults` first")
    try:
        print("\n".join(lines(json.loads(JSON.read_text()))))
    except ValueError as problem:
        sys.exit(f"{problem}; run these again with `make faults K='...'`")


if __name__ == "__main__":
    main()
