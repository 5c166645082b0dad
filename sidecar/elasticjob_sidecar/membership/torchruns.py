# SPDX-License-Identifier: Apache-2.0
"""The torchruns that a pod's container runs one after the other: which of them is at work, and of which stage it is.

The n-th torchrun of each start of the container is of stage n: one more than have ended in success in it before. Values
never change: each function gives another.
"""

from typing import Any, NamedTuple

from elasticjob.api import RequestType, WorkerRequest
from elasticjob_sidecar.membership.model import UNKNOWN_TORCHRUN, Torchrun

NONE_PASSED = ("", 0)


class Torchruns(NamedTuple):
    """`present` is what the trainer says of itself, and `stage` its stage. `passed`: in which start of the container
    how many have ended in success. `succeeded`: the last stage in which one of this pod has."""

    present: Torchrun = UNKNOWN_TORCHRUN
    stage: int = 1
    passed: tuple[str, int] = NONE_PASSED
    succeeded: int = 0

    def attached(self, torchrun: Torchrun, *, new: bool) -> "Torchruns":
        """One has opened its stream; `new`: it is another than before."""
        stage = torchrun.stage or self._next_of(torchrun) if new else self.stage
        return self._replace(present=torchrun, stage=stage)

    def recalled(self, said: WorkerRequest, *, there: bool) -> "Torchruns":
        """An earlier incarnation of the sidecar has written this; `there`: a trainer came before it was read."""
        before = (said.stage or 1) - (said.type is not RequestType.FINISH)
        known = self._replace(
            succeeded=max(self.succeeded, before),
            passed=(said.container or "", before) if self.passed == NONE_PASSED else self.passed,
        )
        if there and self.present.stage == 0:
            return known._replace(stage=known._next_of(self.present))
        return known

    def ended(self) -> "Torchruns":
        """The present one has ended in success, or has found that its stage has."""
        passed = (self.present.container, self.stage)
        return self._replace(succeeded=max(self.succeeded, self.stage), passed=passed)

    def told(self) -> dict[str, Any]:
        """What a request says of the torchrun that it is of."""
        return {"stage": self.stage if self.stage > 1 else None, "container": self.present.container or None}

    def _next_of(self, torchrun: Torchrun) -> int:
        container, passed = self.passed
        return passed + 1 if container == torchrun.container else 1


NO_TORCHRUN = Torchruns()
