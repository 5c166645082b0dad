# SPDX-License-Identifier: Apache-2.0
"""What the operator says: the status of an ElasticJob, with the agreed state of its rendezvous."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from elasticjob.failure_policy import MAX_RULES
from elasticjob.fields import (
    MAX_CONDITIONS,
    MAX_HISTORY,
    MAX_NODE_FAILURES,
    MAX_SCRIPTS,
    SENTENCE_LENGTH,
    WORD_LENGTH,
    ConditionReason,
    ConditionType,
    Count,
    Message,
    Metrics,
    NodeName,
    ObjectName,
    PodName,
    ScriptName,
    Sentence,
    SmallCount,
    Stage,
    Time,
    Word,
)
from elasticjob.members import Members
from elasticjob.schema import MembersField, Model, Replacements, is_empty
from elasticjob.terms import Outcome, PolicyAction, RendezvousPhase


class Challenge(Model):
    """A question to workers of which it is doubted that they live: each writes its number into its ElasticWorker."""

    number: Count = Field(0, description="Grows by one with each challenge of the job; 0 before the first.")
    members: MembersField = Field(
        default_factory=Members,
        exclude_if=is_empty,
        description="Who is asked, as index/id: who is doubted, and as controls others that are believed to live.",
    )


class MatchedRule(Model):
    """A rule of spec.podFailurePolicy that matches a failure."""

    index: Annotated[int, Field(ge=0, le=MAX_RULES - 1)] = Field(description="Its place among the rules, from 0.")
    action: PolicyAction = Field(description="What it says: FailJob, Ignore or Count.")
    message: Sentence = Field("", description="Which worker it matches, and why, in a sentence.")


class RendezvousStatus(Model):
    """The agreed state of the rendezvous. Every sidecar of the job watches it."""

    round: Count = Field(0, description="The current round; grows by one each time a round is opened.")
    phase: RendezvousPhase = Field(
        RendezvousPhase.FORMING, description="Whether the round is Forming or Formed, or the rendezvous Closed."
    )
    world_size: SmallCount = Field(0, description="Workers in the formed round; 0 while forming.")
    waiting: SmallCount = Field(
        0, description="Workers that have joined and are not in the current round; spares are counted by themselves."
    )
    participants: MembersField = Field(
        default_factory=Members,
        exclude_if=is_empty,
        description="The members of the last formed round in rank order, packed as index/id, or first-last/id where "
        "several have one id; more than 32 such words may be packed further. While Forming they are not yet the next "
        "round's. The form is ElasticJob's own and may change: `kubectl elasticjob status` shows the members one by "
        "one.",
    )
    replicas: SmallCount = Field(
        0,
        description="How many replicas the last round was formed for, so that a later round knows if the job was "
        "scaled: spec.replicas; of a gang as many of them as had quota.",
    )
    restarted_at: Time | None = Field(
        None,
        description="What spec.restartedAt was when the last round was formed; with another time there that round is "
        "ended. Absent before the first restart.",
    )
    leaving: MembersField = Field(
        default_factory=Members,
        exclude_if=is_empty,
        description="Workers told to leave: they exit and their pods go. Packed as participants are.",
    )
    finished: MembersField = Field(
        default_factory=Members,
        exclude_if=is_empty,
        description="Workers whose training and whose container ended in success. Packed as participants are.",
    )
    finishing: MembersField = Field(
        default_factory=Members,
        exclude_if=is_empty,
        description="Workers whose torchrun ended in success in this stage, and whose container goes on, with an "
        "upload or the next torchrun. Packed as participants are; absent where there are none.",
    )
    stage: Stage = Field(
        1,
        description="Which of the torchruns that each container runs one after the other the job is at, from 1.",
    )
    scripts: tuple[ScriptName, ...] = Field(
        (),
        exclude_if=is_empty,
        description="The scripts of the last 16 stages; the last is that of this one, empty until its first round. "
        "Absent where no torchrun has named one.",
        json_schema_extra={"maxItems": MAX_SCRIPTS, "x-kubernetes-list-type": "atomic"},
    )
    failure: Sentence = Field(
        "",
        exclude_if=is_empty,
        description="What failed in the last formed round, while it is not known whether it counts against "
        "spec.maxRestarts: that is judged when the group forms again.",
    )
    matched_rule: MatchedRule | None = Field(
        None,
        description="The first rule of spec.podFailurePolicy that matches what failed in the last formed round, while "
        "that is not judged.",
    )
    given_up: MembersField = Field(
        default_factory=Members,
        exclude_if=is_empty,
        description="Members of the last formed round whose pods were given up meanwhile for a cause that does not "
        "explain the failure. Packed as participants are.",
    )
    planned: bool = Field(
        False,
        description="The last round was ended for newcomers, workers told to leave or a restart, and all its members "
        "live: scripts may save before they are stopped.",
    )
    challenge: Challenge | None = Field(
        None,
        description="The last challenge; absent only under an operator of a version that goes by heartbeats.",
    )
    stalled: Count = Field(
        0,
        description="The round in which a member has reported nothing for spec.progressDeadlineSeconds, 0 for none: "
        "its members say how far they are, and their training processes write their stacks to the trainers' logs.",
    )
    store: str | None = Field(
        None,
        json_schema_extra={"maxLength": 128},
        description="Address of rank 0's sidecar, behind which the round's TCPStore serves, and after a slash its "
        "certificate's fingerprint: the first 128 bits of the SHA-256, in hex.",
    )
    reason: Sentence = Field("", exclude_if=is_empty, description="Why the round was formed, opened or closed.")
    cause: Word = Field("", exclude_if=is_empty, description="The same in one word, as metrics count it.")
    outcome: Outcome | None = Field(
        None, description="Why the rendezvous is Closed: Complete, Failed, Closed or RendezvousTimeout."
    )


class Condition(Model):
    """A condition, with the fields and bounds of all conditions in Kubernetes."""

    model_config = ConfigDict(
        json_schema_extra={"required": ["type", "status", "reason", "message", "lastTransitionTime"]}
    )

    type: ConditionType = Field(description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so: True, False or Unknown.")
    reason: ConditionReason = Field(description="Why, in one word.")
    message: Message = Field("", description="Why, in a sentence; may be empty.")
    observed_generation: Count | None = Field(None, description="The generation of the spec that it was found for.")
    last_transition_time: Time = Field(description="When the status last changed.")


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


class Progress(Model):
    """How far the training is, as the script in rank 0's worker reported it."""

    step: Count | None = Field(None, description="The last step that was taken.")
    total: Count | None = Field(None, description="The steps it means to take.")
    metrics: Metrics | None = Field(
        None, description="Numbers that it reported, as they came; nothing is decided by them."
    )
    summary: str = Field(
        "",
        json_schema_extra={"maxLength": WORD_LENGTH},
        description="Step and total in one word, for kubectl's column STEP.",
    )


