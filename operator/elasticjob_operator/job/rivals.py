# SPDX-License-Identifier: Apache-2.0
"""Which jobs an operator leaves to another installation that writes the same statuses. Pure.

Two installations that watch one namespace have two Leases. Each finds the other's later term in a status, raises its
own beyond it, and writes, without end. So the one with the younger Lease leaves the namespace alone. It comes back
after the other has done nothing for a long time although work was due.
"""

from collections import defaultdict

from elasticjob.api import ElasticJobStatus, LeaseIdentity
from elasticjob_operator.job.debounce import is_due

OUTBID_TIMES, OUTBID_SECONDS = 2, 60.0
GONE_SECONDS = 600.0  # after which a rival that does no due work counts as gone


def is_rival(lease: LeaseIdentity, other: LeaseIdentity) -> bool:
    """Whether `other` belongs to another installation. A deleted Lease of the same name does not: its holder has lost
    it."""
    return lease.place != other.place


def is_older(lease: LeaseIdentity, other: LeaseIdentity) -> bool:
    """Whether `lease` is the older one. Both operators get the same answer: the name decides between Leases of one
    second."""
    return (lease.created, lease.place) < (other.created, other.place)


class Rivals:
    """The rivals of one operator. `left`: the namespaces that it leaves alone, with the Lease of the operator in
    charge."""

    def __init__(self) -> None:
        self.left: dict[str, LeaseIdentity] = {}
        self._outbid: defaultdict[str, dict[int, float]] = defaultdict(dict)

    def outbid(self, namespace: str, ours: LeaseIdentity, theirs: LeaseIdentity, term: int, now: float) -> None:
        """Notes that the holder of `theirs` has overwritten a status of ours in `term`. A term counts once, because it
        is written into the statuses of many jobs."""
        recent = {one: at for one, at in self._outbid[theirs.uid].items() if now - at < OUTBID_SECONDS}
        recent.setdefault(term, now)
        self._outbid[theirs.uid] = recent
        known = theirs in self.left.values()
        if is_older(theirs, ours) and (known or len(recent) >= OUTBID_TIMES):
            self.left[namespace] = theirs


class Rivalry:
    """The rivalry about one job in `namespace`."""

    def __init__(self, rivals: Rivals, namespace: str) -> None:
        self._rivals, self._namespace = rivals, namespace
        self._wrote = False  # a status that no rival has overwritten, as far as is known
        self._seen: ElasticJobStatus | None = None
        self._waits_since = 0.0

    def wrote(self) -> None:
        self._wrote = True

    def left_to(
        self, ours: LeaseIdentity, before: ElasticJobStatus, after: ElasticJobStatus, now: float
    ) -> LeaseIdentity | None:
        """The Lease whose holder is in charge of the job. None if no rival keeps this operator from writing `after`
        over `before`. If the other has done nothing for a long time, the namespace is taken back."""
        theirs = before.lease
        if self._wrote and theirs is not None and is_rival(ours, theirs):
            self._wrote = False
            self._rivals.outbid(self._namespace, ours, theirs, before.term, now)
        left = self._rivals.left.get(self._namespace)
        if left is not None and self._is_stuck(before, after, now):
            del self._rivals.left[self._namespace]
            return None
        return left

    def _is_stuck(self, before: ElasticJobStatus, after: ElasticJobStatus, now: float) -> bool:
        """Whether work has been due for a long time while the status has not changed."""
        if before != self._seen or not is_due(before, after):
            self._seen, self._waits_since = before, now
        return now - self._waits_since >= GONE_SECONDS
