# SPDX-License-Identifier: Apache-2.0
"""Which members this worker has not heard on its round's heartbeat links, for how long, and which of them it suspects.
Pure.

While a round stands, each other member's sidecar has a link to rank 0's, with heartbeats in both directions: rank 0
hears all others, and they hear rank 0. The links last until the next round stands. A round is often ended by a process
that lost its connection to another; the silence on the link then tells why. A suspicion is no verdict: the operator
pings the suspected worker.

Silence is measured in time during which this sidecar itself ran. Otherwise a sidecar that was stopped would suspect all
others when it wakes. If rank 0 is silent, the first three ranks report it at once. The others report it in groups, each
four times as large, and only if no member has been pinged meanwhile: so the loss of one of a thousand members does not
cause a thousand writes.
"""

from itertools import islice
from math import inf
from typing import NamedTuple

from elasticjob.api import MAX_SUSPECTS, Member, Members, RendezvousPhase
from elasticjob.heartbeats import default_worker_lost, link_seconds, suspicion_seconds
from elasticjob_sidecar.membership.output import Standing

LOOK_SECONDS = 0.25  # between two looks, for the ranks that report first
STORE_FIRST_SECONDS, SPREAD_SECONDS, LINKS_A_SECOND = 0.5, 1.0, 128
MAKE_SECONDS, MAKE_SECONDS_EACH = 3.0, 0.01
LOOK_AGAIN = 1.5  # times the time until a suspicion


class LinkGroup(NamedTuple):
    """The standing round, for its links. `store`: rank 0's address, as in the job's status."""

    round: int
    rank: int
    members: Members
    store: str


class LinkTimes(NamedTuple):
    """Seconds. Links are made at random times between `earliest` and `latest` after the round was formed, each within
    `make`: the connections to the store come first."""

    heartbeat: float
    suspicion: float
    earliest: float
    latest: float
    make: float


def group_of(standing: Standing, before: LinkGroup | None) -> LinkGroup | None:
    """The group whose links are to be held; None while no round stands with this worker and others. While the next
    round forms it is `before`."""
    job = standing.job
    if job is None:
        return None
    if job.phase is RendezvousPhase.FORMING:
        return before if before is not None and before.round == job.round - 1 else None
    if len(job.participants) < 2:
        return None
    rank = job.participants.position_of(standing.me)
    return None if rank is None or not job.store else LinkGroup(job.round, rank, job.participants, job.store)


def times_of(workers: int, worker_lost: float | None) -> LinkTimes:
    """`worker_lost`: the seconds that the job or the trainer has set."""
    return LinkTimes(
        heartbeat=link_seconds(workers),
        suspicion=suspicion_seconds(workers, worker_lost or default_worker_lost(workers)),
        earliest=STORE_FIRST_SECONDS,
        latest=STORE_FIRST_SECONDS + SPREAD_SECONDS + workers / LINKS_A_SECOND,
        make=MAKE_SECONDS + MAKE_SECONDS_EACH * workers,
    )


class LinkMonitor:
    """The links of one round. Call `look` every `look_seconds`. `now`: seconds of any steady clock."""

    def __init__(self, group: LinkGroup, times: LinkTimes, now: float) -> None:
        self._times = times
        self._turn = 1 if group.rank == 0 else _turn(group.rank)
        self.over = False  # the next round forms
        self.look_seconds = min(LOOK_SECONDS * self._turn, times.suspicion / 2)  # 1,000 links would take 0.2 cores
        self._looked, self._ran = now, 0.0  # seconds that this sidecar has run since the round began for it
        heard = group.members[1:] if group.rank == 0 else group.members[:1]
        # a link that was not made by then counts as broken at that time
        self._since = dict.fromkeys(heard, times.latest + times.make)
        self._suspected: dict[Member, float] = {}  # since when
        self._seen = self._pinged = -inf  # times of the last status, and of a ping of a member heard here

    def heard(self, member: Member, now: float) -> None:
        if member in self._since:
            self._since[member] = self._time(now)

    def job_seen(self, pinged: Members, now: float) -> None:
        """The job's status is new. `pinged`: the members of a ping that is new too."""
        self._seen = self._time(now)
        if any(member in pinged for member in self._since):
            self._pinged = self._seen

    def end(self, now: float) -> None:
        """The next round forms. A member that has not been heard by now will not be, and is not suspected for that."""
        self.over, ran = True, self._time(now)
        self._since = {member: since for member, since in self._since.items() if since <= ran}

    def look(self, now: float) -> None:
        self._ran, self._looked = self._time(now), now
        held = self._times.suspicion  # kept this long: an unsteady link would otherwise cause a write each time
        for member, since in self._since.items():
            if self._is_suspected(since):
                self._suspected.setdefault(member, self._ran)
            elif self._ran - self._suspected.get(member, self._ran) >= held:
                del self._suspected[member]

    def suspects(self, *finished: Members) -> Members:
        """The members suspected at the last look, up to the limit, without those that have `finished`."""
        silent = (member for member in self._since if member in self._suspected)
        found = (member for member in silent if all(member not in members for members in finished))
        return Members(islice(found, MAX_SUSPECTS))

    def hears_all(self) -> bool:
        """Whether each member was heard just now, and the round stands."""
        return not self.over and all(0 <= self._ran - since < self._times.suspicion for since in self._since.values())

    def misses_updates(self) -> bool:
        """Whether a member has been silent for so long that the operator should have pinged it: then the connection to
        the API server may be as dead as the link. True once for each silence."""
        if self.over:  # the missing member may be known to be gone
            return False
        late = LOOK_AGAIN * self._times.suspicion
        misses = any(self._ran - since >= late and self._seen < since for since in self._since.values())
        if misses:
            self._seen = self._ran
        return misses

    def _is_suspected(self, since: float) -> bool:
        silent = self._ran - since
        if self._turn > 1 and (self.over or self._pinged >= since):
            return False
        return silent >= self._turn * self._times.suspicion

    def _time(self, now: float) -> float:
        """The time for which this sidecar ran. An interval between two looks counts as at most twice `look_seconds`."""
        return self._ran + min(now - self._looked, 2 * self.look_seconds)


def _turn(rank: int) -> int:
    """1 for ranks 1 to 3, 2 up to rank 15, 3 up to 63: the number of the rank's digits to the base of four."""
    return (rank.bit_length() + 1) // 2
