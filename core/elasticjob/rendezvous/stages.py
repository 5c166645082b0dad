# SPDX-License-Identifier: Apache-2.0
"""The torchruns that a container runs one after the other, as in `torchrun prepare.py && torchrun train.py`.

The n-th torchrun of each container belongs to stage n. In a restarted container too: the torchruns before it find their
stages finished and end in success at once. So no round has members of two stages, provided that all containers run the
same scripts in the same order; the names of the scripts are compared to check this.
"""

from collections.abc import Iterable

from elasticjob.rendezvous.model import State, Worker
from elasticjob.terms import RequestType

MOST_SCRIPTS = 16


def differ(state: State, members: Iterable[Worker]) -> str:
    """How the members' scripts differ from the stage's, in a sentence; empty if they agree, as far as is known."""
    agreed = state.scripts[-1:]
    runs = [("the job", script) for script in agreed if script]
    runs += [(f"worker {one.index}", one.request.script) for one in members if one.request and one.request.script]
    for who, script in runs[1:]:
        first, known = runs[0]
        if script != known:
            which = f"torchrun {state.stage} of its container" if state.stage > 1 else "its torchrun"
            return (
                f"{who} runs {script} as {which}, and {first} runs {known}: the containers of all workers must run the "
                "same scripts in the same order"
            )
    return ""


def with_script(state: State, members: Iterable[Worker]) -> tuple[str, ...]:
    """`State.scripts` after a round of the stage is formed of `members`."""
    script = next((one.request.script for one in members if one.request and one.request.script), "")
    return (*state.scripts[:-1], script) if script else state.scripts


def asked_for(state: State, workers: Iterable[Worker]) -> list[Worker]:
    """The workers whose next torchrun has begun and waits for the others."""
    asking = (one for one in workers if one.request and one.request.type is RequestType.JOIN)
    return [one for one in asking if one.request and one.request.stage > state.stage]
