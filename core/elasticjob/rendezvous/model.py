# SPDX-License-Identifier: Apache-2.0
"""The inputs and outputs of the state machine. All of them are frozen. Times are seconds of the caller's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from elasticjob.members import Member
from elasticjob.terms import FailureKind, Outcome, PolicyAction, RendezvousPhase, RequestCause, RequestType

PodKey = tuple[int, int]  # index and replacement number: together they name a pod
PATIENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The part of an ElasticJob's spec that the rendezvous needs. Times are in seconds.

    `worker_lost`: from a worker's last heartbeat on its link to its loss. `heartbeat_timeout`: a worker without a
    heartbeat in its record for this long is suspected.

    `restarted_at`: when a user last asked for new processes, "" for never. `deadline`: when the job fails for its
    duration, None for no limit. `starts_torchrun`: False where the command plainly starts another program; exit code 0
    before a join is then an error. `sizes`: the allowed sizes of a round; empty allows any. While quota is missing,
    `replicas` may be less than `min_replicas` and than every size: no round is formed then. `rank_order`: the node
    labels by which ranks are laid out, the largest domain first; if empty, remaining members keep their ranks.
    """

    replicas: int
    spares: int = 0
    min_replicas: int = 1
    max_restarts: int = 3
    suspend: bool = False
    restarted_at: str = ""
    deadline: float | None = None
    last_call: float = 30
    join_timeout: float = 600
    start_timeout: float = 3600
    rejoin: float = 75
    worker_lost: float = 4
    heartbeat_timeout: float = 450
    restart_reset: float = 3600
    finish: float = 3600
    starts_torchrun: bool = True
    sizes: tuple[int, ...] = ()
    rank_order: tuple[str, ...] = ()

    @property
    def patience(self) -> float:
        """Seconds that contradictory pods, records and statuses have to become consistent."""
        return max(self.worker_lost, PATIENCE_SECONDS)

    @property
    def max_crashes(self) -> int:
        """How often a trainer may be started again in its pod before it joins."""
        return self.max_restarts if self.starts_torchrun else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request in a worker's record: `after` goes with Join, `round` with Finish.

    `stage`: the stage of its torchrun, which is one more than the torchruns that ended in success in its container
    before. `script`: the script of a Join's torchrun. `last_call`, `worker_lost`: limits in seconds that a Join may set
    in place of the spec's. `detail`: the previous failure, for people. `kind`: what that tells
    of its cause. `live`: all training processes of a Join's
    worker run, and live on into the next round.
    """

    type: RequestType
    after: int = 0
    round: int = 0
    stage: int = 1
    script: str = ""
    cause: str = ""
    detail: str = ""
    kind: FailureKind = FailureKind.UNKNOWN
    live: bool = False
    last_call: float | None = None
    worker_lost: float | None = None


class Matched(NamedTuple):
    """The first matching rule of the job's failure policy: its position, its action, and the reason in a sentence."""

    rule: int
    action: PolicyAction
    why: str


