# SPDX-License-Identifier: Apache-2.0
"""One worker's side of the rendezvous: transcripts, random walks, and the table of its moves.

In transcripts/membership.txt the title is the claim, lines at the margin are what happens, and indented lines are what
the worker then asks, answers and tells. `me` is the worker, `w1`, `w2` ... are others. The player runs the lines at the
margin and writes down what follows; `REWRITE_TRANSCRIPTS=1 pytest PATH_OF_THIS_FILE` writes the file anew.
"""

import os
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from elasticjob.api import Member, Outcome, RendezvousPhase, RendezvousStatus, RequestCause, RequestType, WorkerRequest
from elasticjob_sidecar.membership import machine
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.model import Handed, Torchrun
from elasticjob_sidecar.membership.modes import MOVES, TABLE, IllegalModeChange, Mode, ModeChange, move_out_of
from elasticjob_sidecar.membership.output import Output
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_sidecar.membership.view import has_changed, view_of
from elasticjob_torch import wire
from elasticjob_torch.wire import Failure, FailureKind


def member(name: str) -> Member:
    return Member(index=0 if name == "me" else int(name[1:]), id=name)


def in_words(request: WorkerRequest | None) -> str:
    if request is None:
        return "nothing"
    number = "" if request.after is None else f" after {request.after}"
    number += "" if request.round is None else f" {request.round}"
    number += f" of stage {request.stage}" if (request.stage or 1) > 1 else ""
    live, failed = " live" * bool(request.live), f" ({request.detail})" if request.detail else ""
    return f"{request.type}{number}{live}" + (f": {request.cause}{failed}" if request.cause else "")


class Player:
    """Runs a transcript's inputs and writes the transcript as it really goes."""

    def __init__(self) -> None:
        self.worker = Membership(member("me"), store_ready_seconds=20)
        self.output = self.worker.take()
        self.now = 0.0
        self.stage, self.scripts, self.restart_round = 1, tuple[str, ...](), 0
        self.streams: dict[str, int] = {}
        self.lines: list[str] = []
        self._request: Any = None
        self._changed = False

    def play(self, script: str) -> str:
        for line in script.splitlines():
            if line.startswith("    "):
                continue
            self.lines.append(line)
            if line.startswith("#"):
                continue
            verb, *words = line.split()
            try:
                getattr(self, "do_" + verb)(*words)
            except Refused as refused:
                self.say(f"refused {refused.code}")
            self.settle()
        return "\n".join(self.lines)

    def say(self, line: str) -> None:
        self.lines.append("    " + line)

    def settle(self) -> None:
        self.output = output = self.worker.take()
        if output.request != self._request:
            self._request = output.request
            self.say(f"request {in_words(output.request)}")
        for ticket, answer in output.answers:
            if isinstance(answer, Handed):
                self.say(f"{ticket} gets round {answer.round}, rank {answer.rank} of {answer.world_size}")
            else:
                self.say(f"{ticket} gets {answer.code}" + (f" {answer.outcome}" if answer.outcome else ""))
        if has_changed(output.standing) != self._changed:
            self._changed = not self._changed
            self.say("tell: changed" if self._changed else "tell: all well")

    def do_job(self, phase: str, round: str, *names: str) -> None:
        words = " ".join(names)
        names_, _, leaving = words.partition("leaving")
        names_, _, outcome = names_.partition("outcome")
        self.worker.job_seen(
            RendezvousStatus(
                phase=RendezvousPhase(phase),
                round=int(round.rstrip(":")),
                participants=tuple(member(name) for name in names_.split()),
                leaving=tuple(member(name) for name in leaving.split()),
                outcome=Outcome(outcome.strip()) if outcome else None,
                stage=self.stage,
                scripts=self.scripts,
                restart_round=self.restart_round,
            ),
            self.now,
        )

    def do_hold(self, round: str, *names: str) -> None:
        """The trainer A has joined, and the first round is formed with the worker: it is handed out."""
        self.do_job("Forming", round)
        self.do_attach("A")
        self.do_join("A", "0")
        self.do_job("Formed", round, *names)

    def do_anew(self, round: str) -> None:
        """What the job's next status says: that round is one of new processes."""
        self.restart_round = int(round)

    def do_stage(self, number: str, *scripts: str) -> None:
        """What the job's next status says."""
        self.stage, self.scripts = int(number), scripts

    def do_attach(
        self, trainer: str, _: str = "", round: str = "0", container: str = "1", script: str = "", stage: str = "0"
    ) -> None:
        torchrun = Torchrun(1, container, script, int(stage))
        self.streams[trainer] = self.worker.attached(trainer, int(round), torchrun)

    def do_detach(self, trainer: str) -> None:
        self.worker.detached(self.streams[trainer], self.now)

    def do_join(self, trainer: str, after: str, cause: str = "Started", patience: str = "600") -> None:
        self.worker.join(trainer, int(after), RequestCause(cause), float(patience), trainer, self.now)

    def do_live(self, trainer: str, after: str) -> None:
        """It joins with the processes that it has."""
        cause = RequestCause.MEMBERSHIP_CHANGED
        self.worker.join(trainer, int(after), cause, 600.0, trainer, self.now, live=True)

    def do_opt(self, trainer: str, round: str) -> None:
        self.worker.lives(trainer, int(round))
        self.say(f"round {self.worker.take().standing.held} is lived through")

    def do_mend(self, trainer: str, exit_code: str) -> None:
        failure = Failure(f"exit code {exit_code}", int(exit_code), FailureKind.EXIT_CODE)
        self.worker.leave(trainer, RequestCause.WORKER_FAILED, failure)

    def do_interrupt(self, trainer: str) -> None:
        self.worker.join_dropped(trainer)

    def do_store(self, trainer: str, round: str, port: str) -> None:
        self.worker.store_posted(trainer, int(round), int(port))

    def do_leave(self, trainer: str) -> None:
        self.worker.leave(trainer, RequestCause.TRAINER_LEFT)

    def do_finish(self, trainer: str, round: str) -> None:
        self.worker.finish(trainer, int(round))

    def do_recall(self, round: str, type: str = "Finish", stage: str = "1", container: str = "1") -> None:
        said = WorkerRequest(type=RequestType(type), round=int(round), stage=int(stage), container=container)
        self.worker.recall(said, self.now)

    def do_restart(self) -> None:
        """Another incarnation, which has not read the record yet."""
        self.worker = Membership(member("me"), store_ready_seconds=20, recalled=False)
        self._request, self._changed = None, False

    def do_close(self, trainer: str) -> None:
        self.worker.close(trainer)

    def do_stop(self) -> None:
        self.worker.stop()

    def do_peer(self, name: str, round: str) -> None:
        port = self.output.standing.admit(int(round), member(name))
        self.say("must wait" if port is None else f"reaches port {port}")

    def do_wait(self, seconds: str) -> None:
        until = self.now + float(seconds)
        while (due := self.output.wake_at) is not None and due <= until:
            self.now = due
            self.worker.tick(due)
            self.settle()
        self.now = until


