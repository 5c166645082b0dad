# SPDX-License-Identifier: Apache-2.0
"""Transcripts of one worker's side of the rendezvous.

Lines at the margin are what happens; indented lines are what the worker then asks, answers and tells. `me` is
the worker, `w1`, `w2` ... are others. The player runs the lines at the margin and writes down what follows.
"""

from itertools import product
from random import Random
from textwrap import dedent
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
        for line in dedent(script).strip().splitlines():
            if line.startswith("    "):
                continue
            self.lines.append(line)
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


TRANSCRIPTS = {
    "the first round is formed and handed out": """
        job Forming 0
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me w2
            A gets round 1, rank 1 of 3
    """,
    "a join before the job was seen is announced once it is": """
        attach A
        join A 0
        wait 30
        job Forming 1
            request Join after 0: Started
    """,
    "a newcomer to a formed round waits for the next": """
        job Formed 3: w1 w2
        attach A
        join A 0
            request Join after 3: Started
        job Forming 4: w1 w2
        job Formed 4: w1 w2 me
            A gets round 4, rank 2 of 3
    """,
    "a join is renewed when a round passes by, even when its formed state was never seen": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 w2
            request Join after 1: Renewed
        job Forming 3: w1 w2
            request Join after 2: Renewed
        job Formed 3: me w1 w2
            A gets round 3, rank 0 of 3
    """,
    "told of a change, the trainer comes back, and is told once all is well again": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        job Forming 2: w1 me
            tell: changed
        join A 1 MembershipChanged
            request Join after 1: MembershipChanged
        job Formed 2: w1 me w2
            A gets round 2, rank 1 of 3
            tell: all well
    """,
    "workers fail in a round that nobody broke: the join asks for a new round, the old one is not handed again": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        join A 1 WorkerFailed
            request Join after 1: WorkerFailed
            tell: changed
        job Formed 1: w1 me
        job Forming 2: w1 me
        job Formed 2: w1 me
            A gets round 2, rank 1 of 2
            tell: all well
    """,
    "asked again after an interruption, the same round is handed to the same trainer": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        interrupt A
        job Formed 1: w1 me
        join A 0
            A gets round 1, rank 1 of 2
        join A 0
            A gets round 1, rank 1 of 2
    """,
    "asked again for a round that is broken by now, the trainer waits for the next": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        job Forming 2: w1 me
            tell: changed
        join A 0 MembershipChanged
            request Join after 1: MembershipChanged
        job Formed 2: w1 me
            A gets round 2, rank 1 of 2
            tell: all well
    """,
    "a killed agent that held a round is announced at once, and its successor never gets that round": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        detach A
            request Leave: AgentLost
        attach B
        join B 0
            request Join after 1: Started
        job Formed 1: w1 me
        job Forming 2: w1
        job Formed 2: w1 me
            B gets round 2, rank 1 of 2
    """,
    "a trainer restarted while it joined is followed by its successor, and nothing is announced": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        detach A
            A gets NoTrainer
        wait 4
        attach B
        wait 60
        join B 0
        job Formed 1: w1 me
            B gets round 1, rank 1 of 2
    """,
    "a round formed meanwhile is handed to the successor": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        detach A
            A gets NoTrainer
        job Formed 1: w1 me
        wait 3
        attach B
        join B 0
            B gets round 1, rank 1 of 2
    """,
    "a round formed meanwhile and broken again is not handed to the successor": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        detach A
            A gets NoTrainer
        job Formed 1: w1 me
        job Forming 2: w1 me
        attach B
        join B 0
            request Join after 1: Renewed
        job Formed 2: w1 me
            B gets round 2, rank 1 of 2
    """,
    "without a successor the join is withdrawn after 5 s, and a round formed for it is handed to nobody": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        detach A
            A gets NoTrainer
        wait 5
            request Leave: AgentLost
        job Formed 1: w1 me
        attach B
        join B 0
            request Join after 1: Started
        job Forming 2: w1
    """,
    "a formed round that an attached trainer never fetches is given up": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        interrupt A
        job Formed 1: w1 me
        wait 20
            request Leave: AgentLost
    """,
    "nobody takes the place of a trainer whose stream is open": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        attach B
            refused TrainerLives
        join B 0
            refused NoTrainer
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        attach B
            refused TrainerLives
        store A 1 4000
            refused BadRequest
    """,
    "who comes back after a newer trainer took the place has to end": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        detach A
            A gets NoTrainer
        attach B
        attach A
            refused Superseded
        join A 0
            refused Superseded
        join B 0
        job Formed 1: w1 me
            B gets round 1, rank 1 of 2
        detach B
            request Leave: AgentLost
        attach C
        store B 1 4000
            refused Superseded
    """,
    "nobody joins without an open stream": """
        job Forming 1
        join A 0
            refused NoTrainer
    """,
    "the trainer's patience ends": """
        job Forming 1
        attach A
        join A 0 Started 60
            request Join after 0: Started
        wait 59
        wait 1
            request Leave: JoinTimeout
            A gets JoinTimeout
        job Formed 1: w1 me
    """,
    "a spare waits for as long as the others train": """
        job Formed 1: w1 w2
        attach A
        join A 0 Started 60
            request Join after 1: Started
        wait 60
            A gets JoinTimeout
        join A 0 Started 60
        job Forming 2: w1 w2
        job Formed 2: w1 me
            A gets round 2, rank 1 of 2
    """,
    "rank 0 posts its store; members of the round reach it, others do not": """
        job Forming 1
        attach A
        peer w1 1
            must wait
        join A 0
            request Join after 0: Started
        job Formed 1: me w1
            A gets round 1, rank 0 of 2
        peer w1 1
            must wait
        store A 1 4000
        peer w1 1
            reaches port 4000
        peer w2 1
            refused NotAMember
        peer w1 2
            must wait
        wait 60
        job Forming 2: me w1
            tell: changed
        peer w1 1
            refused RoundBroken
    """,
    "rank 0 that does not post its store in time leaves; its trainer may come back": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: me w1
            A gets round 1, rank 0 of 2
        wait 20
            request Leave: StoreNotReady
            tell: changed
        store A 1 4000
            refused RoundBroken
        join A 1 MembershipChanged
            request Join after 1: MembershipChanged
    """,
    "only rank 0 has a store to post, and only for the round it holds": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        store A 1 4000
            refused BadRequest
        store A 2 4000
            refused RoundBroken
        peer w1 1
            refused BadRequest
        wait 60
    """,
    "a victim of a scale-down is told so, whether it trains or waits": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        job Forming 2: w1 me leaving me
            tell: changed
        join A 1 MembershipChanged
            A gets Leaving
        leave A
            request Leave: TrainerLeft
    """,
    "a victim that still waits is told at once": """
        job Formed 1: w1
        attach A
        join A 0
            request Join after 1: Started
        job Formed 1: w1 leaving me
            A gets Leaving
            tell: changed
    """,
    "a trainer that ends well has finished, whatever comes after": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        finish A 1
            request Finish 1
        leave A
        detach A
        wait 60
        stop
    """,
    "a success that an earlier sidecar has recorded stands, even if the pod stops before it is read": """
        attach A holding 1
        recall 1
            request Finish 1
        job Formed 1: w1 w0
            tell: changed
        detach A
            tell: all well
        stop
    """,
    "a success that is read while the pod stops is the last word": """
        stop
            request Leave: PodStopping
        recall 1
            request Finish 1
    """,
    "a success of an earlier sidecar does not take back what a newer trainer asks": """
        job Formed 1: w1 w0
        attach B
        join B 0
            request Join after 1: Started
        recall 1
        job Forming 2
    """,
    "the second torchrun of a container is of the next stage, which the job begins when all are ready for it": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: me w1
            A gets round 1, rank 0 of 2
        finish A 1
            request Finish 1
        detach A
        attach B
        join B 0
            request Join after 1 of stage 2: Started
        wait 60
        stage 2
        job Forming 2: me w1
        job Formed 2: me w1
            B gets round 2, rank 0 of 2
        finish B 2
            request Finish 2 of stage 2
    """,
    "in a container that was started again the first torchrun finds its stage finished, and the second joins": """
        job Formed 1: me w1
        attach A
        join A 0
            request Join after 1: Started
        stage 2
        job Forming 2: me w1
            request Finish 0
            A gets StageFinished
        detach A
        attach B holding 0 2
        join B 0
            request Finish 0
            B gets StageFinished
        detach B
        attach C holding 0 2
        join C 0
            request Join after 1 of stage 2: Started
    """,
    "after a container failed beside its torchrun's success, so does the torchrun of the next": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: me w1
            A gets round 1, rank 0 of 2
        finish A 1
            request Finish 1
        detach A
        attach B holding 0 2
        join B 0
            request Finish 1
            B gets StageFinished
    """,
    "who is told to leave between two torchruns says so, so that its container is not started again for long": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: me w1
            A gets round 1, rank 0 of 2
        finish A 1
            request Finish 1
        detach A
        job Forming 2: me w1 leaving me
            tell: changed
        attach B
        join B 0
            B gets Leaving
        leave B
            request Leave of stage 2: TrainerLeft
    """,
    "and so does who is told so before it has asked for anything": """
        job Forming 2: me w1 leaving me
            tell: changed
        attach A
        join A 0
            A gets Leaving
        leave A
            request Leave: TrainerLeft
    """,
    "another sidecar goes by what the record says of the stage, and answers nobody before": """
        stage 2
        restart
        job Forming 2: me w1
        attach A
        join A 0
        recall 1
            request Join after 1 of stage 2: Started
        job Formed 2: w1 me
            A gets round 2, rank 1 of 2
    """,
    "a trainer that was told its stage says it to another sidecar, be the record lost or not": """
        stage 2
        job Formed 2: me w1
        attach A holding 2 1 train.py 2
            tell: changed
        join A 2 MembershipChanged
            request Join after 2 of stage 2: MembershipChanged
    """,
    "who runs another script than the others at this place is refused": """
        stage 2 prepare.py train.py
        job Forming 2
        attach A holding 0 1 train.py
        join A 0
            A gets OtherScript
        detach A
        attach B holding 0 2 prepare.py
        join B 0
            request Finish 0
            B gets StageFinished
        attach C holding 0 2 other.py
            refused TrainerLives
    """,
    "a stage of long ago is not checked": """
        stage 3 train.py
        job Forming 3
        attach A holding 0 1 prepare.py
        join A 0
            request Finish 0
            A gets StageFinished
    """,
    "a job that has failed tells nobody that its stage is finished": """
        stage 2
        job Closed 2: w1 outcome Failed
        attach A
        join A 0
            A gets Closed Failed
    """,
    "a finished worker's own round still counts as its own, so the store is reachable for those who save": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: me w1
            A gets round 1, rank 0 of 2
        store A 1 4000
        finish A 1
            request Finish 1
        peer w1 1
            reaches port 4000
    """,
    "a trainer that starts after another one finished does not get the finished round": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        finish A 1
            request Finish 1
        detach A
        attach B
        join B 0
            request Join after 1 of stage 2: Started
        job Closed 1: w1 me outcome Complete
            B gets Closed Complete
    """,
    "set_closed: asked until it is so; the round trains on to its end, nobody joins another": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        close A
            request Close
        finish A 1
        job Closed 1: w1 me outcome Closed
            request Finish 1
        join A 1 WorkerFailed
            A gets StageFinished
    """,
    "closed with the same round is no change; closed after it was broken is": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        job Closed 1: w1 me outcome Closed
        job Closed 2: w1 me outcome Failed
            tell: changed
        join A 1 MembershipChanged
            A gets Closed Failed
    """,
    "a joiner that waits when the job ends is told the outcome": """
        job Formed 1: w1
        attach A
        join A 0
            request Join after 1: Started
        job Closed 1: w1 outcome Complete
            A gets Closed Complete
    """,
    "processes live on into the next round, of a worker whose join says so": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        opt A 1
            round 1 is lived through
        job Forming 2: w1 me
            tell: changed
        opt A 1
            refused RoundBroken
        live A 1
            request Join after 1 live: MembershipChanged
        job Formed 2: me w1
            A gets round 2, rank 0 of 2
            tell: all well
    """,
    "a round for new processes refuses a join of old ones, early or late, and takes one of new ones": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        live A 1
            request Join after 1 live: MembershipChanged
            tell: changed
        anew 2
        job Forming 2: w1 me
            A gets NewProcesses
        live A 1
            A gets NewProcesses
        join A 1 MembershipChanged
            request Join after 1: MembershipChanged
        job Formed 2: w1 me
            A gets round 2, rank 1 of 2
            tell: all well
        job Forming 3: w1 me
            tell: changed
        live A 2
            request Join after 2 live: MembershipChanged
    """,
    "who was in no round of the job joins live unless the round that forms is for new processes": """
        anew 2
        job Forming 2: w1
        attach A
        live A 0
            A gets NewProcesses
        job Formed 2: w1
        live A 0
            request Join after 2 live: MembershipChanged
        job Formed 3: w1 w2
            request Join after 3 live: Renewed
    """,
    "a trainer whose process failed leaves until it has another, and joins again": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        mend A 7
            request Leave: WorkerFailed (exit code 7)
            tell: changed
        mend A 8
        live A 1
            request Join after 1 live: MembershipChanged
        mend A 9
            request Leave: WorkerFailed (exit code 9)
            A gets NoTrainer
        detach A
            tell: all well
    """,
    "the pod stops": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        stop
            request Leave: PodStopping
            A gets NoTrainer
        join A 0
            refused NoTrainer
    """,
    "the pod stops while its trainer holds a round": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        stop
            request Leave: PodStopping
            tell: changed
    """,
    "the pod stops before a trainer has joined": """
        stop
            request Leave: PodStopping
        stop
    """,
    "a trainer leaves while it waits": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        leave A
            request Leave: TrainerLeft
            A gets NoTrainer
    """,
    "a trainer that waits has finished, and says so twice": """
        job Formed 1: w1
        attach A
        join A 0
            request Join after 1: Started
        finish A 1
            request Finish 1
            A gets NoTrainer
        finish A 1
    """,
    "the pod stops after its agent was lost: the first word stands": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
        detach A
            request Leave: AgentLost
        stop
    """,
    "a new incarnation of the sidecar: its trainer holds a round that was not handed by it": """
        attach A holding 4
        job Formed 4: w1 w2
            tell: changed
        join A 4 MembershipChanged
            request Join after 4: MembershipChanged
        job Forming 5: w1 w2
        job Formed 5: w1 me
            A gets round 5, rank 1 of 2
            tell: all well
    """,
    "a new incarnation whose first look at the job is stale does not fall behind its trainer": """
        attach A holding 4
        job Formed 3: w1 w2
            tell: changed
        join A 4 MembershipChanged
            request Join after 4: MembershipChanged
    """,
    "a new incarnation after the rendezvous was closed lets its trainer end in peace": """
        attach A holding 4
        job Closed 4: w1 w2 outcome Closed
        finish A 4
            request Finish 4
    """,
    "the same trainer connects again: its old stream's end means nothing any more": """
        job Forming 1
        attach A
        join A 0
            request Join after 0: Started
        attach A
        job Formed 1: w1 me
            A gets round 1, rank 1 of 2
    """,
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(name: str) -> None:
    script = dedent(TRANSCRIPTS[name]).strip()
    assert Player().play(script) == script


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
    for script in TRANSCRIPTS.values():
        Player().play(script)
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
