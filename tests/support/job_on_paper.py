# SPDX-License-Identifier: Apache-2.0
"""A job on paper: pods and records change by hand, and `decide` runs after each change, its invariants checked."""

from dataclasses import replace
from math import inf
from typing import Any

from elasticjob.rendezvous import (
    Clocks,
    Decision,
    Event,
    Member,
    PodState,
    Request,
    Spec,
    State,
    Worker,
    decide,
    pods_to_create,
    pods_to_delete,
)
from elasticjob.terms import Loss, Outcome, RequestCause, RequestType, RoundCause
from oracle import violations

PodKey = tuple[int, int]  # index, replacement: what a pod's name says
ROUNDS = {"RoundFormed", "RoundBroken", "RoundReopened", *Outcome}
WORDS = {*Loss, *RequestCause, *RoundCause, *Outcome} - {RoundCause.OTHER}


class JobOnPaper:
    def __init__(self, **spec: object) -> None:
        self.spec = Spec(**spec)  # type: ignore[arg-type]
        self.now = 1000.0
        self.state = State(clocks=Clocks(opened=self.now, formed=self.now))
        self.workers: dict[PodKey, Worker] = {}
        self.log: list[str] = []
        self.told: list[str] = []
        self.events: list[Event] = []
        self.ids = 0
        self.wake_at: float | None = None
        self.step()

    def step(self) -> Decision:
        """Decide, check, and do to the pods what an operator and a cluster would do at once."""
        workers = tuple(self.workers.values())
        decision = decide(self.spec, self.state, workers, self.now)
        assert violations(self.spec, self.state, workers, decision) == []
        self.state, self.wake_at = decision.state, decision.wake_at
        self.log += [event.message for event in decision.events]
        self.told += [event.reason for event in decision.events]
        self.events += decision.events
        for pod_key in pods_to_create(self.spec, self.state, workers, self.now):
            self.workers[pod_key] = Worker(index=pod_key[0], replacement=pod_key[1], pod=PodState.PENDING)
        for worker in pods_to_delete(self.spec, self.state, self.workers.values(), self.now):
            del self.workers[worker.index, worker.replacement]
        return decision

    def pod_key(self, index: int) -> PodKey:
        agreed = self.state.replacements.get(index, 0)
        return max(pod_key for pod_key in self.workers if pod_key[0] == index and pod_key[1] <= agreed)

    def new_id(self, pod_key: PodKey) -> str:
        """That of another incarnation in the pod."""
        self.ids += 1
        return f"{pod_key[1]:x}.{self.ids:x}"

    def change(self, index: int, **changes: object) -> None:
        pod_key = self.pod_key(index)
        self.workers[pod_key] = replace(self.workers[pod_key], **changes)  # type: ignore[arg-type]
        self.step()

    def start(self, *indices: int) -> None:
        """The pods run and their sidecars have written their records, which ask for nothing yet."""
        for index in indices:
            self.change(
                index,
                pod=PodState.RUNNING,
                id=self.new_id(self.pod_key(index)),
                address=f"10.0.0.{self.ids}:27601",
                request=None,
                heartbeat=0,
                suspects=(),
                ack=0,
                unready=False,
                invalid="",
            )

    def spoil(self, index: int, why: str = "spec.id is no id") -> None:
        """Its record makes no sense any more."""
        self.change(index, id=None, address="", request=None, heartbeat=None, invalid=why)

    def join(self, *indices: int, cause: str = RequestCause.STARTED, after: int | None = None, **more: Any) -> None:
        for index in indices:
            seen = self.state.last_formed if after is None else after
            self.change(index, request=Request(type=RequestType.JOIN, after=seen, cause=cause, **more))

    def rejoin(self, *indices: int, **more: Any) -> None:
        self.join(*indices, cause=RequestCause.MEMBERSHIP_CHANGED, **more)

    def up(self, *indices: int) -> None:
        for index in indices:
            self.start(index)
            self.join(index)

    def leave(self, index: int, cause: str = RequestCause.AGENT_LOST, **more: Any) -> None:
        self.change(index, request=Request(type=RequestType.LEAVE, cause=cause, **more))

    def live(self, *indices: int) -> None:
        """All their training processes have opted in to live through changes."""
        for index in indices:
            self.change(index, live_in=self.state.last_formed)

    def finish(self, *indices: int) -> None:
        """Torchrun and container have ended in success."""
        for index in indices:
            self.change(index, request=self._success(), pod=PodState.SUCCEEDED)

    def succeed(self, *indices: int, stage: int = 0) -> None:
        """Torchrun has ended in success, or has found that its `stage` is finished, and the container goes on."""
        for index in indices:
            self.change(index, request=self._success(stage))

    def _success(self, stage: int = 0) -> Request:
        return Request(type=RequestType.FINISH, round=self.state.last_formed, stage=stage or self.state.stage)

    def close(self, index: int) -> None:
        self.change(index, request=Request(type=RequestType.CLOSE))

    def delete(self, index: int) -> None:
        """`kubectl delete pod`: first it is being deleted, then it is gone."""
        pod_key = self.pod_key(index)
        self.workers[pod_key] = replace(self.workers[pod_key], deleting=True)
        self.step()
        del self.workers[pod_key]
        self.step()

    def scale(self, replicas: int) -> None:
        self.spec = replace(self.spec, replicas=replicas)
        self.step()

    def suspend(self, suspended: bool) -> None:
        self.spec = replace(self.spec, suspend=suspended)
        self.step()

    def beat(self, *indices: int) -> None:
        """The heartbeats of those workers that still have a pod, and their answers, as a living sidecar gives them."""
        for index in indices:
            agreed = self.state.replacements.get(index, 0)
            if any(pod_key[0] == index and pod_key[1] <= agreed for pod_key in self.workers):
                worker = self.workers[self.pod_key(index)]
                asked = worker.member in self.state.pinged
                answer = self.state.ping if asked else worker.ack
                self.change(index, heartbeat=(worker.heartbeat or 0) + 1, ack=answer)

    def suspect(self, index: int, *of: int) -> None:
        """Its record says that it hears nothing of those, and of all others that it does."""
        self.change(index, suspects=tuple(self.member(other) for other in of))

    def take_over(self) -> None:
        """Another operator begins, and knows what the status says."""
        self.state = replace(self.state, clocks=Clocks(opened=self.now, formed=self.now))
        self.step()

    def exit(self, index: int) -> None:
        """Its trainer's container ends with exit code 0, whatever it has said before."""
        self.change(index, pod=PodState.SUCCEEDED)

    def wait(self, seconds: float, living: tuple[int, ...] = ()) -> None:
        """Time passes; the sidecars of the workers named live. Somebody looks whenever the last step has asked for it,
        and time alone changes nothing before."""
        end = self.now + seconds
        self.step()
        while self.now < end:
            due = self.wake_at or inf
            self.now = min(self.now + 5, end, due)
            assert self.now >= due or self._nothing_is_due(), f"something changes before {due - self.now:g} s from now"
            self.beat(*living)
            self.step()

    def _nothing_is_due(self) -> bool:
        seen = self.spec, self.state, tuple(self.workers.values()), self.now
        early = decide(*seen)
        agreed = replace(early.state, clocks=self.state.clocks) == self.state
        return agreed and not (early.events or pods_to_create(*seen) or pods_to_delete(*seen))

    @property
    def words(self) -> list[tuple[str, str]]:
        """Each event of a round or a loss, and its word."""
        return [(one.reason, one.cause) for one in self.events if one.reason in ROUNDS or one.reason == "WorkerLost"]

    @property
    def phase(self) -> str:
        return f"{self.state.round} {self.state.phase}"

    @property
    def ranks(self) -> list[int]:
        """The members' indices in rank order."""
        return [member.index for member in self.state.participants]

    def member(self, index: int) -> Member:
        member = self.workers[self.pod_key(index)].member
        assert member is not None
        return member


def formed(size: int, **spec: object) -> JobOnPaper:
    """A job whose first round is formed by workers 0 to `size` - 1."""
    job = JobOnPaper(replicas=size, **spec)
    job.up(*range(size))
    assert job.phase == "1 Formed"
    return job
