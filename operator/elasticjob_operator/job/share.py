# SPDX-License-Identifier: Apache-2.0
"""One of a job's Workloads, as Kueue has left it: what it asks for, what it holds, and what Kueue says of it. Pure.

`quota` decides from these what the job asks for and may run.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from elasticjob.objects import Object
from elasticjob.pods import TEMPLATE_HASH
from elasticjob.text import printable
from elasticjob_operator.objects.admitted import Update, of_check
from elasticjob_operator.objects.workloads import POD_SET, Ask, asked_by

UNSEEN = "Kueue has not looked at it yet"
PREEMPTED = "Preempted"  # Kueue's reason for a Workload that gives way to others
# Kueue's reasons for a queue that admits nothing until somebody repairs it. The second is the more exact one of its
# feature gate UnadmittedWorkloadsObservability.
INADMISSIBLE = ("Inadmissible", "Misconfigured")


class Share(NamedTuple):
    """One of the job's Workloads. It asks for `ask` and holds the quota of `held` workers.

    `reserved`: quota is set aside, so the request cannot be changed any more. `ended`: Kueue has evicted or finished
    it, and not by preemption. `lost`: its workers have to go, because it was evicted or is made of another template.
    `deleting`: it is being deleted. `message`: Kueue's message. `inadmissible`: its queue does not exist, or admits
    nothing. `flavors`: the names of the assigned flavors. `checks`: what admission checks add to its pods.
    """

    number: int
    uid: str
    ask: Ask
    held: int = 0
    lost: bool = False
    deleting: bool = False
    message: str = UNSEEN
    inadmissible: bool = False
    reserved: bool = False
    ended: bool = False
    flavors: tuple[str, ...] = ()
    checks: tuple[Update, ...] = ()

    @property
    def counts(self) -> bool:
        return self.held > 0 and not self.lost and not self.deleting

    @property
    def waits(self) -> bool:
        return self.held == 0 and not self.lost and not self.deleting

    @property
    def refused(self) -> bool:
        """Whether it ended before any of its workers ran, for example by an admission check."""
        return self.held == 0 and self.ended


def share_of(workload: Object, job: Object, made_from: str) -> Share | None:
    """The Workload as a share; None if its name is not one of the job's."""
    meta, status = workload["metadata"], workload.get("status") or {}
    number = re.fullmatch(re.escape(job["metadata"]["name"]) + r"-([0-9]{1,9})", meta["name"])
    if number is None:
        return None
    annotations, known = meta.get("annotations") or {}, {one["type"]: one for one in status.get("conditions") or ()}
    is_true = {type for type, one in known.items() if one["status"] == "True"}
    ended = next((type for type in ("Finished", "Evicted") if type in is_true), "")
    reserved = "QuotaReserved" in is_true
    condition = known.get(ended or ("Admitted" if reserved else "QuotaReserved"), {})
    ask = asked_by(workload)
    return Share(
        number=int(number[1]),
        uid=meta["uid"],
        ask=ask,
        held=_held(status, ask.workers) if "Admitted" in is_true else 0,
        lost=bool(ended) or annotations.get(TEMPLATE_HASH) != made_from,
        deleting="deletionTimestamp" in meta,
        message=printable(condition.get("message") or UNSEEN),
        inadmissible=not reserved and condition.get("reason") in INADMISSIBLE,
        reserved=reserved,
        ended=bool(ended) and condition.get("reason") != PREEMPTED,
        flavors=_flavors(status),
        checks=tuple(_checks(status)),
    )


def _flavors(status: Object) -> tuple[str, ...]:
    """The assigned flavors in the order of their resources' names, each once."""
    sets = (status.get("admission") or {}).get("podSetAssignments") or ()
    found = (one.get("flavors") or {} for one in sets if one["name"] == POD_SET)
    return tuple(dict.fromkeys(flavor for flavors in found for _, flavor in sorted(flavors.items())))


def _checks(status: Object) -> Iterator[Update]:
    for check in status.get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update.get("name") == POD_SET:
                yield of_check(check.get("name", ""), update)


def _held(status: Object, asked: int) -> int:
    """The number of admitted workers, less those given back. Kueue counts the latter from the number requested."""
    sets = (status.get("admission") or {}).get("podSetAssignments") or ()
    admitted: int = sum(one.get("count", asked) for one in sets if one["name"] == POD_SET)
    back: int = sum(one["count"] for one in status.get("reclaimablePods") or () if one["name"] == POD_SET)
    return max(0, min(admitted, asked - back))
