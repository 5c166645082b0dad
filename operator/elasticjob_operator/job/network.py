# SPDX-License-Identifier: Apache-2.0
"""Which members of a round do not reach rank 0 although both live. Pure: the time is an argument.

The link between the two is silent, so one suspects the other. But the suspected one acks, so neither is lost: the
network, a NetworkPolicy or a firewall stands between them. A link may only be late, and each round makes new links. So
a suspicion has to last for a while, and it outlives the round in which it began.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.api import ElasticJobStatus
from elasticjob.blocker_reasons import Reason
from elasticjob.pods import pod_name
from elasticjob.rendezvous import Event, Member, State, Worker
from elasticjob.rendezvous.failure_detector import able
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.words import first_few
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.sidecars import SidecarTroubles

CONNECTED, FAULT, REACHABLE = "Connected", Reason.NETWORK_FAULT, "Reachable"
STANDS_SECONDS = 30.0  # until a suspicion is reported: a sidecar may be slow for a while
# from the forming of a round until its links can be trusted, and more for each member: late links cause suspicions
SETTLE_SECONDS, SETTLE_SECONDS_EACH = 15.0, 0.02
FORGET_SECONDS = 60.0  # if no round stands long enough to tell


class Suspicion(NamedTuple):
    """A member and `rank0` do not hear each other. `since`: when that began. `seen`: when it was last seen. `acked`:
    the suspected one has shown that it lives."""

    rank0: Member
    since: float
    seen: float
    acked: bool

    def stands(self, now: float) -> bool:
        return self.acked and now - self.since >= STANDS_SECONDS


Suspicions = Mapping[Member, Suspicion]  # by the member that is not rank 0


class Network(NamedTuple):
    """What one step finds, remembered until the next. `sentence`: which pods do not reach which address; empty while
    nobody is cut off. `cut_off`: the pods that do not reach rank 0. `again`: seconds until the next look. `events`: the
    events to announce."""

    suspicions: Suspicions = MappingProxyType({})
    sentence: str = ""
    cut_off: frozenset[PodKey] = frozenset()
    again: float | None = None
    events: tuple[Event, ...] = ()


class NetworkFaults(Concern):
    """The network between the members of one job."""

    def __init__(self) -> None:
        self._last: Network | None = None

    def see(self, report: Report) -> Report:
        found, workers = network_of(report, self._last), report.workers
        if found.cut_off:
            workers = tuple(replace(one, cut_off=True) if one.pod_key in found.cut_off else one for one in workers)
        return report.noting(found, workers=workers)

    def after(self, report: Report) -> tuple[Event, ...]:
        self._last = report.of(Network)
        return self._last.events

    def again(self, report: Report, now: float) -> float | None:
        return report.of(Network).again


def network_of(report: Report, last: Network | None) -> Network:
    """The network faults of a step. `last`: what this operator found in the last step; None in its first step, when a
    fault in the status is assumed to persist. A sidecar that is known to be in trouble explains a silence."""
    state, workers, now = report.decision.state, report.workers, report.at
    known = {} if last is None else last.suspicions
    if state.ended or not state.participants or not (known or any(worker.suspects for worker in workers)):
        return Network()
    troubled = report.of(SidecarTroubles).waits
    if any(worker.member == state.participants[0] for worker in workers if worker.pod_key in troubled):
        return Network()
    members = set(state.participants)
    present = {one: worker for one, worker in able(state, workers).items() if one in members}
    announced = bool(last.sentence) if last is not None else says_so(report.before)
    suspected = _suspected(state, present)
    suspicions = _kept(state, present, known, now) | _seen(state, suspected, known, announced and last is None, now)
    moments = (moment for one, found in suspicions.items() for moment in _moments(state, found, one in suspected))
    again = min((moment - now for moment in moments if moment > now), default=None)
    cut_off = [present[one] for one in state.participants if one in suspicions and suspicions[one].stands(now)]
    if not cut_off:
        return Network(suspicions, again=again)
    sentence = _sentence(report.job["metadata"]["name"], present[state.participants[0]], cut_off)
    events = () if announced else (Event(FAULT, sentence, warning=True),)
    return Network(suspicions, sentence, frozenset(one.pod_key for one in cut_off), again, events)


def says_so(status: ElasticJobStatus) -> bool:
    """Whether `status` says that pods do not reach each other."""
    return any(one.type == CONNECTED and one.status == "False" for one in status.conditions)


def _suspected(state: State, present: Mapping[Member, Worker]) -> dict[Member, set[Member]]:
    """Which of the two ends is suspected by the other, by the member that is not rank 0. Empty while a round forms."""
    found: dict[Member, set[Member]] = {}
    if state.phase is RendezvousPhase.FORMING:
        return found
    rank0 = state.participants[0]
    for member, worker in present.items():
        for one in worker.suspects:
            if one in present and rank0 in present and rank0 in (one, member) and one != member:
                found.setdefault(one if member == rank0 else member, set()).add(one)
    return found


def _seen(
    state: State, suspected: Mapping[Member, set[Member]], known: Suspicions, goes_on: bool, now: float
) -> dict[Member, Suspicion]:
    """The suspicions of this moment. `goes_on`: an operator before this one has reported the fault."""
    rank0, since, found = state.participants[0], now - STANDS_SECONDS if goes_on else now, {}
    for member, which in suspected.items():
        earlier = known.get(member)
        if earlier is None or earlier.rank0 != rank0:
            earlier = Suspicion(rank0, since, now, acked=goes_on)
        acked = earlier.acked or all(_has_lived(state, one) for one in which)
        found[member] = earlier._replace(seen=now, acked=acked)
    return found


def _kept(state: State, present: Mapping[Member, Worker], known: Suspicions, now: float) -> dict[Member, Suspicion]:
    """Earlier suspicions between two members that are both present, until evidence or time ends them."""
    return {
        member: one
        for member, one in known.items()
        if one.rank0 == state.participants[0] and {member, one.rank0} <= present.keys()
        if now < min(_moments(state, one, suspected=False))
    }


def _moments(state: State, suspicion: Suspicion, suspected: bool) -> Iterator[float]:
    """When a suspicion has lasted long enough or, if it is not seen now, when it is forgotten."""
    if suspected:
        yield suspicion.since + STANDS_SECONDS
        return
    yield suspicion.seen + FORGET_SECONDS
    if state.phase is not RendezvousPhase.FORMING:
        yield state.clocks.formed + SETTLE_SECONDS + SETTLE_SECONDS_EACH * len(state.participants)


def _has_lived(state: State, member: Member) -> bool:
    """Whether the member has acked a ping since it became suspected."""
    pinged = (state.clocks.pings or {}).get(member)
    return pinged is not None and pinged.lived is not None


def _sentence(job: str, rank0: Worker, cut_off: list[Worker]) -> str:
    address = rank0.address.partition("/")[0]
    names = first_few([pod_name(job, *one.pod_key) for one in cut_off])
    pods, do, live = ("pod", "does", "both live") if len(cut_off) == 1 else ("pods", "do", "all live")
    return (
        f"{pods} {names} {do} not reach pod {pod_name(job, *rank0.pod_key)} at {address}, and {live}: a "
        "NetworkPolicy, a firewall or the network between their nodes is in the way of that port"
    )
