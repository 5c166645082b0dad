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
        description="How long to wait for workers that are still on their way, once minReplicas have joined.",
    )
    join_timeout_seconds: Seconds = Field(
        600,
        description="How long a round may form while all awaited workers have running pods and their torchruns have "
        "called their sidecars. After that the job fails. Pods without a node or quota do not stop this clock.",
    )
    start_timeout_seconds: Seconds = Field(
        3600,
        description="How long a running trainer may take until its torchrun calls its sidecar, for example while it "
        "downloads data. After that the job fails, if too few other workers have joined.",
    )
    rejoin_seconds: Seconds = Field(
        75,
        description="How long members of the last round may take to stop their processes and join again. A member that "
        "takes longer, although its sidecar lives, is replaced.",
    )
    save_seconds: Annotated[int, Field(ge=0, le=86400)] = Field(
        15,
        description="How long a planned end of a round waits for scripts that call wants_restart() to save, and any "
        "end for processes that live through changes and say that they save. The sum with stopSeconds must be less "
        "than rejoinSeconds.",
    )
    stop_seconds: Seconds = Field(
        10,
        description="How long training processes may take to end after SIGTERM when their round is over. SIGKILL "
        "follows.",
    )
    worker_lost_seconds: WorkerLost | None = Field(
        None,
        description="A worker that sends no heartbeat for this long is lost and replaced: half of the time passes "
        "before others suspect it, half is for its ack once the operator pings it. A worker that is pinged for another "
        "reason has all of it for the ack. Default: 4, in a group of 1,024 workers 4.4. At least 4: otherwise a "
        "sidecar would be lost that stops for three seconds, as on a busy machine. Less than rejoinSeconds.",
    )
    store_ready_seconds: Seconds = Field(
        20,
        description="How long rank 0 may take to serve the round's store before it is replaced.",
    )
    restart_reset_seconds: Seconds = Field(
        3600, description="A round that lasts this long unbroken resets the count of restarts to zero."
    )
