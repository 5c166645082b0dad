# SPDX-License-Identifier: Apache-2.0
"""Which sizes a round may have, as a user asks for them, and the same in CEL."""

from typing import Annotated

from pydantic import ConfigDict, Field

from elasticjob.fields import Replicas
from elasticjob.schema import Model, rule, validations

Size = Annotated[Replicas, Field(description="A number of workers.")]


class SizesSpec(Model):
    """Which sizes a round may have: those that the model can be split over. One of the two is given."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule("has(self.step) != has(self.allowed)", "give either step or allowed", ".step")
        )
    )

    step: Replicas | None = Field(None, description="Rounds have a multiple of so many workers.")
    allowed: tuple[Size, ...] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Rounds have one of these numbers of workers.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )

    def up_to(self, replicas: int) -> tuple[int, ...]:
        """All that are no larger than `replicas`, ascending; where there are none the smallest, as others never do."""
        sizes = range(self.step, max(replicas, self.step) + 1, self.step) if self.step else sorted(self.allowed or ())
        return tuple(size for size in sizes if size <= replicas) or tuple(sizes[:1])


def is_a_size(of: str) -> str:
    """In CEL: whether a round may have that size, as far as sizes is itself as its own rule and bounds ask."""
    by_step = f"self.sizes.step < 1 || {of} % self.sizes.step == 0"
    either = f"has(self.sizes.step) ? {by_step} : {of} in self.sizes.allowed"
    return f"has(self.sizes.step) == has(self.sizes.allowed) || ({either})"
