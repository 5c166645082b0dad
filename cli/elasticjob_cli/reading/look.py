# SPDX-License-Identifier: Apache-2.0
"""Reads a scene: which workers are wanted, which are present, and what the operator says of it.

The wanted and the joined workers are determined by the rendezvous' own rule. So this tool reports the same workers as
missing that the operator waits for.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from pydantic import ValidationError

from elasticjob.agreed import limited, rendezvous_spec, state_of
from elasticjob.api import Blocker, Condition, ElasticJobSpec, ElasticJobStatus
from elasticjob.blocker_reasons import Reason
from elasticjob.pods import pod_key_of
from elasticjob.reading import Pod, Record
from elasticjob.reading.validity import Reading, judge, problems_among
from elasticjob.rendezvous import Clocks, roster_of
from elasticjob.rendezvous.limits import last_call
from elasticjob.rendezvous.losses import breaks
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.roster import has_joined
from elasticjob.rendezvous.sizes import largest_size, min_members
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_cli.errors import CliError
from elasticjob_cli.reading.scene import Scene
from elasticjob_cli.reading.times import moment, seconds_between
from elasticjob_cli.reading.words import phrase
from elasticjob_cli.reading.worker import WorkerView, changed_at, is_of, parsed, read_worker

NO_CLOCKS = Clocks(opened=0.0, formed=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One job, read. `workers`: the current workers, by index. `missing`: wanted workers that have not joined, with or
    without a pod. `newcomers`: workers that have joined and wait for the next round. `spares`: spares that have joined.
    `absent_spares`: spares that have not joined, with or without a pod. `least`: how many workers must join.
    `last_call`: in seconds. `broken`: the failure that has ended the formed round, by a member's record, before the
    operator has handled it; empty if there is none."""

    scene: Scene
    spec: ElasticJobSpec
    status: ElasticJobStatus
    workers: dict[int, WorkerView]
    missing: tuple[WorkerView, ...]
    newcomers: tuple[WorkerView, ...]
    spares: tuple[WorkerView, ...]
    absent_spares: tuple[WorkerView, ...]
    joined: tuple[WorkerView, ...]
    wanted: int
    least: int
    last_call: float
    broken: str

    @property
    def name(self) -> str:
        return str(self.scene.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.scene.job["metadata"]["namespace"])

    @property
    def created(self) -> datetime | None:
        return moment(self.scene.job["metadata"].get("creationTimestamp"))

    @property
    def round(self) -> int:
        return max(1, self.status.rendezvous.round)

    @property
    def is_formed(self) -> bool:
        return self.status.rendezvous.phase is RendezvousPhase.FORMED

    @property
    def is_closed(self) -> bool:
        """Whether the last round trains on after `set_closed()`, with no other to follow."""
        return self.status.rendezvous.outcome is Outcome.CLOSED

    @property
    def trains(self) -> bool:
        """Whether a round stands, including the last one after `set_closed()`."""
        return self.is_formed or self.is_closed

    @property
    def starts(self) -> bool:
        """Whether the processes of the standing round are starting and do not train yet."""
        return self.trains and self.status.starting

    @property
    def has_ended(self) -> bool:
        return self.status.rendezvous.outcome not in (None, Outcome.CLOSED)

    @property
    def members(self) -> tuple[WorkerView, ...]:
        """The workers of the last formed round that still exist, in rank order."""
        found = (worker for worker in self.workers.values() if worker.is_member)
        return tuple(sorted(found, key=lambda worker: worker.rank or 0))

    @property
    def finished(self) -> frozenset[int]:
        """The workers whose torchrun has ended in success, even if the container continues."""
        agreed = self.status.rendezvous
        return frozenset(member.index for member in (*agreed.finished, *agreed.finishing))

    @property
    def finishing(self) -> str | None:
        """Which containers the job waits for after success, in the operator's words; None if it waits for none."""
        return self.blocker_message(Reason.FINISHING)

    @property
    def unfinished(self) -> int:
        """How many members of the last formed round have not finished. A finished member stays in the round while it
        stands."""
        return sum(member.index not in self.finished for member in self.status.rendezvous.participants)

    @property
    def is_about_to_end(self) -> bool:
        """Whether a member of the round has finished. Such a round is not reopened for newcomers (rule 3)."""
        return self.is_formed and self.unfinished < len(self.status.rendezvous.participants)

    @property
    def is_blind(self) -> bool:
        """Whether the user may not see its workers."""
        return bool({"pods", "elasticworkers"} & set(self.scene.hidden))

    @property
    def cut_off(self) -> str:
        """Which members of the standing round do not reach rank 0, in the operator's words; empty if all do."""
        return (self.blocker_message(Reason.NETWORK_FAULT) or "") if self.trains else ""

    @property
    def cut_off_workers(self) -> frozenset[int]:
        """The indices of the members that do not reach rank 0."""
        kept = (one.workers for one in self.blockers_of(Reason.NETWORK_FAULT))
        return frozenset(chain.from_iterable(kept)) if self.trains else frozenset()

    @property
    def is_full(self) -> bool:
        """Whether all wanted workers train and have their pods."""
        wanted = self.spec.replicas - len(self.status.rendezvous.finished)
        return (
            self.is_formed
            and not (self.broken or self.cut_off or self.finishing)
            and self.status.rendezvous.world_size >= wanted
            and (self.is_blind or not self.missing)
        )

    @property
    def awaited_size(self) -> int | None:
        """The next larger size, if the newcomers are too few for it and `spec.sizes` allows none in between; None
        otherwise."""
        bounds, state = rendezvous_spec(limited(self.spec, self.status.admitted)), state_of(self.status, NO_CLOCKS)
        members = len(state.participants)
        if state.done or largest_size(bounds, state, members + len(self.newcomers)) > members:
            return None
        return min((size for size in bounds.sizes if size > members), default=None)

    @property
    def silence(self) -> float:
        """Seconds without a heartbeat in its record after which a worker is suspected."""
        return rendezvous_spec(self.spec).heartbeat_timeout

    @property
    def changed_since(self) -> float | None:
        """Seconds since the phase of the round last changed, or since the job was made if it never did."""
        formed = self.condition("Rendezvoused")
        since = moment(formed.last_transition_time) if formed and self.status.rendezvous.participants else self.created
        return seconds_between(since, self.scene.now)

    @property
    def formed_since(self) -> float | None:
        """Seconds since the last round formed; None without one."""
        return self.for_seconds(self.status.history[-1].time) if self.status.history else None

    @property
    def active_for(self) -> float:
        """Seconds for which the job has been active, as counted for spec.activeDeadlineSeconds."""
        active = self.status.active
        return (active.seconds + (self.for_seconds(active.since) or 0.0)) if active else 0.0

    @property
    def behind_since(self) -> float | None:
        """Seconds since the spec was changed, while the status has not followed; None if it has."""
        meta = self.scene.job["metadata"]
        if self.status.observed_generation == meta.get("generation", 0):
            return None
        since = changed_at(self.scene.job, status=False) or self.created
        return seconds_between(since, self.scene.now)

    def condition(self, type: str) -> Condition | None:
        return next((one for one in self.status.conditions if one.type == type), None)

    def message_of(self, type: str, status: str) -> str | None:
        """The message of the condition while it has that status; None otherwise."""
        found = self.condition(type)
        return found.message if found and found.status == status else None

    def blockers_of(self, reason: str) -> list[Blocker]:
        """The blockers with that reason, without those of spares."""
        return [one for one in self.status.blockers if one.reason == reason and not one.spares]

    def blocker_message(self, reason: str) -> str | None:
        """The operator's message about the first blocker with that reason; None without one."""
        return next((phrase(one.message) for one in self.blockers_of(reason)), None)

    def for_seconds(self, text: str | None) -> float | None:
        return seconds_between(moment(text), self.scene.now)


