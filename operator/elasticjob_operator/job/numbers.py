# SPDX-License-Identifier: Apache-2.0
"""The replacement numbers of new pods, if a pod that is not the job's has the name. Pure.

Such a pod is left behind by `kubectl delete --cascade=orphan`, or was made by hand. The operator may not delete it, and
cannot adopt it: its sidecar serves the job that it was made for.
"""

from collections.abc import Collection
from dataclasses import replace

from elasticjob.rendezvous import Decision, Spec, Worker, pods_to_create
from elasticjob.rendezvous.model import PodKey


def renumbered(
    bounds: Spec, decision: Decision, workers: Collection[Worker], taken: Collection[PodKey], now: float
) -> Decision:
    """The decision with the next free number for each pod that is due by `now` and whose name is among those
    `taken`."""
    if not taken:
        return decision
    state, found = decision.state, dict[int, int]()
    for index, number in pods_to_create(bounds, state, workers, now):
        free = number
        while (index, free) in taken:
            free += 1
        if free != number:
            found[index] = free
    return replace(decision, state=replace(state, replacements={**state.replacements, **found})) if found else decision
