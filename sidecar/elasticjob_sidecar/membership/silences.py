# SPDX-License-Identifier: Apache-2.0
"""Whom this worker has not heard for how long on the lines of its round, and so whom it doubts. Pure.

While a round stands each other member's sidecar has a line to rank 0's, on which both give signs of life: rank 0 hears
all others, and they hear rank 0. The lines last until the next round stands: what ends a round first is often a process
that has lost the other end of a connection, and why is known by the silence. Doubt is no verdict: the operator asks who
is doubted.

A silence is counted in the time in which this sidecar itself has run, or one that was stopped would doubt all others
when it wakes. When rank 0 is silent the first three ranks say so at once, and each four times as many others only if
nobody has been asked meanwhile: the loss of one of a thousand does not make a thousand writes.
"""

from itertools import islice
from math import inf
from typing import NamedTuple

from elasticjob.api import MAX_DOUBTS, Member, Members, RendezvousPhase
from elasticjob.signs import default_worker_lost, doubt_seconds, sign_seconds
from elasticjob_sidecar.membership.output import Standing

LOOK_SECONDS = 0.25  # between two looks of who doubts first
STORE_FIRST_SECONDS, SPREAD_SECONDS, LINES_A_SECOND = 0.5, 1.0, 128
MAKE_SECONDS, MAKE_SECONDS_EACH = 3.0, 0.01
LOOK_AGAIN = 1.5  # times of doubt


class Group(NamedTuple):
    """The round that stands, for its lines; `store` is where rank 0 is, as in the job's status."""

    round: int
    rank: int
    members: Members
    store: str


class Times(NamedTuple):
    """Seconds. Lines are made at random between `earliest` and `latest` after the round was formed, each within `make`:
    the connections to the store come first."""

    sign: float
    doubt: float
    earliest: float
    latest: float
    make: float


def group_of(standing: Standing, before: Group | None) -> Group | None:
    """None while there is no round with this worker and others, or an operator that does not ask for doubts. While the
    next round forms it is as `before`."""
    job = standing.job
    if job is None or not standing.challenges:
        return None
    if job.phase is RendezvousPhase.FORMING:
        return before if before is not None and before.round == job.round - 1 else None
    if len(job.participants) < 2:
        return None
    rank = job.participants.position_of(standing.me)
    return None if rank is None or not job.store else Group(job.round, rank, job.participants, job.store)


def times_of(workers: int, worker_lost: float | None) -> Times:
    """`worker_lost`: what the job or the trainer has named."""
    return Times(
        sign=sign_seconds(workers),
        doubt=doubt_seconds(workers, worker_lost or default_worker_lost(workers)),
        earliest=STORE_FIRST_SECONDS,
        latest=STORE_FIRST_SECONDS + SPREAD_SECONDS + workers / LINES_A_SECOND,
        make=MAKE_SECONDS + MAKE_SECONDS_EACH * workers,
    )


class Silences:
    """Those of one round. `look` at them every `look_seconds`; `now` is of any steady clock."""

    def __init__(self, group: Group, times: Times, now: float) -> None:
        self._times = times
        self._turn = 1 if group.rank == 0 else _turn(group.rank)
        self.over = False  # the next round forms
        self.look_seconds = min(LOOK_SECONDS * self._turn, times.doubt / 2)  # a thousand would take a fifth of a core
        self._looked, self._ran = now, 0.0  # seconds that this sidecar has run since the round began for it
        heard = group.members[1:] if group.rank == 0 else group.members[:1]
        # a line that has not come up by then is as one that broke then
        self._since = dict.fromkeys(heard, times.latest + times.make)
        self._doubted: dict[Member, float] = {}  # since when
        self._seen = self._asked = -inf  # the job's status; a challenge to one of those who are to be heard here

    def heard(self, member: Member, now: float) -> None:
        if member in self._since:
            self._since[member] = self._time(now)

    def job_seen(self, asked: Members, now: float) -> None:
        """The job's status is new; `asked` are those whom a challenge names that is new too."""
        self._seen = self._time(now)
        if any(member in asked for member in self._since):
            self._asked = self._seen

    def end(self, now: float) -> None:
        """The next round forms. Who has not been heard by now will not be, and is not doubted for it."""
        self.over, ran = True, self._time(now)
        self._since = {member: since for member, since in self._since.items() if since <= ran}

    def look(self, now: float) -> None:
        self._ran, self._looked = self._time(now), now
        held = self._times.doubt  # else a line that comes and goes would be written down each time
        for member, since in self._since.items():
            if self._is_doubted(since):
                self._doubted.setdefault(member, self._ran)
            elif self._ran - self._doubted.get(member, self._ran) >= held:
                del self._doubted[member]

    def doubted(self, *finished: Members) -> Members:
        """Who was so at the last look, the first of them; those who have `finished` may be silent."""
        silent = (member for member in self._since if member in self._doubted)
        found = (member for member in silent if all(member not in members for members in finished))
        return Members(islice(found, MAX_DOUBTS))

    def hears_all(self) -> bool:
        """Whether a sign of each has come just now, and the round stands."""
        return not self.over and all(0 <= self._ran - since < self._times.doubt for since in self._since.values())

    def misses_news(self) -> bool:
        """Whether somebody has been silent for so long that the operator should have been heard of it: the connection
        to the API server may be as dead as the line. Asked once for each silence."""
        if self.over:  # whoever is missing may be known to have gone
            return False
        late = LOOK_AGAIN * self._times.doubt
        misses = any(self._ran - since >= late and self._seen < since for since in self._since.values())
        if misses:
            self._seen = self._ran
        return misses

    def _is_doubted(self, since: float) -> bool:
        silent = self._ran - since
        if self._turn > 1 and (self.over or self._asked >= since):
            return False
        return silent >= self._turn * self._times.doubt

    def _time(self, now: float) -> float:
        """What passes beyond twice the time between two looks is nobody's silence."""
        return self._ran + min(now - self._looked, 2 * self.look_seconds)


def _turn(rank: int) -> int:
    """1 for the ranks 1 to 3, 2 to 15, 3 to 63: the digits of the rank to the base of four."""
    return (rank.bit_length() + 1) // 2
