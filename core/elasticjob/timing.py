# SPDX-License-Identifier: Apache-2.0
"""The timing of the rendezvous, `spec.rendezvous`, with its defaults and its CEL rules."""

from typing import Annotated

from pydantic import ConfigDict, Field

from elasticjob.fields import Seconds, WorkerLost
from elasticjob.schema import Model, rule, validations


class RendezvousSpec(Model):
    """Timing of the rendezvous, in seconds."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.saveSeconds + self.stopSeconds < self.rejoinSeconds",
                "'saveSeconds %d and stopSeconds %d together must be less than rejoinSeconds %d: members save and stop "
                "before they rejoin'.format([self.saveSeconds, self.stopSeconds, self.rejoinSeconds])",
                ".saveSeconds",
            ),
            rule(
                "!has(self.workerLostSeconds) || self.workerLostSeconds < self.rejoinSeconds",
                "'workerLostSeconds %d must be less than rejoinSeconds %d: a lost worker is known to be lost before a "
                "round forms without it'.format([self.workerLostSeconds, self.rejoinSeconds])",
                ".workerLostSeconds",
            ),
        )
    )

    last_call_seconds: Seconds = Field(
        30,
        description="Once minReplicas have joined, how long to wait for workers that are still on their way.",
    )
    join_timeout_seconds: Seconds = Field(
        600,
        description="How long a round may form while all missing workers have running pods and their torchruns have "
        "spoken to their sidecars; then the job fails. Pods for which there is no node or no quota do not hold it up.",
    )
    start_timeout_seconds: Seconds = Field(
        3600,
        description="How long a trainer that runs may take until its torchrun speaks to its sidecar, as while it "
        "downloads data first; then the job fails, if too few have joined without it.",
    )
    rejoin_seconds: Seconds = Field(
        75,
        description="How long members of the last round may take to stop their processes and join again; one that does "
        "not, and whose sidecar lives, is replaced.",
    )
    save_seconds: Annotated[int, Field(ge=0, le=86400)] = Field(
        15,
        description="How long a planned end of a round waits for scripts that call wants_restart() to save. "
        "With stopSeconds less than rejoinSeconds.",
    )
    stop_seconds: Seconds = Field(
        10,
        description="How long training processes may take to end at SIGTERM when their round is over, before SIGKILL.",
    )
    worker_lost_seconds: WorkerLost | None = Field(
        None,
        description="A worker that gives no sign of life for this long is lost and replaced: half of it until others "
        "doubt it, half until the operator, which asks it, has proof; who is asked for another reason has all of it to "
        "answer. Without it 4 seconds, in a group of 1,024 "
        "workers 4.4. At least 4: with less, a sidecar would be lost that stands still for three seconds, as on a busy "
        "machine. Less than rejoinSeconds.",
    )
    store_ready_seconds: Seconds = Field(
        20,
        description="How long rank 0 may take to serve the round's store before it is taken out of the group.",
    )
    restart_reset_seconds: Seconds = Field(
        3600, description="A round that lasts this long unbroken sets the count of restarts back to zero."
    )


# what says that a node is about to go: kubectl cordon and drain, autoscalers, and the notices of cloud providers
