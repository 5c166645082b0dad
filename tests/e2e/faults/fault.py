# SPDX-License-Identifier: Apache-2.0
"""One row of the table of faults: what an event did to a job. Told and re-formed are what the trainers logged."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from e2e.job import PRESTARTED_SECONDS, STEP_SECONDS, TOLD_SECONDS, Job, Round, Training, restarts, warm_restart
from e2e.kube import Object, wait_until
from elasticjob.heartbeats import LOST_SECONDS, SHORTEST_LOST_SECONDS


@dataclass(slots=True)
class Row:
    """`survivors_told_seconds` until the last survivor's trainer logged that its round is over,
    `new_round_seconds` until the last member's trainer was in the new one, `first_step_seconds` until all members had
    taken a step together, and the same in a job with `warmRestart`; all since the event.

    `rounds` are those that were formed, `lost_work_steps` the steps that were taken twice. Null is a figure that
    does not apply.
    """

    event: str
    survivors_told_seconds: float | None = None
    new_round_seconds: float | None = None
    first_step_seconds: float | None = None
    first_step_warm_seconds: float | None = None
    rounds_before: int = 0
    rounds_after: int = 0
    lost_work_steps: int | None = None
    ok: bool = False
    detail: str = ""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


# of a job through which shortened faults of the control plane go, beside other tests: the least that can be asked.
# With --whole it is the default, and the faults are longer by far than either.
SHORTENED: dict[str, Any] = {"rendezvous": {"workerLostSeconds": SHORTEST_LOST_SECONDS}}


@dataclass(slots=True)
class Fault:
    """What a test does and sees of its event.

    `told_within` is how soon survivors have to be told, `slack` how much later anything may come, in seconds;
    `whole` says not to shorten the long faults, `warm` that the job's processes start warm.
    """

    job: Job
    row: Row
    told_within: float | None = None
    slack: float = 0.0
    whole: bool = True
    warm: bool = False
    struck: float = 0.0
    victim: str = ""
    first: Round | None = None
    training: Training | None = None
    pods: list[Object] = field(default_factory=list)
    restarts: int = 0  # that were counted before the event

    @property
    def judged_steps(self) -> int:
        """Steps that take longer than a worker may be silent: whoever is taken for lost is so by then."""
        lost = LOST_SECONDS if self.whole else SHORTEST_LOST_SECONDS
        return int((lost + 3) / STEP_SECONDS)

    @property
    def next_number(self) -> int:
        """Of the one round that an event may cost."""
        assert self.first is not None
        return self.first.number + 1

    def start(self, replicas: int, **settings: Any) -> list[Object]:
        """Run a job until it trains; return its pods in rank order."""
        self.job.apply(replicas=replicas, warmRestart=warm_restart(self.warm), **settings)
        self.job.wait_for_round(replicas)
        return self.join()

    def start_with_spare(self, replicas: int, **settings: Any) -> tuple[list[Object], int]:
        """As `start`, with a spare that is ready to take a place; also returns its index."""
        pods = self.start(replicas, **settings)
        self.job.patch('{"spec": {"spareReplicas": 1}}')
        self.job.wait_for_spare()
        members = set(self.first.members if self.first else ())
        [index] = wait_until("the spare's pod to be seen", lambda: self.job.pods().keys() - members, TOLD_SECONDS)
        if self.warm:
            spare = self.job.pod(index)
            wait_until(
                "the spare's processes to be prestarted",
                lambda: self.job.log(spare).is_prestarted(),
                PRESTARTED_SECONDS,
            )
        return pods, index

    def join(self) -> list[Object]:
        """Begin with a job that has formed a round; return its pods in rank order."""
        self.first = self.job.rounds()[-1]
        self.training = self.job.wait_for_training(len(self.first.members))
        self.pods = self.job.member_pods()
        self.row.rounds_before = len(self.job.rounds())
        self.restarts = self.job.restarts
        if self.warm and self.whole:
            what = "all processes for the next round to be prestarted"
            wait_until(what, lambda: all(self.job.log(pod).is_prestarted() for pod in self.pods), PRESTARTED_SECONDS)
        return self.pods

    def strike(self, victim: Object | None = None) -> None:
        """The event begins now, and `victim` is no survivor, even if its pod stays."""
        self.victim = victim["metadata"]["uid"] if victim else ""
        self.struck = time.time()

    def formed(self, size: int, *, seconds: float = 90) -> Round:
        """Wait for the new round and its training, and note what it took. It is the next one."""
        assert self.first is not None
        assert self.training is not None
        new = self.job.wait_for_round(size, after=self.first, seconds=seconds)
        training = self.job.wait_for_training(size, other_than=self.training)
        self._note_told()
        self.row.new_round_seconds = self.entered(new)
        self.note_first_step(training)
        self._note_lost_work(training)
        return new

    def unbroken(self, steps: int = 5) -> None:
        """The same group goes on training in the same round."""
        assert self.first is not None
        assert self.training is not None
        self.job.wait_for_steps(self.training, steps)
        assert self.job.rounds()[-1] == self.first, "a round was lost or formed twice"
        self.row.lost_work_steps = 0

    def next_leader(self, seconds: float, within: float) -> None:
        """Note when the next operator led."""
        self.row.detail = f"another operator led after {seconds:.1f} s"
        assert seconds < within + self.slack

    def told(self, pod: Object) -> float:
        """Seconds from the event until the trainer in `pod` logged that the first round is over."""
        assert self.first is not None
        return self.job.logged(pod, f"round {self.first.number} is over") - self.struck

    def entered(self, new: Round) -> float:
        """Seconds from the event until the last member's trainer logged its rank in the new round."""
        return max(self.job.logged(pod, f"round {new.number}: rank") for pod in self.job.member_pods()) - self.struck

    def survivors(self) -> list[Object]:
        """The first round's pods whose trainers still run as they did, in the round of now, the victim apart."""
        alive = {pod["metadata"]["uid"]: pod for pod in self.job.member_pods()}
        return [
            now
            for before in self.pods
            if (now := alive.get(before["metadata"]["uid"])) and restarts(now) == restarts(before)
            if before["metadata"]["uid"] != self.victim
        ]

    def note_first_step(self, training: Training) -> None:
        """Note when all members of the new group had taken a step; each prints it after that."""
        took = [self.job.logged(pod, f"group={training.group} ") for pod in self.job.member_pods()]
        if self.warm:
            self.row.first_step_warm_seconds = max(took) - self.struck
        else:
            self.row.first_step_seconds = max(took) - self.struck

    def _note_told(self) -> None:
        told = [self.told(pod) for pod in self.survivors()]
        self.row.survivors_told_seconds = max(told, default=None)
        assert self.told_within is None or max(told) < self.told_within + self.slack

    def _note_lost_work(self, training: Training) -> None:
        assert self.training is not None
        logs = [self.job.log(pod) for pod in self.survivors()]
        taken = max((one.step for log in logs for one in log.steps(self.training.group)), default=None)
        again = min((one.step for log in logs for one in log.steps(training.group)), default=None)
        if taken is not None and again is not None:
            self.row.lost_work_steps = taken - (again - 1)
