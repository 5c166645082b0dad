# SPDX-License-Identifier: Apache-2.0
"""Transcripts of `decide`: what happens to a job at the margin, and indented all that the rendezvous makes of it.

`play` runs the lines at the margin, and writes the transcript as it really goes. A line holds commands, split by
semicolons; `VERBS` has them all. `job` begins a job with the fields of a spec, and `formed 3` one whose first round
workers 0 to 2 have formed; its spares have joined too. Each change is decided by itself, but in a line that begins
with `at once:`. What an operator and a cluster would do at once is done to the pods, and decided anew, until nothing
changes. `either:` and `or:` begin lines that go on from the same point. `wait 30: 0 1` lets time pass in which the
sidecars of workers 0 and 1 live, and `0..3` are workers 0 to 3.

Each line of output has an event, and after `->` what is new in the status and among the pods; nothing else has changed.
Left out is only what follows from the rest:

- a move to another phase settles a failure, who was given up for it, `planned`, `intact` and who waits;
- a round is `intact` as long as its end is `planned`;
- a round ends for the loss that is told before it, and the next one is formed for the reason for which the last ended;
- `round 1 (2 workers) ended:` or such before a reason, and that a worker has finished, are told by the status;
- rank 0's address is the store, and a pod that is made is the next one of its worker.

Members are the indices of workers, with a prime for each sidecar that was there before: 1'' is the third of worker 1.
The operator makes `+pod 1-1` and deletes `-pod 1-0`. Times are seconds since the line began.
"""

import shlex
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

from elasticjob.members import Member
from elasticjob.rendezvous import Clocks, Decision, Event, PodState, Request, State, Worker
from elasticjob.rendezvous.step import NO_FAILURE, NO_PLAN
from elasticjob.rendezvous.words import round_of, workers
from elasticjob.terms import FailureKind, RendezvousPhase, RequestCause, RequestType, RoundCause
from support.job_on_paper import JobOnPaper, PodKey

MOST_STEPS = 6  # until nothing changes any more