class Active(Model):
    """For how long the job has been active, which is not suspended."""

    seconds: SmallCount = Field(0, description="How long it was active before the last suspension, or in all.")
    since: Time | None = Field(None, description="Since when it is active; absent while suspended and after the end.")


class LeaseIdentity(Model):
    """A Lease of the operators. Each Lease counts its own terms, so a term means nothing without its Lease."""

    namespace: ObjectName = Field(description="The namespace that the Lease is in.")
    name: ObjectName = Field(description="The name of the Lease.")
    uid: ObjectName = Field(description="The UID of the Lease: one that was deleted and made anew is another.")
    created: Time = Field(
        description="When it was created. Of two installations that write the same jobs, the one with the older Lease "
        "goes on."
    )

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"


class ElasticJobStatus(Model):
    """What the operator has seen and decided. Only the operator writes it."""

    observed_generation: Count | None = Field(
        None, description="The generation of the spec that this status answers to."
    )
    phase: Word = Field(
        "Pending",
        description="What kubectl shows as PHASE: one word for people, made from the conditions. Programs read those; "
        "words may be added here.",
    )
    reason: Word = Field(
        "",
        exclude_if=is_empty,
        description="Why the job waits, or has ended, in one word; empty while all wanted workers train, and "
        "spares can come.",
    )
    conditions: tuple[Condition, ...] = Field(
        (),
        description="Rendezvoused, Complete, Failed, Suspended, TemplateValid, with spec.progressDeadlineSeconds "
        "Progressing, after an invalid ElasticWorker WorkersValid, after a fault of the network between its pods "
        "Connected, after sidecars that the API server has refused or not answered SidecarsReady and, once it has "
        "waited for containers that go on after success, Finishing; `kubectl wait` works on them.",
        max_length=MAX_CONDITIONS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    replicas: SmallCount = Field(
        0, description="Worker pods that exist and are not on their way out, without the spares."
    )
    ready_replicas: SmallCount = Field(0, description="Those of them that are ready.")
    spares: SmallCount = Field(0, description="Spares that have joined, and wait for a place.")
    selector: str = Field(
        "",
        json_schema_extra={"maxLength": SENTENCE_LENGTH},
        description="The worker pods' label selector, for the scale subresource.",
    )
    starting: bool = Field(
        False,
        description="The processes of the formed round start, and do not train yet, as history[].started says it; for "
        "ten minutes at most, since a script may tell nothing.",
    )
    start_time: Time | None = Field(
        None, description="When the job was first active: not suspended, and of a gang with its quota."
    )
    completion_time: Time | None = Field(
        None, description="When the job was Complete, as in a Job; absent before, and if it has failed."
    )
    active: Active | None = Field(
        None, description="For how long the job has been active, as spec.activeDeadlineSeconds counts."
    )
    restarts: SmallCount = Field(0, description="Failures counted against spec.maxRestarts.")
    term: Count = Field(
        0, description="The operator's leadership term that wrote this: fences a leader that was replaced."
    )
    lease: LeaseIdentity | None = Field(
        None, description="The Lease that counts the term; absent under an operator of a version that does not tell."
    )
    rendezvous: RendezvousStatus = Field(default_factory=RendezvousStatus)
    progress: Progress | None = Field(
        None, description="How far the training is, by what its script reports; some seconds old, more in large jobs."
    )
    replacements: Replacements = Field(
        default_factory=dict,
        exclude_if=is_empty,
        description="How often a worker's pod was replaced, packed as index/number or first-last/number; the number is "
        "the last part of the pod's name. The form may change, as that of rendezvous.participants.",
    )
    draining: Replacements = Field(
        default_factory=dict,
        exclude_if=is_empty,
        description="The pods of workers whose nodes are about to go, packed as replacements are; absent where there "
        "are none.",
    )
    node_failures: tuple[NodeFailures, ...] = Field(
        (),
        exclude_if=is_empty,
        description="With spec.avoidNodes: the nodes on which workers have failed within its forSeconds, the last one "
        "at the end, and until when they are avoided; at most 64.",
        json_schema_extra={"maxItems": MAX_NODE_FAILURES, "x-kubernetes-list-type": "atomic"},
    )
    history: tuple[RoundRecord, ...] = Field(
        (),
        exclude_if=is_empty,
        description="The last five formed rounds.",
        json_schema_extra={"maxItems": MAX_HISTORY, "x-kubernetes-list-type": "atomic"},
    )