FILE = Path(__file__).parent / "transcripts" / "membership.txt"
TRANSCRIPTS = FILE.read_text().strip().split("\n\n")
if "REWRITE_TRANSCRIPTS" in os.environ:
    FILE.write_text("\n\n".join(Player().play(one) for one in TRANSCRIPTS) + "\n")


@pytest.mark.parametrize("transcript", [pytest.param(one, id=one.splitlines()[0][2:]) for one in TRANSCRIPTS])
def test_transcript(transcript: str) -> None:
    assert Player().play(transcript) == transcript


def test_an_old_stream_of_the_same_trainer_may_end() -> None:
    worker = Membership(member("me"))
    first = worker.attached("A", 0)
    second = worker.attached("A", 0)
    worker.detached(first, now=2)
    assert worker.take().standing.stream == second != first


def test_the_view_names_the_round_it_speaks_of() -> None:
    player = Player()
    assert view_of(player.output.standing) is None
    player.play("job Forming 1\nattach A\njoin A 0\njob Formed 1: w1 me\njob Forming 2: w1 me")
    expected = wire.View(round=2, phase=wire.Phase.FORMING, handed=1, changed=True, broken=True)
    assert view_of(player.output.standing) == expected


@pytest.mark.parametrize(
    ("agreed", "ended"),
    [
        ({"finished": "0/me"}, False),
        ({"finished": "0/me", "finishing": "1/w1"}, True),
        ({"phase": "Closed", "outcome": "Closed", "finished": "0/me"}, False),
        ({"phase": "Closed", "outcome": "Closed", "finishing": "0/me", "membersEnded": True}, True),
        ({"phase": "Closed", "outcome": "Closed", "membersEnded": True, "round": 2}, False),
    ],
)
def test_the_view_tells_when_no_other_worker_of_the_round_trains(agreed: dict[str, Any], ended: bool) -> None:
    player = Player()
    player.play("job Forming 1\nattach A\njoin A 0\njob Formed 1: w1 me")
    now = {"round": 1, "phase": "Formed", "participants": "1/w1 0/me", **agreed}
    player.worker.job_seen(RendezvousStatus.model_validate(now), 0.0)
    view = view_of(player.worker.take().standing)
    assert view is not None
    assert view.ended is ended