class TranscribedJob(JobOnPaper):
    """Writes down what each of its steps changes."""

    def __init__(self, **spec: object) -> None:
        self.output: list[str] = []
        self.at_once = False
        self.shown = State(clocks=Clocks(opened=0, formed=0))  # as the output says so far
        self.untold: list[str] = []
        self.reason, self.cause, self.seconds = "", "", ""
        self.made: list[PodKey] = []
        self.deleted: list[PodKey] = []
        self.lives: dict[Member, int] = {}
        self.began = self.seen = 1000.0
        super().__init__(**spec)

    def step(self) -> Decision:
        if self.at_once:
            return Decision(self.state)
        if self.now != self.seen:
            self.write()
            self.seen = self.now
        for _ in range(MOST_STEPS):
            state, pods = self.state, set(self.workers)
            decision = super().step()
            self.note(state, decision, pods)
            if self.state == state and set(self.workers) == pods:
                return decision
        raise AssertionError(f"{MOST_STEPS} steps one after the other have each changed something")

    def note(self, before: State, decision: Decision, pods: set[PodKey]) -> None:
        for member in (worker.member for worker in self.workers.values() if worker.member):
            self.lives.setdefault(member, sum(one.index == member.index for one in self.lives))
        self.untold += self.changes_of(before, decision)
        self.made += sorted(self.workers.keys() - pods)
        self.deleted += sorted(pods - self.workers.keys())
        moved = (before.round, before.phase, before.outcome) != (self.state.round, self.state.phase, self.state.outcome)
        if moved or self.untold:
            self.write()

    def changes_of(self, before: State, decision: Decision) -> Iterator[str]:
        """The events, but for those that say only what follows from the rest, and without how such begin."""
        after, lost = decision.state, {}
        for event in decision.events:
            begins, known = "", set()
            match event.reason:
                case "WorkerLost":
                    lost[event.message.partition("; it is failure ")[0]] = event.cause
                case "WorkerFinished":
                    new = (one for one in after.finished if one not in before.finished)
                    known = {Event(event.reason, f"worker {one.index} finished", worker=one.index) for one in new}
                case "RoundFormed":
                    self.seconds = f"{decision.formed_after:.1f}"
                    size = workers(len(after.participants))
                    begins = f"round {after.round} formed with {size} in {self.seconds} s: "
                    first = ("first formation", RoundCause.FIRST_FORMATION)
                    reason, cause = (self.reason, self.cause) if self.reason else first
                    known = {Event(event.reason, begins + reason, cause=cause)}
                case "RoundBroken" | "RoundReopened" | "StageFinished":
                    begins = f"{round_of(before.round, len(before.participants))} ended: "
                    known = {
                        Event(event.reason, begins + why, bool(after.failure), cause) for why, cause in lost.items()
                    }
            said = event.message.removeprefix(begins)
            if begins or event.reason == after.outcome:
                self.reason, self.cause = said, event.cause
            if event not in known:
                cause = f" {event.cause}" if event.cause not in ("", event.reason) else ""
                yield f"{'Warning ' * event.warning}{event.reason}{cause}: {said}"

    def write(self) -> None:
        became = [*self.changes(self.shown, self.state)]
        for sign, keys in (("+", self.made), ("-", self.deleted)):
            if keys:
                became.append(f"{sign}pod{'s' * (len(keys) > 1)} {' '.join(f'{index}-{n}' for index, n in keys)}")
        lines = self.untold or [""] * bool(became)
        if became:
            lines[-1] += " -> " * bool(lines[-1]) + "; ".join(became)
        since = f"{round(self.seen - self.began, 3):g} s: " if self.seen > self.began else ""
        self.output += [f"    {since}{line}" for line in lines]
        self.shown, self.untold, self.made, self.deleted = self.state, [], [], []
        self.reason, self.cause = self.state.reason, self.state.cause

    def changes(self, before: State, after: State) -> Iterator[str]:
        """What is new in the status, and does not follow from the move to another phase."""
        if (before.round, before.phase, before.outcome) != (after.round, after.phase, after.outcome):
            store = before.store if after.round == before.round else None
            before = replace(before, matched=None, replaced=(), waiting=0, store=store, **NO_PLAN, **NO_FAILURE)
            if after.phase is RendezvousPhase.FORMED:
                took = f" in {self.seconds} s" if self.seconds != "0.0" else ""
                yield f"{after.round} Formed{took}: {self.members(after.participants)}"
                store = next(one.address for one in self.workers.values() if one.member == after.participants[0])
                before = replace(before, participants=after.participants, replicas=self.spec.replicas, store=store)
                before = replace(before, restarted_at=self.spec.restarted_at or before.restarted_at)
            else:
                yield f"{after.round} {after.outcome or after.phase}"
        before = replace(before, reason=self.reason, cause=self.cause)
        for one in fields(State):
            old, new = getattr(before, one.name), getattr(after, one.name)
            if old != new and one.name not in ("clocks", "round", "phase", "outcome", "done"):
                yield from self.in_words(one.name, old, new)

    def in_words(self, name: str, old: Any, new: Any) -> Iterator[str]:
        match name:
            case "replacements":
                given = (pod for pod in new.items() if pod not in old.items() and pod not in self.made)
                yield from (f"next pod {index}-{number}" for index, number in given)
            case "planned":
                yield "planned" if new else "not planned"
            case "intact" if not (self.state if new else self.shown).planned:
                yield "intact" if new else "not intact"
            case "intact":
                pass
            case "members_ended":
                yield "all members have ended"
            case "failure":
                said = "no failure pending" if not new else "failure pending"
                yield said + (f": {new}" if new not in ("", self.reason) else "")
            case "ping":
                yield f"ping {new}: {self.members(self.state.pinged)}"
            case "pinged" | "failure_of" | "failure_kind":  # with the number of the ping, with the failure
                pass
            case "reason" | "cause" if self.state.reason == self.state.failure:  # with the failure
                pass
            case "participants" | "leaving" | "finished" | "finishing" | "replaced":
                yield f"{name.replace('_', ' ')} {self.members(new) or 'nobody'}"
            case _:
                yield f"{name} {new}"

    def members(self, members: Iterable[Member]) -> str:
        """In words; many first lives that follow each other are a run."""
        runs: list[list[Member]] = []
        for one in members:
            last = runs[-1][-1] if runs else None
            if last and last.index + 1 == one.index and not self.lives[last] and not self.lives[one]:
                runs[-1].append(one)
            else:
                runs.append([one])
        names = [[f"{one.index}{chr(39) * self.lives[one]}" for one in run] for run in runs]
        return " ".join(f"{run[0]}..{run[-1]}" if len(run) > 4 else " ".join(run) for run in names)

    def say(self, line: str) -> None:
        self.write()
        self.output.append(f"    {line}")


def pod(job: TranscribedJob, *which: int | str, **fields: Any) -> None:
    """What pods, named by index or in full, and their records say: the pod's state, and fields of `Worker`."""
    keys = []
    for word in which:
        state = str(word).replace("-", " ")
        if isinstance(word, int):
            keys.append(job.pod_key(word))
        elif state.replace(" ", "").isdigit():
            index, number = state.split()
            keys.append((int(index), int(number)))
        else:
            fields |= {"pod": PodState(state)} if state in set(PodState) else {word: True}
    for key in keys:
        job.workers[key] = replace(job.workers[key], **fields)
    job.step()


def vanish(job: TranscribedJob, index: int) -> None:
    del job.workers[job.pod_key(index)]
    job.step()


def forge(job: TranscribedJob, index: int, number: int, id: object = "f0", **fields: Any) -> None:
    """A pod that the operator does not make is there, and its record joins."""
    join = Request(type=RequestType.JOIN, after=job.state.last_formed, cause=RequestCause.STARTED)
    job.workers[index, number] = Worker(index=index, replacement=number, id=str(id), request=join, **fields)
    job.step()


