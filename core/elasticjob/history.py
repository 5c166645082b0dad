"""What has happened to a job, as its status keeps it: rounds that were formed, nodes on which workers failed."""

from pydantic import Field

from elasticjob.fields import Count, NodeName, PodName, Sentence, SmallCount, Time
from elasticjob.schema import Model


class RoundRecord(Model):
    """One round that was formed."""

    round: Count = Field(description="The round's number.")
    size: SmallCount = Field(description="How many workers it had.")
    cause: Sentence = Field(description="Why it was formed, in one word.")
    reason: Sentence = Field("", description="Why it was formed, in a sentence.")
    counted: bool = Field(False, description="Whether that was a failure which counts against spec.maxRestarts.")
    seconds: float = Field(
        description="Seconds from its opening to its forming, as measured; nothing is decided by them."
    )
    started: float | None = Field(
        None,
        description="Seconds from its forming until it trained: all its training processes had connected to its store "
        "or, where scripts report steps, the first was reported. Absent while nothing has told that.",
    )
    succeeded: float | None = Field(
        None,
        description="Seconds from its forming until all its workers had ended in success, where containers went on "
        "after that; absent before, and where they did not.",
    )
    time: Time = Field(description="When it was formed.")


class NodeFailures(Model):
    """A node on which workers of the job have failed."""

    node: NodeName = Field(description="The node's name.")
    failures: SmallCount = Field(0, description="How often workers have failed on it, as spec.avoidNodes counts.")
    round: Count = Field(0, description="The round that the last failure was in or came after, 0 before the first.")
    pod: PodName = Field("", description="The pod of the last failure.")
    time: Time = Field(description="When the last failure was seen.")
    suspect: PodName = Field(
        "",
        description="A pod by whose failure the last round has ended, while it is not known whether that counts; as "
        "rendezvous.failure.",
    )
    avoided_until: Time | None = Field(
        None, description="Until when new pods keep off the node; absent while it has failed too rarely for that."
    )
