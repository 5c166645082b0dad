# SPDX-License-Identifier: Apache-2.0
"""A job's history in its status: the rounds that were formed, and the nodes on which workers failed."""

from pydantic import Field

from elasticjob.fields import Count, NodeName, PodName, Sentence, SmallCount, Time
from elasticjob.schema import Model


class RoundRecord(Model):
    """One round that was formed."""

    round: Count = Field(description="The round's number.")
    size: SmallCount = Field(description="The number of its workers.")
    cause: Sentence = Field(description="Why it was formed, in one word.")
    reason: Sentence = Field("", description="Why it was formed, in a sentence.")
    counted: bool = Field(False, description="Whether a failure that counts against spec.maxRestarts led to it.")
    seconds: float = Field(
        description="Seconds from its opening to its formation, as measured. No decision depends on it."
    )
    started: float | None = Field(
        None,
        description="Seconds from its formation until it trained: all its training processes had connected to its "
        "store or, if scripts report steps, the first step was reported. Absent until that is known.",
    )
    succeeded: float | None = Field(
        None,
        description="Seconds from its formation until all its workers had ended in success, if containers ran on after "
        "that. Absent before, and if they did not.",
    )
    time: Time = Field(description="When it was formed.")


class NodeFailures(Model):
    """A node on which workers of the job have failed."""

    node: NodeName = Field(description="The node's name.")
    failures: SmallCount = Field(0, description="How often workers have failed on it, as spec.avoidNodes counts.")
    round: Count = Field(
        0, description="The round of the last failure, or the round before it; 0 before the first round."
    )
    pod: PodName = Field("", description="The pod of the last failure.")
    time: Time = Field(description="When the last failure was seen.")
    suspect: PodName = Field(
        "",
        description="A pod whose failure ended the last round, until it is known whether that counts; see "
        "rendezvous.failure.",
    )
    avoided_until: Time | None = Field(
        None, description="The time until which new pods avoid the node; absent if it has failed too rarely."
    )