def spec(job: TranscribedJob, **fields: Any) -> None:
    job.spec = replace(job.spec, **fields)
    job.step()


def restart(job: TranscribedJob, at: object = "noon") -> None:
    spec(job, restarted_at=str(at))


def away(job: TranscribedJob, seconds: float) -> None:
    """Time passes, and nobody looks."""
    job.now += seconds
    job.step()


def settle(job: TranscribedJob, seconds: float) -> None:
    """Only after so long can all sidecars be taken to hear the API server again."""
    job.state = replace(job.state, clocks=replace(job.state.clocks, settled=job.now + seconds))
    job.step()


def failures(job: TranscribedJob) -> None:
    if not job.state.clocks.failures:
        job.say("no failures")
    for index, (many, before, _, why) in job.state.clocks.failures.items():
        job.say(f"worker {index}: {many} in a row, {before} before any round, the last for: {why}")


VERBS: dict[str, Callable[..., object]] = {
    "up": JobOnPaper.up,  # its pod runs, and its trainer joins
    "start": JobOnPaper.start,  # its pod runs, and a sidecar that is new in it has written its first record
    "join": JobOnPaper.join,
    "rejoin": JobOnPaper.rejoin,  # told that the round has ended
    "live": JobOnPaper.live,  # its training processes live through changes
    "fail": lambda job, *which, **more: job.join(*which, cause=RequestCause.WORKER_FAILED, **more),
    "leave": JobOnPaper.leave,
    "finish": JobOnPaper.finish,  # torchrun and container end in success
    "succeed": JobOnPaper.succeed,  # torchrun alone
    "close": JobOnPaper.close,
    "suspect": JobOnPaper.suspect,  # the first hears nothing of the others
    "beat": JobOnPaper.beat,  # and answer
    "spoil": JobOnPaper.spoil,
    "pod": pod,
    "record": pod,
    "delete": JobOnPaper.delete,  # until it is gone
    "vanish": vanish,
    "forge": forge,
    "spec": spec,
    "scale": JobOnPaper.scale,
    "restart": restart,  # people ask for new processes
    "suspend": lambda job: job.suspend(True),
    "resume": lambda job: job.suspend(False),
    "wait": lambda job, seconds, *living: job.wait(seconds, living),
    "away": away,
    "settle": settle,
    "take-over": JobOnPaper.take_over,
    # what is no part of the status
    "failures": failures,
    "look": lambda job: job.say(f"looks again in {round(job.wake_at - job.now, 3):g} s"),
}


def play(transcript: str) -> str:
    """What becomes of the inputs of `transcript`."""
    job: TranscribedJob | None = None
    before: TranscribedJob | None = None
    written: list[str] = []
    for line in (one for one in transcript.splitlines() if not one.startswith("    ")):
        written.append(line)
        if line.startswith("#"):
            continue
        if line.startswith("either: "):
            before = deepcopy(job)
        elif line.startswith("or: "):
            job = deepcopy(before)
        job = job_after(line.removeprefix("either: ").removeprefix("or: "), job)
        written += job.output
        job.output = []
    return "\n".join(written)


def job_after(line: str, job: TranscribedJob | None = None) -> TranscribedJob:
    """The job after the commands of a line, by the first of which it begins if there is none yet."""
    commands: list[list[str]] = [[]]
    for word in shlex.split(line.removeprefix("at once: ")):
        commands[-1].append(word.removesuffix(";"))
        if word.endswith(";"):
            commands.append([])
    job = job or _begun(*commands.pop(0))
    job.began, job.at_once = job.now, line.startswith("at once: ")
    for verb, *words in commands:
        if verb not in VERBS:
            raise ValueError(f"no command is called {verb}; there are {', '.join(VERBS)}")
        values, named = _arguments(words)
        VERBS[verb](job, *values, **named)
    if job.at_once:
        job.at_once = False
        job.step()
    job.write()
    return job


def _begun(verb: str, *words: str) -> TranscribedJob:
    values, named = _arguments(words)
    if verb == "job":
        return TranscribedJob(**named)
    (size,) = values
    job = TranscribedJob(replicas=size, **named)
    job.up(*range(size + job.spec.spares))
    assert job.phase == "1 Formed"
    job.write()
    job.output = []
    return job


def _arguments(words: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
    values: list[Any] = []
    named = {}
    for word in words:
        name, is_named, value = word.partition("=")
        first, is_run, last = word.removesuffix(":").partition("..")
        if is_named:
            named[name] = FailureKind(value) if name == "kind" else _value(value)
        elif is_run:
            values += range(int(first), int(last) + 1)
        else:
            values.append(_value(word.removesuffix(":")))
    return values, named


def _value(word: str) -> Any:
    try:
        return literal_eval(word)
    except (SyntaxError, ValueError):
        return word
