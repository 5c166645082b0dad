"""Random lives of a job: no order of events breaks an invariant, and calm leads to Formed or Closed."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from rendezvous_world import World

from elasticjob.rendezvous import Clocks, PodState, Request, Worker
from elasticjob.terms import Cause, RendezvousPhase, RequestType

CAUSES = st.sampled_from([Cause.STARTED, Cause.WORKER_FAILED, Cause.MEMBERSHIP_CHANGED, Cause.RENEWED])
LEAVES = st.sampled_from([Cause.AGENT_LOST, Cause.STORE_NOT_READY, Cause.TRAINER_LEFT])
FAULTS = st.sampled_from([PodState.UNSCHEDULABLE, PodState.CRASH_LOOP, PodState.FAILED, PodState.SUCCEEDED])
NUMBER = st.integers(0, 10)


class JobLife(RuleBasedStateMachine):
    """Every rule ends in a `decide` whose invariants `World` asserts."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(replicas=2, min_replicas=1, max_restarts=3)

    def some(self, number: int) -> Worker:
        workers = list(self.world.workers.values())
        return workers[number % len(workers)]

    def set(self, worker: Worker, **changes: object) -> None:
        place = (worker.index, worker.replacement)
        self.world.workers[place] = replace(worker, **changes)  # type: ignore[arg-type]
        self.world.step()

    has_pods = precondition(lambda self: self.world.workers)

    @rule(replicas=st.integers(1, 4))
    def scale(self, replicas: int) -> None:
        self.world.scale(replicas)

    @rule(suspended=st.booleans())
    def suspend(self, suspended: bool) -> None:
        self.world.suspend(suspended)

    @has_pods
    @rule(number=NUMBER)
    def sidecar_starts(self, number: int) -> None:
        self.world.ids += 1
        self.set(self.some(number), pod=PodState.RUNNING, id=f"{self.world.ids:x}", request=None, heartbeat=0)

    @has_pods
    @rule(number=NUMBER, cause=CAUSES, behind=st.integers(0, 2))
    def join(self, number: int, cause: Cause, behind: int) -> None:
        worker = self.some(number)
        if worker.id is not None:
            after = max(0, self.world.state.last_formed - behind)
            self.set(worker, request=Request(type=RequestType.JOIN, after=after, cause=cause))

    @has_pods
    @rule(number=NUMBER, cause=LEAVES)
    def leave(self, number: int, cause: Cause) -> None:
        self.set(self.some(number), request=Request(type=RequestType.LEAVE, cause=cause))

    @has_pods
    @rule(number=NUMBER)
    def finish(self, number: int) -> None:
        worker = self.some(number)
        if worker.member in self.world.state.participants:
            self.set(worker, request=Request(type=RequestType.FINISH, round=self.world.state.last_formed))

    @has_pods
    @rule(number=NUMBER, fault=FAULTS)
    def pod_fault(self, number: int, fault: PodState) -> None:
        self.set(self.some(number), pod=fault)

    @has_pods
    @rule(number=NUMBER)
    def pod_deleted(self, number: int) -> None:
        self.set(self.some(number), deleting=True)

    @has_pods
    @rule(number=NUMBER)
    def pod_gone(self, number: int) -> None:
        worker = self.some(number)
        del self.world.workers[worker.index, worker.replacement]
        self.world.step()

    @has_pods
    @rule(number=NUMBER)
    def heartbeat(self, number: int) -> None:
        worker = self.some(number)
        self.set(worker, heartbeat=(worker.heartbeat or 0) + 1)

    @rule(seconds=st.sampled_from([1, 6, 16, 31, 80, 700]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds
        self.world.step()

    @rule()
    def operator_restarts(self) -> None:
        self.world.state = replace(self.world.state, clocks=Clocks(opened=self.world.now, formed=self.world.now))
        self.world.step()

    def teardown(self) -> None:
        """Calm: pods come, sidecars live, trainers join. The job then trains, or has ended."""
        world = self.world
        if world.spec.suspend:
            world.suspend(False)
        for _ in range(4):
            for worker in list(world.workers.values()):
                self.calm(worker)
            world.now += world.spec.rejoin
            world.step()
        assert world.state.phase is not RendezvousPhase.FORMING, world.log[-5:]

    def calm(self, worker: Worker) -> None:
        world = self.world
        place = (worker.index, worker.replacement)
        if worker.deleting or worker.member in world.state.leaving:
            del world.workers[place]
            return world.step() and None
        if worker.pod in (PodState.SUCCEEDED, PodState.FAILED) or worker.member in world.state.finished:
            return None
        world.ids += 1
        member = worker.member in world.state.participants and world.state.phase is RendezvousPhase.FORMED
        request = worker.request if member else Request(type=RequestType.JOIN, after=world.state.last_formed)
        self.set(worker, pod=PodState.RUNNING, id=worker.id or f"{world.ids:x}", request=request)
        return None


TestJobLife = JobLife.TestCase
TestJobLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)
