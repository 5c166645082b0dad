"""What the operator says: the status of an ElasticJob, with the agreed state of its rendezvous."""

from typing import Literal

from pydantic import Field

from elasticjob.fields import MAX_CONDITIONS, Count, Metrics
from elasticjob.members import Members
from elasticjob.schema import MembersField, Model, Replacements
from elasticjob.terms import Outcome, RendezvousPhase


class RendezvousStatus(Model):
    """The agreed state of the rendezvous. Every sidecar of the job watches it."""

    round: Count = Field(0, description="The current round; grows by one each time a round is opened.")
    phase: RendezvousPhase = Field(RendezvousPhase.FORMING, description="Forming, Formed or Closed.")
    world_size: Count = Field(0, description="Workers in the formed round; 0 while forming.")
    waiting: Count = Field(0, description="Workers that have joined and are not in the current round.")
    participants: MembersField = Field(
        default_factory=Members,
        description="The members of the last formed round in rank order, as index/id, or first-last/id where several "
        "have one id; while Forming they are not yet the next round's.",
    )
    replicas: Count = Field(
        0,
        description="spec.replicas when the last round was formed, so that a later round knows if the job was scaled.",
    )
    leaving: MembersField = Field(
        default_factory=Members, description="Workers told to leave: they exit and their pods go."
    )
    finished: MembersField = Field(default_factory=Members, description="Workers whose training ended in success.")
    failure: str = Field(
        "",
        description="What failed in the last formed round, while it is not known whether it counts against "
        "spec.maxRestarts: that is judged when the group forms again.",
    )
    given_up: MembersField = Field(
        default_factory=Members,
        description="Members of the last formed round whose pods were given up meanwhile for a cause that does not "
        "explain the failure.",
    )
    planned: bool = Field(
        False,
        description="The last round was ended for newcomers or for workers told to leave, and all its members live: "
        "scripts may save before they are stopped.",
    )
    store: str | None = Field(
        None,
        description="Address of rank 0's sidecar, behind which the round's TCPStore serves, and after a slash its "
        "certificate's fingerprint: the first 128 bits of the SHA-256, in hex.",
    )
    reason: str = Field("", description="Why the round was formed, opened or closed.")
    outcome: Outcome | None = Field(
        None, description="Why the rendezvous is Closed: Complete, Failed, Closed or RendezvousTimeout."
    )


class Condition(Model):
    """A condition in the usual Kubernetes form."""

    type: str = Field(description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(description="Why, in one word.")
    message: str = Field("", description="Why, in a sentence.")
    observed_generation: int | None = Field(None, description="The generation of the spec that it was found for.")
    last_transition_time: str = Field(description="When the status last changed.")


class RoundRecord(Model):
    """One round that was formed."""

    round: Count = Field(description="The round's number.")
    size: Count = Field(description="How many workers it had.")
    cause: str = Field(description="Why it was formed.")
    seconds: float = Field(description="Seconds from its opening to its forming.")
    time: str = Field(description="When it was formed.")


class Progress(Model):
    """How far the training is, as the script in rank 0's worker reported it."""

    step: Count | None = Field(None, description="The last step.")
    total: Count | None = Field(None, description="The steps it means to take.")
    metrics: Metrics | None = Field(None, description="Its numbers.")
    summary: str = Field("", description="Step and total in one word.")


class ElasticJobStatus(Model):
    """What the operator has seen and decided. Only the operator writes it."""

    observed_generation: int | None = Field(None, description="The generation of the spec that this status answers to.")
    phase: str = Field("Pending", description="One word for people, derived from the conditions.")
    reason: str = Field(
        "",
        description="Why the job waits, or has ended, in one word; empty while all wanted workers train.",
    )
    conditions: tuple[Condition, ...] = Field(
        (),
        description="Rendezvoused, Complete, Failed, Suspended, TemplateValid and, after an invalid ElasticWorker, "
        "WorkersValid; `kubectl wait` works on them.",
        max_length=MAX_CONDITIONS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    replicas: Count = Field(0, description="Worker pods that exist and are not on their way out.")
    ready_replicas: Count = Field(0, description="Worker pods that are ready.")
    selector: str = Field("", description="The worker pods' label selector, for the scale subresource.")
    restarts: Count = Field(0, description="Failures counted against spec.maxRestarts.")
    term: Count = Field(
        0, description="The operator's leadership term that wrote this: fences a leader that was replaced."
    )
    rendezvous: RendezvousStatus = Field(default_factory=RendezvousStatus)
    progress: Progress | None = Field(
        None, description="How far the training is, by what its script reports; some seconds old, more in large jobs."
    )
    replacements: Replacements = Field(
        default_factory=dict,
        description="How often a worker's pod was replaced, as index/number or first-last/number; the number is the "
        "last part of the pod's name.",
    )
    history: tuple[RoundRecord, ...] = Field(
        (), description="The last five formed rounds.", json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
