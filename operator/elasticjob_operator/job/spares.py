# SPDX-License-Identifier: Apache-2.0
"""When the pods of spares are made. Pure.

A new pod is told what the script imports, which the workers of the first round have yet to learn. A spare made beside
them would have only the imports at the head of the script prestarted when it is needed. A job that has not enabled warm
restart has its spares at once: its workers may have no room for it, and would never report imports.
"""

from elasticjob.api import ElasticJobSpec
from elasticjob.rendezvous import State
from elasticjob.terms import RendezvousPhase

LEARNING_SECONDS = 120.0  # in which most scripts finish their imports
LOOK_SECONDS = 5.0


def are_held_back(spec: ElasticJobSpec, state: State, imports: str, now: float) -> bool:
    """Whether spares wait until the script's `imports` are known. They do not wait forever, because a script may import
    nothing."""
    if spec.warm_restart != "Enabled" or imports:
        return False
    if state.phase is RendezvousPhase.FORMING:
        return state.last_formed == 0
    return now - state.clocks.formed < LEARNING_SECONDS