class RandomWalk:
    """A worker under a random trainer, a random operator and a random clock, with the invariants checked."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.worker = Membership(member("me"), store_ready_seconds=20)
        self.output = self.worker.take()
        self.now = 0.0
        self.job = RendezvousStatus()
        self.given: dict[int, str] = {}
        self.left_at = -1  # the last formed round when a Leave was asked
        self.trainers = 0
        self.current, self.stream = "", 0
        self.tickets: set[int] = set()
        self.ticket = 0

    def step(self) -> None:
        getattr(self, self.random.choice(["operator", "operator", "trainer", "trainer", "trainer", "clock"]))()
        self.output = self.worker.take()
        self.check(self.output)

    def operator(self) -> None:
        """Rounds only grow; a watch may miss any of them."""
        job, me = self.job, member("me")
        for _ in range(self.random.randint(1, 3)):
            if job.phase is RendezvousPhase.FORMED:
                job = RendezvousStatus(round=job.round + 1, participants=job.participants)
            else:
                others = (member("w1"), member("w2"))
                members = others if self.random.random() < 0.3 else (me, *others)
                job = RendezvousStatus(round=max(job.round, 1), phase=RendezvousPhase.FORMED, participants=members)
        self.job = job
        self.worker.job_seen(job, self.now)

    def trainer(self) -> None:
        worker, now = self.worker, self.output.standing
        if not now.stream:
            return self.start()
        act = self.random.choice(["start", "join", "join", "join", "join", "die", "interrupt", "leave", "store"])
        try:
            if act == "start":
                self.start()
            elif act == "join":
                self.ticket += 1
                after = self.random.choice([now.held, now.held, 0])
                worker.join(self.current, after, RequestCause.STARTED, 60, self.ticket, self.now)
                self.tickets.add(self.ticket)
            elif act == "die":
                worker.detached(self.stream, self.now)
            elif act == "interrupt":
                worker.join_dropped(self.ticket)
            elif act == "leave":
                worker.leave(self.current, RequestCause.TRAINER_LEFT)
            else:
                worker.store_posted(self.current, now.held, 4000)
        except Refused:
            pass

    def start(self) -> None:
        self.trainers += 1
        self.stream = self.worker.attached(f"T{self.trainers}", 0)
        self.current = f"T{self.trainers}"

    def clock(self) -> None:
        self.now += self.random.choice([0.1, 1, 6, 30])
        self.worker.tick(self.now)

    def check(self, output: Output) -> None:
        job, now, request = self.job, output.standing, output.request
        for ticket, answer in output.answers:
            self.tickets.remove(ticket)  # answered once, and only what was asked
            if isinstance(answer, Handed):
                assert job.phase is RendezvousPhase.FORMED
                assert answer.round == job.round
                assert job.participants[answer.rank] == now.me
                assert self.given.setdefault(answer.round, self.current) == self.current
                assert answer.round > self.left_at
        formed = job.round if job.phase is RendezvousPhase.FORMED else job.round - 1
        if request is not None and request.type is RequestType.LEAVE:
            assert now.mode is Mode.IDLE
            self.left_at = max(self.left_at, formed)
        if now.mode is Mode.JOINING:
            assert request is not None
            assert request.type is RequestType.JOIN
            assert request.after is not None
            assert request.after <= max(formed, 0)
        if now.mode is Mode.HANDED:
            assert now.stream == self.stream
            assert now.held in self.given


@pytest.mark.parametrize("seed", range(100))
def test_invariants_hold_on_a_random_walk(seed: int) -> None:
    walk = RandomWalk(seed)
    for _ in range(300):
        walk.step()
    assert len(walk.given) > 3


def test_the_transcripts_take_every_move_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = set()

    def noted(mode: Mode, event: str) -> ModeChange:
        taken.add((mode, event))
        return move_out_of(mode, event)

    monkeypatch.setattr(machine, "move_out_of", noted)
    for transcript in TRANSCRIPTS:
        Player().play(transcript)
    assert taken == TABLE.keys()


def test_there_is_no_other_move() -> None:
    events = {move.event for move in MOVES}
    assert len(TABLE) == sum(len(move.sources) for move in MOVES)
    for mode, event in set(product(Mode, events)) - TABLE.keys():
        with pytest.raises(IllegalModeChange, match=f"the worker is {mode}: {event} is no move out of that"):
            move_out_of(mode, event)


@pytest.mark.parametrize("seed", range(100))
def test_no_order_of_inputs_leads_out_of_the_table(seed: int) -> None:
    """Whatever trainers, operator and clock do, in whatever order: at most it is refused."""
    random, player, round = Random(seed), Player(), 1
    player.play("attach T0")
    for step in range(100):
        round += random.random() < 0.2
        trainer = random.choice([*player.streams, *[list(player.streams)[-1]] * 5])
        phase = random.choice([*RendezvousPhase, RendezvousPhase.FORMED])
        line = random.choice(
            [
                *[f"job {phase} {round}: me w1"] * 3,
                f"job {phase} {round}: w1 me leaving {random.choice(['me', 'w1'])}",
                f"attach {random.choice([trainer, f'T{step}'])} holding {random.randint(0, round)}",
                f"detach {trainer}",
                *[f"join {trainer} {random.randint(0, round)}"] * 4,
                f"interrupt {trainer}",
                f"store {trainer} {round} 4000",
                f"leave {trainer}",
                *[f"finish {trainer} {round}"] * (step % 7 == 0),
                f"close {trainer}",
                f"wait {random.choice([1, 5, 20, 600])}",
                *["stop"] * (seed % 2),
            ]
        )
        player.play(line)
