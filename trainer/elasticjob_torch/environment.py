# SPDX-License-Identifier: Apache-2.0
"""Which variables an agent's processes inherit: none of torchrun's own, and the address of the job's sidecar.

The pod's ``PET_*`` are meant for the one torchrun that takes part in the job. A torchrun below it (an evaluation, a
data tool) would take them for its own command line, and join the job in its agent's place. Training processes read this
too, so it must be cheap, and imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

MARK = "ELASTICJOB_AGENT"  # pid, start time and run id of the agent, separated by colons
START = "ELASTICJOB_START"  # an id of the start of a process, new for each
ENDPOINT = "ELASTICJOB_ENDPOINT"  # the sidecar's address, for the agent's processes
MASTER_ADDRESS = "ELASTICJOB_MASTER_ADDRESS"  # rank 0's pod: MASTER_ADDR is each pod's own loopback
_TORCHRUNS = "PET_"
_RUN_ID = "TORCHELASTIC_RUN_ID"


def handed_on(environment: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """Return the environment for processes of an agent with this environment."""
    return {name: value for name, value in environment.items() if not name.startswith(_TORCHRUNS)} | {
        ENDPOINT: endpoint
    }


class HandedOn:
    """The environment of an agent's own process, which all its children inherit; until `end`."""

    def __init__(self, environment: MutableMapping[str, str], endpoint: str) -> None:
        self._environment = environment
        self._kept = {name: value for name, value in environment.items() if name.startswith(_TORCHRUNS)}
        for name in self._kept:
            del environment[name]
        environment[ENDPOINT] = endpoint

    def end(self) -> None:
        """Restore it: a later torchrun of this process, or below it, takes part in the job. May be called again."""
        kept, self._kept = self._kept, {}
        self._environment.update(kept)
        for name in (ENDPOINT, MARK):
            self._environment.pop(name, None)


def endpoint_of(environment: Mapping[str, str]) -> str:
    """Return the sidecar's address for a process that may ask and report; empty if there is none for it.

    A process that a torchrun below the agent started trains something else: it has that torchrun's run id.
    """
    endpoint = environment.get(ENDPOINT, "")
    if endpoint:
        run = run_of(environment.get(MARK, ""))
        return endpoint if environment.get(_RUN_ID, run) == run else ""
    return environment.get("PET_RDZV_ENDPOINT", "") if environment.get("PET_RDZV_BACKEND") == "elasticjob" else ""


def master_address_of(environment: Mapping[str, str]) -> str:
    """Return the address of rank 0's own ports for a training process, empty if unknown.

    Under any other rendezvous it is MASTER_ADDR.
    """
    variable = MASTER_ADDRESS if endpoint_of(environment) else "MASTER_ADDR"
    return environment.get(variable, "")


def run_of(mark: str) -> str:
    """Return the run id in an agent's mark."""
    return mark.partition(":")[2].partition(":")[2]