def look(scene: Scene) -> Look:
    """Reads the scene. Raises CliError if the job does not follow the API that this tool knows."""
    try:
        spec = ElasticJobSpec.parse(scene.job.get("spec"))
        status = ElasticJobStatus.parse(scene.job.get("status"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CliError(
            f"ElasticJob {scene.job['metadata']['name']} is not of the API that this tool knows ({where}: "
            f"{first['msg']}): use the version of elasticjob-cli that the operator has"
        ) from error
    views = {view.index: view for view in _views(scene, spec, status)}
    bounds, state = rendezvous_spec(limited(spec, status.admitted)), state_of(status, NO_CLOCKS)
    workers = [view.worker for view in views.values() if view.worker is not None]
    roster = roster_of(bounds, state, workers)
    failed = (one.why for one in breaks(state, workers, {}) if one.counted)
    joined = {worker.index for worker in roster.joined}
    spares = {worker.index: has_joined(state, worker) for worker in roster.spares}
    views = {
        index: replace(view, joined=index in joined or spares.get(index, False), spare=index in spares)
        for index, view in views.items()
    }

    def without_pod(indices: Iterable[int], *, spare: bool = False) -> list[WorkerView]:
        return [WorkerView(index, status.replacements.get(index, 0), spare=spare) for index in indices]

    members = (
        {member.index for member in status.rendezvous.participants} if state.phase is RendezvousPhase.FORMED else ()
    )
    late = [views[worker.index] for worker in roster.awaited if worker.index not in members]
    return Look(
        scene=scene,
        spec=spec,
        status=status,
        workers=dict(sorted(views.items())),
        missing=tuple(sorted([*late, *without_pod(roster.missing)], key=lambda worker: worker.index)),
        newcomers=tuple(views[index] for index in sorted(joined) if state.phase is RendezvousPhase.FORMED),
        spares=tuple(views[index] for index, ready in sorted(spares.items()) if ready),
        absent_spares=(
            *(views[index] for index, ready in sorted(spares.items()) if not ready),
            *without_pod(roster.missing_spares, spare=True),
        ),
        joined=tuple(views[index] for index in sorted(joined)),
        wanted=roster.wanted if bounds.suspend is spec.suspend else max(0, spec.replicas - len(state.done)),
        least=min_members(bounds, state),
        last_call=last_call(bounds, roster.joined),
        broken=next(failed, "") if state.phase is RendezvousPhase.FORMED else "",
    )


def _views(scene: Scene, spec: ElasticJobSpec, status: ElasticJobStatus) -> Iterator[WorkerView]:
    bodies = {body["metadata"]["name"]: body for body in scene.records}
    members = {member.index: (rank, member) for rank, member in enumerate(status.rendezvous.participants)}
    name, made_from = scene.job["metadata"]["name"], spec.template_hash
    pods = {pod: key for pod in map(Pod.read, scene.pods) if (key := pod_key_of(name, pod.name)) is not None}
    pods = {pod: key for pod, key in pods.items() if key[1] == status.replacements.get(key[0], 0)}
    readings = _readings(scene, status, pods)
    for pod, key in pods.items():
        body, reading, (rank, member) = bodies.get(pod.name), readings[pod.name], members.get(key[0], (None, None))
        record = reading.content or parsed(body, pod)
        rank = rank if member and is_of(member, pod, record) else None
        worker, wait = read_worker(key, pod, reading, spec.trainer_container, made_from)
        worker = replace(worker, draining=status.draining.get(key[0]) == key[1])
        yield WorkerView(*key, pod, body, record, worker, wait, rank, invalid=reading.problem)


def _readings(scene: Scene, status: ElasticJobStatus, pods: Mapping[Pod, PodKey]) -> dict[str, Reading]:
    """The readings of the records, by pod name. If the operator reports invalid records, they are checked as by the
    operator, which costs half a millisecond each."""
    bodies = {body["metadata"]["name"]: body for body in scene.records}
    if not any(one.type == "WorkersValid" and one.status == "False" for one in status.conditions):
        return {pod.name: Reading(parsed(bodies.get(pod.name), pod)) for pod in pods}
    records, job = {name: Record.read(body) for name, body in bodies.items()}, scene.job["metadata"]["name"]
    found = {pod.name: judge(records.get(pod.name), pod, key[0], job) for pod, key in pods.items()}
    contents = {name: reading.content for name, reading in found.items() if reading.content is not None}
    return found | {name: Reading(problem=problem) for name, problem in problems_among(scene.job, contents).items()}
