# SPDX-License-Identifier: Apache-2.0
"""What the state machine is given and what it returns. All of it is frozen; times are seconds of the caller's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from elasticjob.members import Member
from elasticjob.terms import Cause, Outcome, PolicyAction, RendezvousPhase, RequestType

PodKey = tuple[int, int]  # index and replacement: they name a pod
PATIENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The part of an ElasticJob's spec that the rendezvous goes by; times in seconds.

    `worker_lost` is the time for doubt and proof, `silence` that without a heartbeat after which anybody is doubted.

    `restarted_at`: when people last asked for new processes, "" for never. `deadline`: when the job fails for having
    taken too long, None where it may take any time.
    `starts_torchrun` is False where the command plainly starts something else, whose end before a join is no accident.
    `sizes` are those that a round may have, and where there are none any will do. `replicas` may be less than each of
    them, and than `min_replicas`, while quota is missing: then no round is formed. `rank_order`: the
    keys of the nodes' labels by which ranks are laid out, the largest domain first; where there are none who stays
    keeps its rank.
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
    silence: float = 450
    restart_reset: float = 3600
    finish: float = 3600
    starts_torchrun: bool = True
    sizes: tuple[int, ...] = ()
    rank_order: tuple[str, ...] = ()

    @property
    def patience(self) -> float:
        """How long to wait for what pods, records and statuses say apart to make sense together."""
        return max(self.worker_lost, PATIENCE_SECONDS)

    @property
    def max_crashes(self) -> int:
        """How often a trainer may be started again in its pod before it joins."""
        return self.max_restarts if self.starts_torchrun else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a worker's record asks for: `after` goes with Join, `round` with Finish.

    `stage`: of which stage its torchrun is, one more than have ended in success in its container before. `script`: what
    a Join's torchrun runs. `last_call` and `worker_lost` are the limits that a Join may name in place of the spec's;
    `detail` is for people: what failed before it.
    """

    type: RequestType
    after: int = 0
    round: int = 0
    stage: int = 1
    script: str = ""
    cause: str = ""
    detail: str = ""
    last_call: float | None = None
    worker_lost: float | None = None


class Matched(NamedTuple):
    """The first rule of the job's policy for failures that matches: its place, what it says, and in a sentence why."""

    rule: int
    action: PolicyAction
    why: str


class PodState(StrEnum):
    """What the pod says of its trainer container."""

    PENDING = "pending"
    UNSCHEDULABLE = "unschedulable"
    BLOCKED = "blocked"  # its image or configuration is wrong
    RUNNING = "running"
    CRASH_LOOP = "crash loop"  # the kubelet holds back its next start
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OOM_KILLED = "out of memory"  # and yet exit code 0, after which the kubelet starts nothing anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One pod of the job, with the record that its sidecar wrote, if it has.

    `replacement` is the last part of the pod's name; `crashes` how often its trainer container was started again in
    place; `detail` what its pod, or its sidecar, says of a fault; `invalid` what is wrong with the record, which then
    counts for nothing. `disrupted`: the cluster has ended the pod for a reason of its own. `rejected`: its node has,
    before any of its containers was started. `outdated`: the pod was made from another template than the job's.
    `draining`: its node is about to go. `unready`: the cluster does not hear of its node any more. `hung`: how the
    training hangs, where the round is to be restarted for this member. `cut_off`: it and rank 0 have not reached each
    other for long, though both live. `doubts` are members of which it hears nothing, and `answer` is the number of the
    last challenge that it answered, 0 before the first. `matched`: what the
    job's policy for failures says of it, once it has stopped. `topology`: with `rank_order`, what its node says for
    those keys, empty where nothing is known, and the node's name.
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
    doubts: tuple[Member, ...] = ()
    answer: int = 0
    detail: str = ""
    invalid: str = ""
    disrupted: bool = False
    rejected: bool = False
    outdated: bool = False
    draining: bool = False
    unready: bool = False
    hung: str = ""
    cut_off: bool = False
    matched: Matched | None = None
    topology: tuple[str, ...] = ()
    member: Member | None = field(init=False, compare=False, repr=False)  # a step asks for it twenty times

    def __post_init__(self) -> None:
        object.__setattr__(self, "member", None if self.id is None else Member(self.index, self.id))

    @property
    def pod_key(self) -> PodKey:
        return (self.index, self.replacement)

    def asks(self, type: RequestType) -> bool:
        return self.request is not None and self.request.type is type


class Beat(NamedTuple):
    """The last heartbeat of a member, None before its first, and when it was first seen."""

    value: int | None
    since: float


class Asked(NamedTuple):
    """What a member was asked: any answer of this `number` or a later one will do. `since` it was asked; `counting`:
    since when another has answered, or since it was asked alone; `answered`: when its own answer was seen; `lived`:
    when the first was that it gave while it has been doubted; `alone`: its clock runs, and nobody else can answer;
    `silent`: another had heard nothing of it by then."""

    number: int
    since: float
    counting: float | None = None
    answered: float | None = None
    lived: float | None = None
    alone: bool = False
    silent: bool = False


