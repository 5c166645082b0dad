# SPDX-License-Identifier: Apache-2.0
"""When the pods of spares are made. Pure.

A pod is told at its making what the script imports, which the first round's workers have yet to learn. A spare that was
made beside them would have less prestarted when it is needed: what the head of the script imports. A job that has not
asked for warm restart has its spares at once all the same, as its workers may have no room for it, and never tell.
"""

from elasticjob.api import ElasticJobSpec
from elasticjob.rendezvous import State
from elasticjob.terms import RendezvousPhase

LEARNING_SECONDS = 120.0  # in which most scripts have imported what they will
LOOK_SECONDS = 5.0


def are_held_back(spec: ElasticJobSpec, state: State, imports: str, now: float) -> bool:
    """Whether they wait until the script's `imports` are known; not for ever, as some script may import nothing."""
    if spec.warm_restart != "Enabled" or imports:
        return False
    if state.phase is RendezvousPhase.FORMING:
        return state.last_formed == 0
    return now - state.clocks.formed < LEARNING_SECONDS
