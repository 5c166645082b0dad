# SPDX-License-Identifier: Apache-2.0
"""The errors of a call to the sidecar: no answer, or an error as the answer."""

from __future__ import annotations

from elasticjob_torch import wire


class SidecarError(Exception):
    """Base class of the errors of a call to the sidecar."""


class SidecarUnavailable(SidecarError):
    """No server answers at the sidecar's address, or one that is not a sidecar."""

    def __init__(self, message: str, *, passing: bool = True) -> None:
        super().__init__(message)
        self.passing = passing


class SidecarRefusal(SidecarError):
    """The sidecar answered with an error."""

    def __init__(self, code: str, message: str, outcome: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.outcome = outcome


class RoundBroken(SidecarRefusal):
    """The round asked about is no longer the current one."""


class NoTrainer(SidecarRefusal):
    """The event stream of this trainer is not open."""


class Superseded(SidecarRefusal):
    """A newer torchrun of this pod has replaced this one."""


class TrainerLives(SidecarRefusal):
    """Another torchrun of this pod takes part in the job."""


class Closed(SidecarRefusal):
    """The rendezvous is closed."""


class Leaving(SidecarRefusal):
    """This worker is scaled away."""


class StageFinished(SidecarRefusal):
    """This torchrun's stage is finished: there is nothing left to do for it."""


class OtherScript(SidecarRefusal):
    """The other workers run another script in this stage."""


class NewProcesses(SidecarRefusal):
    """The training processes have to be new, and the join says that they live on."""


class JoinTimeout(SidecarRefusal):
    """No round was formed in time."""


class StoreTimeout(SidecarRefusal):
    """The round's store did not answer in time."""


REFUSALS: dict[str, type[SidecarRefusal]] = {
    wire.Code.ROUND_BROKEN: RoundBroken,
    wire.Code.NO_TRAINER: NoTrainer,
    wire.Code.SUPERSEDED: Superseded,
    wire.Code.TRAINER_LIVES: TrainerLives,
    wire.Code.CLOSED: Closed,
    wire.Code.LEAVING: Leaving,
    wire.Code.STAGE_FINISHED: StageFinished,
    wire.Code.OTHER_SCRIPT: OtherScript,
    wire.Code.NEW_PROCESSES: NewProcesses,
    wire.Code.JOIN_TIMEOUT: JoinTimeout,
    wire.Code.STORE_TIMEOUT: StoreTimeout,
}
