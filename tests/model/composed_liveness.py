# SPDX-License-Identifier: Apache-2.0
"""If nothing more goes wrong in a whole job, does it come to rest? Asked of every state that is visited.

Calm is one order of events: always the first that is still to happen, and where none is, the operator's next moment. At
rest the job has ended, or is closed and trains on, or is suspended and its pods are gone, or a round is formed and in
use: each member's trainer trains in it and is told of no change, and no worker is left out.
"""

from collections.abc import Callable, Iterable

from elasticjob.rendezvous import roster_of
from elasticjob.terms import RendezvousPhase
from model.composed_pods import TRAINING, Pod, perceives_change, sight_of
from model.composed_system import JobSystem
from model.liveness import goes_in_a_circle, left_over, must_have_spares
from model.search import Digest, Move, Violation, in_words

FORMING, FORMED, CLOSED = RendezvousPhase


class Rest:
    """`following` gives what comes next and the state after it, None at the end of all things."""

    def __init__(
        self,
        following: Callable[[JobSystem], tuple[Move, JobSystem] | None],
        digest_of: Callable[[JobSystem], Digest],
        tell: Callable[[Move, JobSystem], Iterable[str]],
    ) -> None:
        self._following, self._digest_of, self._tell = following, digest_of, tell
        self._known: set[Digest] = set()

    def check(self, system: JobSystem) -> None:
        """Raises Violation."""
        way: dict[Digest, tuple[Move, JobSystem]] = {}
        system = system._replace(spent=0)
        here = self._digest_of(system)
        try:
            while here not in self._known:
                following = self._following(system)
                if following is None or (there := self._digest_of(following[1])) == here:
                    must_rest(system)
                    self._known.add(here)
                    break
                if there in way:
                    goes_in_a_circle()
                way[here] = following
                system, here = following[1], there
        except Exception as error:
            lines = [line for step in way.values() for line in self._tell(*step)]
            raise Violation(in_words(error), ("left alone, this follows:", *lines)) from error
        self._known |= way.keys()

    def after(self, system: JobSystem) -> JobSystem:
        """Where calm leads."""
        while (following := self._following(system)) and self._digest_of(following[1]) != self._digest_of(system):
            system = following[1]
        return system


def must_rest(system: JobSystem) -> None:
    """Raises Violation when this is no place to rest."""
    spec, state = system.spec, system.state
    trains = {pod.sidecar.me.id for pod in system.pods if pod.sidecar and _trains(pod, state.round)}
    if state.phase is CLOSED and not state.ended:
        if not any(member.id in trains for member in state.participants):
            raise Violation("the rendezvous is closed, nobody trains any more, and the job does not end")
        return
    workers = tuple(sight_of(pod).worker for pod in system.pods if not pod.gone)
    roster = roster_of(spec, state, workers)
    if left := left_over(roster, state, workers):
        raise Violation(f"the pods {left} are of no use any more, and stay")
    if state.ended:
        return
    if spec.suspend:
        if state.phase is FORMED:
            raise Violation("a suspended job rests, and trains")
        return
    if state.phase is not FORMED:
        raise Violation(f"the job rests while round {state.round} is forming")
    members = {member.id for member in state.participants}
    if not state.done and {worker.id for worker in roster.kept} != members:
        raise Violation(f"round {state.round} is formed, and somebody is for ever left out")
    must_have_spares(spec, state, roster)
    finished = {member.id for member in state.participants if member.index in state.done}
    if out := members - trains - finished:
        raise Violation(f"round {state.round} is formed, and these do not train in it: {sorted(out)}")


def _trains(pod: Pod, round: int) -> bool:
    trainer = pod.trainer
    return trainer is not None and (trainer.state, trainer.used) == (TRAINING, round) and not perceives_change(pod)
