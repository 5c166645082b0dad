# SPDX-License-Identifier: Apache-2.0
"""What one step of `decide` could see, worked out anew for the invariants. It shares no code with the rules.

If one of two accounts of who counts is wrong they differ; a shared one would be wrong in silence. What several
invariants ask for is worked out once for a step.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from elasticjob.members import Member
from elasticjob.rendezvous.decision import Decision
from elasticjob.rendezvous.model import COUNTED_CAUSES, Matched, Pinged, PodState, Request, Spec, State, Worker
from elasticjob.terms import PolicyAction, RendezvousPhase, RequestCause, RequestType

ENDED = (PodState.SUCCEEDED, PodState.FAILED, PodState.OOM_KILLED)
CRASHED = (*ENDED, PodState.CRASH_LOOP)


class Step:
    """One call of `decide`: what it was given, and its answer.

    `room` is how many workers have a place. `kept` are the wanted workers and the spares that have a pod: what was lost
    or had no room is replaced by the end of the step.
    """

    def __init__(self, spec: Spec, before: State, workers: tuple[Worker, ...], decision: Decision) -> None:
        self.spec, self.before, self.workers, self.decision = spec, before, workers, decision
        self.after = after = decision.state
        self.room = 0 if spec.suspend else max(0, spec.replicas - len(after.done))
        self._had = self._numbered(before.replacements)
        self._has = self._numbered(after.replacements)
        there = [one for one in self._has.values() if not (one.deleting or one.index in after.done)]
        self.kept = [one for one in there if one.pod not in ENDED or self.is_owed_a_word(after, one)]
        self._joins = self._asking()

    @cached_property
    def room_with_spares(self) -> int:
        """How many workers are kept, one more for each member whose node is draining; without places there are no
        spares."""
        draining = sum(one.draining for one in self.kept if self.keeps_its_place(self.before, one))
        return self.room + self.spec.spares + draining if self.room else 0

    @property
    def least(self) -> int:
        """How many may form a round."""
        if self.sizes:
            fit = [size for size in self.sizes if size >= self.spec.min_replicas]
            return min(fit) if fit else self.room + 1
        return max(1, self.spec.min_replicas - len(self.after.done))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those that a round may have, where not any will do: until somebody has finished."""
        return () if self.after.done else self.spec.sizes

    def largest(self, workers: int) -> int:
        """The largest round that so many may form."""
        return max((size for size in self.sizes if size <= workers), default=0) if self.sizes else workers

    @property
    def failures(self) -> int:
        """How many the step has counted."""
        return self.after.restarts - self.before.restarts

    @property
    def suspended(self) -> bool:
        return self.spec.suspend and self.before.phase is not RendezvousPhase.CLOSED

    def current(self, state: State) -> dict[int, Worker]:
        """By index, the pod that has the agreed number in `state`, which is that before or after the step."""
        return self._has if state is self.after else self._had

    def _numbered(self, numbers: Mapping[int, int]) -> dict[int, Worker]:
        return {worker.index: worker for worker in self.workers if numbers.get(worker.index, 0) == worker.replacement}

    def joined(self, last_formed: int) -> list[Worker]:
        """The kept workers whose join was made after round `last_formed` was formed."""
        return [one for one, after in self._joins if after >= last_formed]

    def _asking(self) -> list[tuple[Worker, int]]:
        """The kept workers that ask to join in this stage, and after which round."""
        may_join = (PodState.PENDING, PodState.RUNNING)
        ask = [worker for worker in self.kept if worker.pod in may_join and worker.asks(RequestType.JOIN)]
        asked = [(worker, worker.request) for worker in ask if worker.request is not None]
        old = self.after.restart_round  # no process from before that round lives on into it
        asked = [(one, said) for one, said in asked if not (said.live and said.after < old)]
        return [(one, said.after) for one, said in asked if said.stage == self.after.stage]

    def have_places(self, state: State) -> list[Worker]:
        """Those that have joined since the last round of `state`, as far as its members leave them places: members
        first, then by index, and last those whose nodes are draining. Beyond that a newcomer takes the place of a
        member whose node is draining, if its own is not: in the next round, so that both are counted while one
        stands. So does one with a place whom the size of the next round leaves over, once no other may come into it."""
        joined = self.joined(state.last_formed)
        members = [one for one in self.kept if self.keeps_its_place(state, one)]
        members.sort(key=lambda one: (one.draining, state.participants.index(one.member)))
        members = members[: self.room]
        others = sorted((one for one in joined if one not in members), key=lambda one: (one.draining, one.index))
        free = self.room - len(members)
        replaced = sum(one.draining for one in members)
        successors = [one for one in others[free:] if not one.draining][:replaced]
        if state.phase is RendezvousPhase.FORMING:
            by_size = min(self._left_over(len(members) + len(others[:free])), replaced - len(successors))
            by_size = min(by_size, sum(not one.draining for one in others[:free]))
            by_size = 0 if self.others_come(state) else by_size
            members = members[: len(members) - len(successors) - by_size]
        placed = (one for one in (*members, *others[:free], *successors) if one in joined)
        return sorted(placed, key=lambda one: one.draining)

    def others_come(self, state: State) -> bool:
        """Whether there is a place for one that is on the way to the round after the last one of `state`, or for a pod
        that is not there yet; who was on the way when a round was reopened has been waited for."""
        if self.before.phase is RendezvousPhase.FORMED and self.after.planned:
            return False
        kept, joined = self.kept, self.joined(state.last_formed)
        has_come = [one for one in kept if one in joined or self.keeps_its_place(state, one)]
        stuck = (PodState.UNSCHEDULABLE, PodState.BLOCKED, PodState.CRASH_LOOP)
        on_the_way = [one for one in kept if one not in has_come and one.pod not in stuck]
        return len(has_come) < self.room and (len(kept) < self.room or bool(on_the_way))

    def _left_over(self, workers: int) -> int:
        """How many of so many are not in a round that they may form."""
        largest = self.largest(workers)
        return workers - largest if self.sizes and largest >= self.least else 0

    def next_members(self) -> list[Worker]:
        """Who is to be in the round after the last one, or has just come into it; nobody while that one stands."""
        after, forming = self.after, RendezvousPhase.FORMING
        if after.round == self.before.round and self.before.phase is not forming:
            return []
        if after.phase is RendezvousPhase.FORMED:
            return [one for one in self.kept if one.member in after.participants]
        return self.have_places(replace(after, phase=forming))

    def keeps_its_place(self, state: State, worker: Worker) -> bool:
        """Whether it is a member of the last round of `state` that has not left it for good: it does not ask to leave,
        and its pod runs, as far as is known or soon, or its last word is awaited."""
        if worker.member not in state.participants or worker.asks(RequestType.LEAVE):
            return False
        between_stages = worker.asks(RequestType.FINISH) and worker.pod is PodState.CRASH_LOOP
        may_join = worker.pod in (PodState.PENDING, PodState.RUNNING) or between_stages
        return may_join or self.is_owed_a_word(state, worker)

    def is_owed_a_word(self, state: State, worker: Worker) -> bool:
        """Whether it ended with exit code 0, and its record still says that it trains in the last round of `state`."""
        if worker.pod is not PodState.SUCCEEDED or worker.disrupted or worker.member not in state.participants:
            return False
        formed = state.round if state.phase is not RendezvousPhase.FORMING else state.round - 1
        match worker.request:
            case Request(type=RequestType.JOIN, after=after):
                return after < formed
            case Request(type=RequestType.CLOSE):
                return True
        return False

    def stray(self, worker: Worker) -> bool:
        """Whether it ended with exit code 0, and its trainer had asked for nothing, before there was any round."""
        match worker.request:
            case None | Request(type=RequestType.LEAVE, cause=RequestCause.POD_STOPPING):
                other = worker.invalid or worker.deleting or worker.disrupted or self.suspended
                return worker.pod is PodState.SUCCEEDED and not (other or self.before.participants)
        return False

    def at_fault(self, worker: Worker) -> bool:
        """Whether pod or record say that the worker is lost."""
        request = worker.request
        if worker.pod is PodState.SUCCEEDED and (self.suspended or not self.is_owed_a_word(self.before, worker)):
            return True
        return (
            worker.deleting
            or worker.pod in (PodState.FAILED, PodState.OOM_KILLED)
            or (
                worker.pod is PodState.CRASH_LOOP
                and worker.member in self.before.participants
                and not worker.asks(RequestType.FINISH)
            )
            or (
                worker.asks(RequestType.LEAVE) and request is not None and request.cause == RequestCause.STORE_NOT_READY
            )
        )

    def hangs(self, worker: Worker) -> bool:
        """Whether a member of the last round runs, while the next forms, and has neither joined nor left."""
        before = self.before
        if before.phase is not RendezvousPhase.FORMING or worker.pod is not PodState.RUNNING:
            return False
        match worker.request:
            case Request(type=RequestType.LEAVE | RequestType.FINISH):
                return False
            case Request(type=RequestType.JOIN, after=after, stage=stage, live=live) if after >= before.round - 1:
                if stage >= before.stage and not (live and after < before.restart_round):
                    return False
        return worker.member in before.participants and self.lived_on(worker)

    def training_failed(self, worker: Worker) -> bool:
        """Whether the training of a member that is given up is at fault, or the job's policy counts its loss."""
        if self.suspended and worker.pod is PodState.SUCCEEDED:
            return False
        if worker.matched and worker.matched.action is not PolicyAction.IGNORE and self.at_fault(worker):
            return True
        if worker.deleting or worker.disrupted or worker.rejected:
            return False
        hangs = self.hangs(worker) and not self.at_fault(worker) and not self.unanswered(worker)
        return worker.pod in CRASHED or hangs

    @cached_property
    def ruling(self) -> Matched | None:
        """The lowest rule of the job's policy that matches the failure of the last round, as far as it has come out."""
        before, after = self.before, self.after
        found = [before.matched] if before.phase is RendezvousPhase.FORMING else []
        formed = before.round - (before.phase is RendezvousPhase.FORMING)
        for worker in self.workers:
            if worker.member not in before.participants or worker.member in after.leaving or worker.index in after.done:
                continue
            match worker.request:
                case Request(type=RequestType.LEAVE):
                    stopped = True
                case Request(type=RequestType.JOIN, after=after_round):
                    stopped = after_round >= formed
                case _:
                    stopped = False
            found += [worker.matched] if stopped or worker.deleting or worker.pod in CRASHED else []
        return min((one for one in found if one), default=None)

    def awaited(self) -> bool:
        """While a round forms: whether a member of the last one may still join, or has its last word to say."""
        members = [one for one in self.kept if one.member in self.before.participants]
        joined = self.joined(self.after.round - 1)
        return any(
            self.keeps_its_place(self.before, one) and one.pod is not PodState.PENDING
            for one in members
            if one not in joined
        )

    def failed_alone(self) -> list[Matched]:
        """What the policy says of failed workers that were not in the last round, and nothing of who fell silent."""
        had, has = self.current(self.before), self.current(self.after)
        out = [one for one in had.values() if has.get(one.index) != one and self.at_fault(one)]
        out += [one for one in has.values() if one.pod is PodState.CRASH_LOOP]
        return [one.matched for one in out if one.matched and one.member not in self.before.participants]

    def invalid(self, worker: Worker) -> bool:
        """Whether its record makes no sense, and made none when this step began."""
        return worker.invalid != "" and worker.pod_key in self.before.clocks.invalid

    def unanswered(self, worker: Worker) -> bool:
        """Whether it was pinged, its clock ran when the step began, as that of a worker pinged alone does from the
        first, and still there is no ack."""
        pinged = self._ping_of(worker)
        if pinged is None or pinged.acked is not None or worker.pod in ENDED:
            return False
        if pinged.counting is None and self.before.pinged != (worker.member,):
            return False
        return worker.ack < pinged.number

    def lived_on(self, worker: Worker) -> bool:
        """Whether it is known to have answered while the round has been forming."""
        pinged = self._ping_of(worker)
        return pinged is not None and pinged.lived is not None and pinged.lived >= self.before.clocks.opened

    def _ping_of(self, worker: Worker) -> Pinged | None:
        return (self.before.clocks.pings or {}).get(worker.member) if worker.member else None

    @cached_property
    def breaks(self) -> dict[Member, bool]:
        """The members that no longer train in the formed round, and whether the training of each failed; nobody where
        its stage is over."""
        if self.after.stage > self.before.stage:
            return {}
        now = self.current(self.after)
        training = (member for member in self.before.participants if member.index not in self.after.done)
        found = {member: self._break_of(member, now.get(member.index)) for member in training}
        return {member: failed for member, failed in found.items() if failed is not None}

    def explained(self) -> bool:
        """Whether a member of the last round was lost by no fault of the training, has another id, or is cut off."""
        if {worker.member for worker in self.workers if worker.cut_off}.intersection(self.before.participants):
            return True
        before, after = self.before, self.after
        known = [m for m in before.participants if m.index not in after.done and m not in before.replaced]
        had, has = self.current(before), self.current(after)
        for member in known:
            worker = had.get(member.index)
            if worker is None or worker.member != member:
                return True
            if has.get(member.index) != worker and member not in after.leaving and not self.training_failed(worker):
                return True
        return False

    @cached_property
    def pending(self) -> bool:
        """Whether the last formed round has a failure that is not explained."""
        failed = any(self.breaks.values()) if self.before.phase is RendezvousPhase.FORMED else bool(self.before.failure)
        return failed and not self.explained()

    def deserted(self) -> bool:
        """While a round forms: whether a member of the last one has stopped in another way than it was told to."""
        return any(self._deserts(member) for member in self.before.participants if member.index not in self.after.done)

    def _deserts(self, member: Member) -> bool:
        worker = next((worker for worker in self.workers if worker.member == member), None)
        if worker is None:  # its pod has another, or is gone: a loss would have been seen as it went
            pods = [worker for worker in self.workers if worker.index == member.index]
            return bool(pods) and max(pods, key=lambda pod: pod.replacement).id is not None
        told = member in self.after.leaving
        if not told and self.current(self.after).get(member.index) != worker:
            return True
        if told and worker.pod is PodState.SUCCEEDED:
            return False
        match worker.request:
            case Request(type=RequestType.LEAVE, cause=RequestCause.TOLD_TO_LEAVE) if told:  # its pod is deleted for it
                return False
            case _ if worker.deleting:
                return True
            case Request(type=RequestType.LEAVE, cause=RequestCause.POD_STOPPING) if told:  # however it ended then
                return False
            case Request(type=RequestType.LEAVE):
                return True
            case _ if worker.pod in (PodState.FAILED, PodState.OOM_KILLED, PodState.CRASH_LOOP):
                return True
            case Request(type=RequestType.JOIN, after=after, cause=cause) if after >= self.after.round - 1:
                return cause not in (RequestCause.MEMBERSHIP_CHANGED, RequestCause.RENEWED)
            case Request(type=RequestType.FINISH, round=held) if held >= self.after.round - 1:
                return not self._succeeds(worker.request)
        return worker.request is None

    def hung(self, member: Member) -> bool:
        """Whether the round ends because its training hangs, as the operator says of this member."""
        worker = self.current(self.after).get(member.index)
        if worker is None or worker.member != member or not worker.hung:
            return False
        match worker.request:
            case Request(type=RequestType.JOIN, after=after):
                return after < self.before.round
            case Request(type=RequestType.FINISH | RequestType.CLOSE):
                return True
        return False

    def _succeeds(self, request: Request) -> bool:
        """Whether a success is one of the stage that the step begins in, or of a later one."""
        return request.stage >= self.before.stage

    def _break_of(self, member: Member, worker: Worker | None) -> bool | None:
        if worker is None:
            was = self.current(self.before).get(member.index)
            return (
                was is not None
                and was.member == member
                and member not in self.after.leaving
                and self.training_failed(was)
            )
        if worker.member != member or worker.request is None:
            return False
        request = worker.request
        failed = request.cause in COUNTED_CAUSES
        if request.type is RequestType.LEAVE:
            return failed
        if request.type is RequestType.JOIN and request.stage > self.before.stage:
            return None
        if request.type is RequestType.JOIN and request.after >= self.before.round:
            return failed or request.cause == RequestCause.STARTED
        if request.type is RequestType.FINISH and request.round >= self.before.round and not self._succeeds(request):
            return True
        hangs = worker.hung != "" and self.before.phase is RendezvousPhase.FORMED
        return True if hangs else None