class PodState(StrEnum):
    """The state of the trainer container, as the pod reports it."""

    PENDING = "pending"
    UNSCHEDULABLE = "unschedulable"
    BLOCKED = "blocked"  # its image or configuration is wrong
    RUNNING = "running"
    CRASH_LOOP = "crash loop"  # the kubelet delays its next start
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OOM_KILLED = "out of memory"  # reported with exit code 0, after which the kubelet does not restart the container


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One pod of the job, with the record that its sidecar wrote, if there is one.

    `replacement`: the last part of the pod's name. `crashes`: how often its trainer container was restarted in place.
    `detail`: a fault that its pod or its sidecar reports. `kind`: what that tells of its cause. `invalid`: what is
    wrong with the record, which is then ignored. `matched`: the matching rule of the job's failure policy, once the
    worker has stopped.

    `disrupted`: the cluster ended the pod for a reason of its own. `rejected`: the node refused the pod before any
    container started. `outdated`: the pod was made from an earlier template. `draining`: another is to take over from
    it, because its node is draining or, if `unhealthy`, because a device of it is unhealthy. `unready`: the cluster
    has lost contact with its node.

    `hung`: how the training hangs, if the round is to be restarted because of this member. `cut_off`: the link between
    it and rank 0 has been broken for long, though both live. `suspects`: members whose links to it are silent. `ack`:
    the number of the last ping that it acked, 0 before the first. `live_in`: the last round in which all its training
    processes have opted in to live through changes, 0 before the first. `topology`: with `rank_order`, its node's
    values of those labels, empty where unknown, and then the node's name.
    """

    index: int
    replacement: int = 0
    pod: PodState = PodState.RUNNING
    deleting: bool = False
    crashes: int = 0
    id: str | None = None
    address: str = ""
    request: Request | None = None
    heartbeat: int | None = None
    suspects: tuple[Member, ...] = ()
    ack: int = 0
    detail: str = ""
    kind: FailureKind = FailureKind.UNKNOWN
    invalid: str = ""
    disrupted: bool = False
    rejected: bool = False
    outdated: bool = False
    draining: bool = False
    unhealthy: bool = False
    unready: bool = False
    hung: str = ""
    cut_off: bool = False
    live_in: int = 0
    matched: Matched | None = None
    topology: tuple[str, ...] = ()
    member: Member | None = field(init=False, compare=False, repr=False)  # cached: a step reads it about twenty times

    def __post_init__(self) -> None:
        object.__setattr__(self, "member", None if self.id is None else Member(self.index, self.id))

    @property
    def pod_key(self) -> PodKey:
        return (self.index, self.replacement)

    def asks(self, type: RequestType) -> bool:
        return self.request is not None and self.request.type is type


class Beat(NamedTuple):
    """A member's last heartbeat (None before the first), and when it was first seen."""

    value: int | None
    since: float


class Pinged(NamedTuple):
    """A ping of one member. An ack of this `number` or a later one settles it. Times are of the operator's clock.

    `since`: when it was first sent. `counting`: when its clock started, because another member acked, or because this
    one was pinged `alone` and no other can ack. `acked`: when its own ack was seen. `lived`: when its first ack after
    the suspicion was seen. `unheard`: another member suspected it when the ping was sent.
    """

    number: int
    since: float
    counting: float | None = None
    acked: float | None = None
    lived: float | None = None
    alone: bool = False
    unheard: bool = False


class Finishing(NamedTuple):
    """A worker whose torchrun ended in success. `crashes`: how often its container had been restarted by then. `since`:
    when the job began to wait only for such containers, None while it waits for others too."""

    crashes: int
    since: float | None = None