class Finishing(NamedTuple):
    """Of a worker whose torchrun has ended in success: how often its container had been started again when that was
    first seen, and since when the job has waited for nothing but such containers, None while it does not."""

    crashes: int
    since: float | None = None


class Failures(NamedTuple):
    """How pods of one index failed by themselves: how often in a row, how many of the last of them before they were in
    any round, when the last one did, and why."""

    in_a_row: int
    before_any_round: int
    since: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """What an operator remembers between two steps and never writes down: a new one starts with `Clocks(now, now)`.

    `settled`: the moment from which all sidecars can be taken to hear the API server again, as this operator does.
    `asked` is None until it has looked at what the status says of a challenge.
    """

    opened: float
    formed: float
    min_reached: float | None = None  # forming: since when minReplicas have been there
    # forming: since when every missing worker that has a node has had a running pod, while a torchrun has not spoken
    all_running: float | None = None
    all_spoke: float | None = None  # the same, once each of their torchruns has spoken
    newcomer: float | None = None  # formed: since when somebody has waited
    settled: float = -inf
    beats: Mapping[Member, Beat] = field(default_factory=dict)
    asked: Mapping[Member, Asked] | None = None
    leaving: Mapping[Member, float] = field(default_factory=dict)
    invalid: Mapping[PodKey, float] = field(default_factory=dict)  # since when what is known of a pod makes no sense
    failures: Mapping[int, Failures] = field(default_factory=dict)
    finishing: Mapping[Member, Finishing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The agreed state, as it is kept in an ElasticJob's status, and the clocks beside it.

    `participants` are the last formed round's, in rank order, and `replicas` and `restarted_at` what the spec said
    then. `replacements` holds, by index, the number of the one pod that counts: those before it were given up, later
    ones nobody has made.

    `failure` is what failed in the last formed round, while it is not known whether it counts: it is judged when the
    group forms again. `matched` is what the job's policy says of it. `given_up` are the members that were given up
    meanwhile for a cause that does not explain it.

    `waiting` and `spares` count who has joined and is no member: those that have a place, and those that have none.

    `planned`: the last formed round was ended by the will of people while all its members lived, so that the training
    may save before it stops. Once one of them is lost nobody may go on in that round: the others would wait for it.

    `challenge` is the number of the last challenge, and `challenged` whom it asked.

    `reason` says in a sentence why the phase was entered, and `cause` in one word.

    `stage` counts the torchruns that the workers' containers run one after the other; `scripts` says what those up to
    now have run, the last of them at the end. `finishing` are the workers whose torchrun of this stage has ended in
    success and whose container goes on; `finished` those whose container has ended in success, too: nothing of them is
    needed any more.

    `done` are the indices of both, whatever id a sidecar that starts again has: in this stage they get no other pod and
    no room.
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
    stage: int = 1
    scripts: tuple[str, ...] = ()
    replacements: Mapping[int, int] = field(default_factory=dict)
    restarts: int = 0
    failure: str = ""
    matched: Matched | None = None
    given_up: tuple[Member, ...] = ()
    planned: bool = False
    waiting: int = 0
    spares: int = 0
    challenge: int = 0
    challenged: tuple[Member, ...] = ()
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
    def last_formed(self) -> int:
        """Number of the last formed round, 0 before the first."""
        return self.round - 1 if self.phase is RendezvousPhase.FORMING else self.round

    @property
    def ended(self) -> bool:
        """Nothing can happen any more; `set_closed()` alone lets the formed round train to its end."""
        return self.phase is RendezvousPhase.CLOSED and self.outcome is not Outcome.CLOSED


class Event(NamedTuple):
    """Something that a user should read on the ElasticJob: `reason` in one CamelCase word, `message` a sentence.

    `cause`: of a round or a loss, why, in one word.
    """

    reason: str
    message: str
    warning: bool = False
    cause: str = ""


class Failed(NamedTuple):
    """A pod that has failed by itself, or whose node has. `judged`: it counts, as the worker is lost by it; else the
    round has ended by it, and it is judged with `State.failure`."""

    pod: PodKey
    judged: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state; when to ask again even if nothing happens; what happened, for people.

    `formed_after` is set by the step that formed a round: seconds since the round was opened. `failed`: what this step
    has found, for those who look after nodes; no rule reads it.
    """

    state: State
    wake_at: float | None = None
    events: tuple[Event, ...] = ()
    formed_after: float | None = None
    failed: tuple[Failed, ...] = ()


# A failure of the training itself, as opposed to the loss of what it runs on.
COUNTED_CAUSES = frozenset({Cause.WORKER_FAILED, Cause.AGENT_LOST, Cause.TRAINER_LEFT})
