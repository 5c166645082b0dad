# SPDX-License-Identifier: Apache-2.0
"""What keeps a job from its full size, as its status says it: each cause as data, and the quota of a gang."""

from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from elasticjob.fields import Sentence, SmallCount, Time, Word
from elasticjob.indices import MAX_RUNS, read_indices, written_indices
from elasticjob.schema import Model, is_empty

MAX_BLOCKERS = 16  # and one more that counts the others
OTHERS = "OtherBlockers"  # the reason of that one

Indices = Annotated[
    tuple[int, ...],
    PlainValidator(read_indices),
    PlainSerializer(written_indices, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": MAX_RUNS * len("65535-65535 ")}),
]
About = Annotated[str, WithJsonSchema({"type": "string", "maxLength": 63 + 1 + 253})]


class Blocker(Model):
    """One cause that keeps a job from its full size, with all workers that it keeps away."""

    reason: Word = Field(description="The cause in one word: those of status.reason, and of the events.")
    object: About = Field(
        "",
        exclude_if=is_empty,
        description="The object at fault, as Kind/name; absent where it is not known, or is each worker's own pod.",
    )
    workers: Indices = Field(
        (),
        exclude_if=is_empty,
        description="The indices of the workers that it keeps away, as numbers or first-last: the first 32 of these. "
        "Absent where it keeps the whole job.",
    )
    count: SmallCount = Field(
        0, description="How many workers it keeps away, be it that not all are named; 0 where it keeps the whole job."
    )
    spares: bool = Field(False, description="The workers would be spares, for which the others do not wait.")
    since: Time = Field(description="Since when the operator has seen it.")
    message: Sentence = Field("", description="What is wrong, in a sentence, as Kubernetes says it.")
    remedy: Sentence = Field("", exclude_if=is_empty, description="What to do about it, in a sentence.")
    passes: bool = Field(False, description="Whether it is expected to end without any action.")


class Admitted(Model):
    """The part of a gang that has quota."""

    replicas: SmallCount = Field(
        description="How many of spec.replicas have quota; with 0 the job is as if it was suspended."
    )
    spares: SmallCount = Field(0, description="How many of spec.spareReplicas have quota beside them.")
