# SPDX-License-Identifier: Apache-2.0
"""The torchruns that a pod's container runs one after the other: the present one, and its stage.

The n-th torchrun of each start of the container has stage n: one more than have ended in success in it before. Values
are immutable: each function returns a new one.
"""

from typing import Any, NamedTuple

from elasticjob.api import RequestType, WorkerRequest
from elasticjob_sidecar.membership.model import UNKNOWN_TORCHRUN, Torchrun

NONE_PASSED = ("", 0)


class Torchruns(NamedTuple):
    """`present`: what the trainer reports about itself; `stage`: its stage. `passed`: by start of the container, how
    many have ended in success. `succeeded`: the last stage in which one of this pod's has."""

    present: Torchrun = UNKNOWN_TORCHRUN
    stage: int = 1
    passed: tuple[str, int] = NONE_PASSED
    succeeded: int = 0

    def attached(self, torchrun: Torchrun, *, new: bool) -> "Torchruns":
        """A torchrun has opened its stream. `new`: it is not the previous one."""
        stage = torchrun.stage or self._next_of(torchrun) if new else self.stage
        return self._replace(present=torchrun, stage=stage)

    def recalled(self, request: WorkerRequest, *, there: bool) -> "Torchruns":
        """A request by an earlier incarnation of the sidecar. `there`: a trainer came before it was read."""
        before = (request.stage or 1) - (request.type is not RequestType.FINISH)
        known = self._replace(
            succeeded=max(self.succeeded, before),
            passed=(request.container or "", before) if self.passed == NONE_PASSED else self.passed,
        )
        if there and self.present.stage == 0:
            return known._replace(stage=known._next_of(self.present))
        return known

    def ended(self) -> "Torchruns":
        """The present one ended in success, or found its stage finished."""
        passed = (self.present.container, self.stage)
        return self._replace(succeeded=max(self.succeeded, self.stage), passed=passed)

    def fields(self) -> dict[str, Any]:
        """The fields of a request that describe its torchrun."""
        return {"stage": self.stage if self.stage > 1 else None, "container": self.present.container or None}

    def _next_of(self, torchrun: Torchrun) -> int:
        container, passed = self.passed
        return passed + 1 if container == torchrun.container else 1


NO_TORCHRUN = Torchruns()
