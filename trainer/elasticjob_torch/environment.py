# SPDX-License-Identifier: Apache-2.0
"""Which variables an agent's processes inherit: none of torchrun's own, and what says where the job's sidecar is.

The pod's ``PET_*`` are meant for the one torchrun that takes part in the job. A torchrun below it (an evaluation, a
data tool) would take them for its own command line, and join the job in its agent's place. Also read in training
processes, so it must stay cheap, and imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

MARK = "ELASTICJOB_AGENT"  # pid, start time and run id of the agent, with colons between
START = "ELASTICJOB_START"  # an id of the start of a process, new for each
ENDPOINT = "ELASTICJOB_ENDPOINT"  # of the sidecar, for the agent's processes
MASTER_ADDRESS = "ELASTICJOB_MASTER_ADDRESS"  # of rank 0's pod: MASTER_ADDR is each pod's own loopback
_TORCHRUNS = "PET_"
_RUN_ID = "TORCHELASTIC_RUN_ID"


def handed_on(environment: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """Return what processes of an agent with this environment are given."""
    return {name: value for name, value in environment.items() if not name.startswith(_TORCHRUNS)} | {
        ENDPOINT: endpoint
    }


class HandedOn:
    """The environment of an agent's own process, from which all that it starts inherits; until `end`."""

    def __init__(self, environment: MutableMapping[str, str], endpoint: str) -> None:
        self._environment = environment
        self._kept = {name: value for name, value in environment.items() if name.startswith(_TORCHRUNS)}
        for name in self._kept:
            del environment[name]
        environment[ENDPOINT] = endpoint

    def end(self) -> None:
        """Make it as it was: a later torchrun of this process, or below it, takes part in the job. May be called
        again."""
        kept, self._kept = self._kept, {}
        self._environment.update(kept)
        for name in (ENDPOINT, MARK):
            self._environment.pop(name, None)


def endpoint_of(environment: Mapping[str, str]) -> str:
    """Return where the sidecar is for a process that may ask and report; empty where there is none for it.

    A process that a torchrun below the agent has started trains something else: it has that one's run id.
    """
    endpoint = environment.get(ENDPOINT, "")
    if endpoint:
        run = run_of(environment.get(MARK, ""))
        return endpoint if environment.get(_RUN_ID, run) == run else ""
    return environment.get("PET_RDZV_ENDPOINT", "") if environment.get("PET_RDZV_BACKEND") == "elasticjob" else ""


def master_address_of(environment: Mapping[str, str]) -> str:
    """Return where rank 0's own ports are for a training process, empty if that is not known.

    Under any other rendezvous that is what MASTER_ADDR says.
    """
    variable = MASTER_ADDRESS if endpoint_of(environment) else "MASTER_ADDR"
    return environment.get(variable, "")


def run_of(mark: str) -> str:
    """Return the run id that an agent's mark has."""
    return mark.partition(":")[2].partition(":")[2]