class Failures(NamedTuple):
    """The failures of one index's pods without an outside cause: how many in a row, how many of the latest before any
    round, the time of the last one, and its reason."""

    in_a_row: int
    before_any_round: int
    since: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """What an operator remembers between two steps and never writes down: a new one starts with `Clocks(now, now)`.

    `settled`: the time from which all sidecars are assumed to hear the API server again, as this operator does.
    `pings`: None until the operator has read the last ping from the status.
    """

    opened: float
    formed: float
    min_reached: float | None = None  # forming: when minReplicas had joined
    # forming: when all awaited workers that have a node had a running pod, while at least one torchrun was silent
    all_running: float | None = None
    all_spoke: float | None = None  # likewise, with no silent torchrun
    newcomer: float | None = None  # formed: when the first newcomer began to wait
    settled: float = -inf
    beats: Mapping[Member, Beat] = field(default_factory=dict)
    pings: Mapping[Member, Pinged] | None = None
    leaving: Mapping[Member, float] = field(default_factory=dict)
    invalid: Mapping[PodKey, float] = field(default_factory=dict)  # when a pod's contradiction was first seen
    failures: Mapping[int, Failures] = field(default_factory=dict)
    finishing: Mapping[Member, Finishing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The agreed state, as an ElasticJob's status holds it, with the operator's clocks.

    `participants`: the members of the last formed round, in rank order. `replicas`, `restarted_at`: the spec's values
    at that time. `replacements`: by index, the number of the one pod that counts. Earlier pods were replaced; the
    operator has made no later ones.

    `failure`: what failed in the last formed round, until it is known whether that counts: it is judged when the group
    forms again. `failure_of`: the index of its worker, None for none. `failure_kind`: what it tells of its cause.
    `matched`: the rule of the job's failure policy that it matches. `replaced`: members replaced since then for a cause
    that does not explain the failure.

    `waiting`: how many workers have joined and have a place, without being members. `spares`: how many have joined and
    have none.

    `planned`: the user's change ended the last round while all its members ran, so the training may save before it
    stops. Once a member is lost, the others must stop too: they would wait for it.

    `intact`: the last round was ended by plan, and none of its members has stopped untold since or is lost: all of them
    can end their collectives. Unlike `planned`, it is so also where the training lives through the end.

    `live`: the indices of the members of the last formed round whose training processes live through changes, in
    ascending order. `restart_round`: the last round that was opened for new processes: a process of an earlier round
    does not live on into it. 0 before the first.

    `ping`: the number of the last ping. `pinged`: the members it went to.

    `reason`: why the phase was entered, in a sentence. `cause`: the same in one word.

    `stage`: the number of the torchruns that the containers run one after the other. `scripts`: the scripts of the
    stages so far, the current one last. `finishing`: workers whose torchrun of this stage ended in success and whose
    container still runs. `finished`: workers whose container has ended in success too; they are no longer needed.

    `done`: the indices of both, whatever id a restarted sidecar has. In this stage they get no other pod and no place.

    `members_ended`: no member trains any more after a `Close`, though containers may still run.
    """

    clocks: Clocks
    round: int = 1
    phase: RendezvousPhase = RendezvousPhase.FORMING
    participants: tuple[Member, ...] = ()
    replicas: int = 0
    restarted_at: str = ""
    leaving: tuple[Member, ...] = ()
    finished: tuple[Member, ...] = ()
    finishing: tuple[Member, ...] = ()
    members_ended: bool = False
    stage: int = 1
    scripts: tuple[str, ...] = ()
    replacements: Mapping[int, int] = field(default_factory=dict)
    restarts: int = 0
    failure: str = ""
    failure_of: int | None = None
    failure_kind: FailureKind = FailureKind.UNKNOWN
    matched: Matched | None = None
    replaced: tuple[Member, ...] = ()
    planned: bool = False
    intact: bool = False
    live: tuple[int, ...] = ()
    restart_round: int = 0
    waiting: int = 0
    spares: int = 0
    ping: int = 0
    pinged: tuple[Member, ...] = ()
    store: str | None = None
    outcome: Outcome | None = None
    reason: str = ""
    cause: str = ""
    done: frozenset[int] = field(init=False, compare=False, repr=False)

    @property
    def finished_indices(self) -> frozenset[int]:
        return frozenset(member.index for member in self.finished)

    def __post_init__(self) -> None:
        object.__setattr__(self, "done", frozenset(member.index for member in (*self.finished, *self.finishing)))

    @property
    def all_live(self) -> bool:
        """Whether the training processes of all members of the last formed round live through changes."""
        return 0 < len(self.live) == len(self.participants)

    @property
    def last_formed(self) -> int:
        """Number of the last formed round, 0 before the first."""
        return self.round - 1 if self.phase is RendezvousPhase.FORMING else self.round

    @property
    def ended(self) -> bool:
        """Whether the state is final. After `set_closed()` it is not: the formed round still trains to its end."""
        return self.phase is RendezvousPhase.CLOSED and self.outcome is not Outcome.CLOSED


# Failures of the training itself, as opposed to the loss of the machine it runs on.
COUNTED_CAUSES = frozenset({RequestCause.WORKER_FAILED, RequestCause.AGENT_LOST, RequestCause.TRAINER_LEFT})
