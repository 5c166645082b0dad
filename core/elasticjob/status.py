# SPDX-License-Identifier: Apache-2.0
"""The status of an ElasticJob, with the agreed state of its rendezvous. The operator writes it."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from elasticjob.blockers import MAX_BLOCKERS, Admitted, Blocker, Indices
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
    Index,
    Message,
    Metrics,
    ObjectName,
    ScriptName,
    Sentence,
    SmallCount,
    Stage,
    Time,
    Word,
)
from elasticjob.history import NodeFailures, RoundRecord
from elasticjob.members import Members
from elasticjob.schema import MembersField, Model, Replacements, is_empty
from elasticjob.terms import FailureKind, Outcome, PolicyAction, RendezvousPhase


def _members(description: str) -> Any:
    """A field of members, absent where there are none."""
    return Field(default_factory=Members, exclude_if=is_empty, description=description)


def _listed(most: int, description: str) -> Any:
    """A list that is written as a whole, absent where it is empty."""
    extra: dict[str, Any] = {"maxItems": most, "x-kubernetes-list-type": "atomic"}
    return Field((), exclude_if=is_empty, description=description, json_schema_extra=extra)


class Ping(Model):
    """The last ping. Each worker that it names acks it by writing the number into its ElasticWorker."""

    number: Count = Field(0, description="Grows by one with each ping of the job; 0 before the first.")
    members: MembersField = _members(
        "The pinged workers, as index/id: those that are suspected, and witnesses that are not.",
    )


def _is_first(ping: Ping) -> bool:
    return ping.number == 0


def _is_zero(number: int) -> bool:
    return number == 0


def _is_false(flag: bool) -> bool:
    return not flag


class MatchedRule(Model):
    """A rule of spec.podFailurePolicy that matches a failure."""

    index: Annotated[int, Field(ge=0, le=MAX_RULES - 1)] = Field(description="Its position among the rules, from 0.")
    action: PolicyAction = Field(description="The rule's action: FailJob, Ignore or Count.")
    message: Sentence = Field("", description="Which worker it matches, and why, in a sentence.")


class RendezvousStatus(Model):
    """The agreed state of the rendezvous. Every sidecar of the job watches it."""

    round: Count = Field(0, description="The current round; grows by one each time a round is opened.")
    phase: RendezvousPhase = Field(
        RendezvousPhase.FORMING, description="Whether the round is Forming or Formed, or the rendezvous Closed."
    )
    world_size: SmallCount = Field(0, description="Workers in the formed round; 0 while forming.")
    waiting: SmallCount = Field(
        0, description="Workers that have joined and are not in the current round; spares are counted separately."
    )
    participants: MembersField = _members(
        "The members of the last formed round in rank order, packed as index/id, or first-last/id if "
        "several share an id; more than 32 such words may be packed further. While Forming they are still those of the "
        "last round. The form is ElasticJob's own and may change: `kubectl elasticjob status` shows the members one by "
        "one.",
    )
    replicas: SmallCount = Field(
        0,
        description="The replicas that the last round was formed for, so that a later round can tell a scale-up or "
        "scale-down: spec.replicas, or for a gang the part of them that had quota.",
    )
    restarted_at: Time | None = Field(
        None,
        description="The value of spec.restartedAt when the last round was formed. A different value there ends that "
        "round. Absent before the first restart.",
    )
    leaving: MembersField = _members(
        "Workers told to leave: they exit and their pods are deleted. Packed as participants are.",
    )
    finished: MembersField = _members(
        "Workers whose torchrun and whose container ended in success. Packed as participants are.",
    )
    finishing: MembersField = _members(
        "Workers whose torchrun ended in success in this stage, and whose container runs on, with an "
        "upload or the next torchrun. Packed as participants are; absent if there are none.",
    )
    stage: Stage = Field(
        1,
        description="The number of the present stage, from 1. A stage is one of the torchruns that each container runs "
        "one after the other.",
    )
    scripts: tuple[ScriptName, ...] = _listed(
        MAX_SCRIPTS,
        "The scripts of the last 16 stages. The last one is the present stage's, empty until its first "
        "round. Absent if no torchrun has named one.",
    )
    failure: Sentence = Field(
        "",
        exclude_if=is_empty,
        description="The failure of the last formed round, until it is judged, when the group forms again: only then "
        "is it known whether it counts against spec.maxRestarts.",
    )
    failure_of: Index | None = Field(None, description="The worker that it is of.")
    failure_kind: FailureKind | None = Field(
        None, description="What it tells of its cause. The failure of a round is the most telling one of its members."
    )
    matched_rule: MatchedRule | None = Field(
        None,
        description="The first rule of spec.podFailurePolicy that matches a failure of the last formed round, until "
        "that is judged.",
    )
    replaced: MembersField = _members(
        "Members of the last formed round whose pods were replaced since then for a cause that does not "
        "explain the failure. Packed as participants are.",
    )
    planned: bool = Field(
        False,
        description="The last round was ended for newcomers, for workers told to leave or for a restart, and all its "
        "members run: scripts may save before they are stopped.",
    )
    intact: bool = Field(
        False,
        exclude_if=_is_false,
        description="The last round was ended by plan, and all its members run: their training processes can leave it "
        "after the same step. Unlike planned, also where the training lives through the end. Absent if not.",
    )
    members_ended: bool = Field(
        False,
        exclude_if=_is_false,
        description="After a Close no member of the last round trains any more, though some may not have succeeded and "
        "containers may still run. Absent if not.",
    )
    live: Indices = Field(
        (),
        exclude_if=is_empty,
        description="The indices of the members of the last formed round whose training processes live through changes "
        "of the group, as numbers or first-last: the first 32 of these. Absent if there are none.",
    )
    restart_round: Count = Field(
        0,
        exclude_if=_is_zero,
        description="The last round that was opened for new training processes, because the training hung or a restart "
        "was asked for: no process of an earlier round lives on into it. Absent before the first.",
    )
    ping: Ping = Field(
        default_factory=Ping,
        exclude_if=_is_first,
        description="The last ping of suspected workers; absent before the first.",
    )
    stalled: Count = Field(
        0,
        description="The round in which a member has reported nothing for spec.progressDeadlineSeconds, 0 for none. "
        "Its members then report how far they are, and their training processes write their stacks to the trainers' "
        "logs.",
    )
    store: str | None = Field(
        None,
        json_schema_extra={"maxLength": 128},
        description="The address of rank 0's sidecar, which forwards to the round's TCPStore, and after a slash its "
        "certificate's fingerprint: the first 128 bits of the SHA-256, in hex.",
    )
    reason: Sentence = Field("", exclude_if=is_empty, description="Why the round was formed, opened or closed.")
    cause: Word = Field("", exclude_if=is_empty, description="The same in one word, which metrics use.")
    outcome: Outcome | None = Field(
        None, description="Why the rendezvous is Closed: Complete, Failed, Closed or RendezvousTimeout."
    )


class Condition(Model):
    """A condition, with the fields and bounds of Kubernetes' own conditions."""

    model_config = ConfigDict(
        json_schema_extra={"required": ["type", "status", "reason", "message", "lastTransitionTime"]}
    )

    type: ConditionType = Field(description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(
        description="Whether the condition holds: True, False or Unknown."
    )
    reason: ConditionReason = Field(description="Why, in one word.")
    message: Message = Field("", description="Why, in a sentence; may be empty.")
    observed_generation: Count | None = Field(
        None, description="The generation of the spec that the condition is based on."
    )
    last_transition_time: Time = Field(description="When the status last changed.")


class Progress(Model):
    """How far the training is, as the script in rank 0's worker reported it."""

    step: Count | None = Field(None, description="The last step that was taken.")
    total: Count | None = Field(None, description="The number of steps that it will take.")
    metrics: Metrics | None = Field(
        None, description="Numbers that it reported, unchanged. No decision depends on them."
    )
    summary: str = Field(
        "",
        json_schema_extra={"maxLength": WORD_LENGTH},
        description="Step and total in one word, for kubectl's column STEP.",
    )


class Active(Model):
    """How long the job has been active, which means not suspended."""

    seconds: SmallCount = Field(0, description="Seconds that it was active before the last suspension, or in all.")
    since: Time | None = Field(
        None, description="The time since which it has been active; absent while suspended and after the end."
    )


class LeaseIdentity(Model):
    """A Lease of the operators. Each Lease counts its own terms, so a term means nothing without its Lease."""

    namespace: ObjectName = Field(description="The namespace of the Lease.")
    name: ObjectName = Field(description="The name of the Lease.")
    uid: ObjectName = Field(description="The UID of the Lease: a Lease that is deleted and made again has another.")
    created: Time = Field(
        description="When it was created. If two installations write the same jobs, the one with the older Lease keeps "
        "them."
    )

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"


class ElasticJobStatus(Model):
    """What the operator has observed and decided. Only the operator writes it."""

    observed_generation: Count | None = Field(None, description="The generation of the spec that this status reflects.")
    phase: Word = Field(
        "Pending",
        description="The column PHASE of kubectl: one word for people, derived from the conditions. Programs read the "
        "conditions; words may be added here.",
    )
    reason: Word = Field(
        "",
        exclude_if=is_empty,
        description="Why the job waits, or has ended, in one word. Empty while all wanted workers train and no spare "
        "is missing.",
    )
    conditions: tuple[Condition, ...] = Field(
        (),
        description="Rendezvoused, Complete, Failed, Suspended and TemplateValid always; Progressing with "
        "spec.progressDeadlineSeconds; WorkersValid after an invalid ElasticWorker; Connected after a fault of the "
        "network between its pods; SidecarsReady after the API server refused sidecars or did not answer them; "
        "Finishing once the job has waited for containers that run on after success. `kubectl wait` works on them.",
        max_length=MAX_CONDITIONS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    blockers: tuple[Blocker, ...] = _listed(
        MAX_BLOCKERS + 1,
        "What keeps the job from its full size, the worst first, as `kubectl elasticjob why` tells it: at "
        "most 16 causes, and one of the reason OtherBlockers that counts the rest. Absent where there is nothing.",
    )
    replicas: SmallCount = Field(0, description="Worker pods that exist and are not being deleted, without the spares.")
    ready_replicas: SmallCount = Field(0, description="The ready ones among replicas.")
    spares: SmallCount = Field(0, description="Spares that have joined and wait for a place.")
    selector: str = Field(
        "",
        json_schema_extra={"maxLength": SENTENCE_LENGTH},
        description="The worker pods' label selector, for the scale subresource.",
    )
    starting: bool = Field(
        False,
        description="The processes of the formed round are starting and do not train yet, as history[].started defines "
        "it. True for ten minutes at most, since a script may report nothing.",
    )
    start_time: Time | None = Field(
        None, description="When the job was first active: not suspended, and if it is a gang, with its quota."
    )
    completion_time: Time | None = Field(
        None, description="When the job was Complete, as in a Job; absent before, and if it has failed."
    )
    active: Active | None = Field(
        None, description="For how long the job has been active, as spec.activeDeadlineSeconds counts."
    )
    restarts: SmallCount = Field(0, description="Failures counted against spec.maxRestarts.")
    term: Count = Field(
        0, description="The operator's leadership term in which this was written. It fences off a replaced leader."
    )
    lease: LeaseIdentity | None = Field(
        None, description="The Lease that counts the term; absent if the operator's version does not write it."
    )
    rendezvous: RendezvousStatus = Field(default_factory=RendezvousStatus)
    admitted: Admitted | None = Field(
        None,
        description="With spec.quotaAdmission Gang, while fewer workers than the spec asks for have quota: how many "
        "have it, which is how many the rendezvous waits for.",
    )
    progress: Progress | None = Field(
        None, description="How far the training is, as its script reports it; some seconds old, more in large jobs."
    )
    replacements: Replacements = Field(
        default_factory=dict,
        exclude_if=is_empty,
        description="How often each worker's pod was replaced, packed as index/number or first-last/number. The number "
        "is the last part of the pod's name. The form may change, like that of rendezvous.participants.",
    )
    draining: Replacements = Field(
        default_factory=dict,
        exclude_if=is_empty,
        description="The pods of draining workers, packed as replacements are; absent if there are none.",
    )
    node_failures: tuple[NodeFailures, ...] = _listed(
        MAX_NODE_FAILURES,
        "With spec.avoidNodes: the nodes on which workers have failed within its forSeconds, the latest "
        "failure last, and until when they are avoided; at most 64.",
    )
    history: tuple[RoundRecord, ...] = _listed(
        MAX_HISTORY,
        "The last five formed rounds.",
    )
