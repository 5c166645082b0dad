# SPDX-License-Identifier: Apache-2.0
"""The allowed sizes of a round, as a user sets them, in Python and in CEL."""

from typing import Annotated

from pydantic import ConfigDict, Field

from elasticjob.fields import Replicas
from elasticjob.schema import Model, rule, validations

Size = Annotated[Replicas, Field(description="A number of workers.")]


class SizesSpec(Model):
    """The allowed sizes of a round, such as those that the model can be split over. Exactly one of the two is given."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule("has(self.step) != has(self.allowed)", "give either step or allowed", ".step")
        )
    )

    step: Replicas | None = Field(None, description="The size of a round is a multiple of this number.")
    allowed: tuple[Size, ...] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="The size of a round is one of these numbers.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )

    def up_to(self, replicas: int) -> tuple[int, ...]:
        """All sizes up to `replicas`, ascending. If there are none, the smallest size alone."""
        sizes = range(self.step, max(replicas, self.step) + 1, self.step) if self.step else sorted(self.allowed or ())
        return tuple(size for size in sizes if size <= replicas) or tuple(sizes[:1])


def is_a_size(of: str) -> str:
    """A CEL condition: whether a round may have this size. It also holds if spec.sizes itself is invalid, which rules
    of its own refuse."""
    by_step = f"self.sizes.step < 1 || {of} % self.sizes.step == 0"
    either = f"has(self.sizes.step) ? {by_step} : {of} in self.sizes.allowed"
    return f"has(self.sizes.step) == has(self.sizes.allowed) || ({either})"
