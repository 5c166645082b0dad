# SPDX-License-Identifier: Apache-2.0
"""Whether a training hangs, and who is named for it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticjob.api import ElasticJobSpec, ElasticJobStatus, ElasticWorkerStatus, ProcessState, Stall
from elasticjob.rendezvous import Member, Worker
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.stalls import Hang, Hangs, StallQuestion
from support.operator_objects import job
from support.statuses import FORMED, report, status

STATE = replace(FORMED, leaving=(), finished=(), replacements={}, participants=tuple(Member(i, "a") for i in range(4)))
WORKERS = tuple(Worker(index=index, id="a") for index in range(4))
STOPPED, BLOCKED, COMPUTES, WAITS, UNKNOWN = ProcessState
PATIENCE = 15.0


class Job:
    """Four workers in round 3, what their records say, and the operator's memory and clock."""

    def __init__(self, state: Any = STATE, **spec: Any) -> None:
        self.spec = ElasticJobSpec.parse(job(**{"progressDeadlineSeconds": 60, **spec})["spec"])
        self.state, self.said = state, dict[int, ElasticWorkerStatus]()
        self.hangs, self.now, self.before = Hangs(), 1000.0, ElasticJobStatus()
        self.workers: tuple[Worker, ...] = WORKERS  # as the rules see them
        self.news = list[str]()
        self.hang = Hang()
        self.agree()

    def agree(self) -> None:
        self.before = status(self.state, self.before, spec=self.spec.dump(), facts=[self.hang])

    def say(self, *indices: int, stalled: bool = True, waits: float | None = None, round: int = 3, **said: Any) -> None:
        stall = Stall(round=round, stalled=stalled, **said)
        self.said |= dict.fromkeys(indices, ElasticWorkerStatus(waits=waits, stall=stall))

    def look(self, after: float = 0.0) -> Hang:
        self.now += after
        said = {(index, 0): one for index, one in self.said.items()}
        said |= {worker.pod_key: ElasticWorkerStatus() for worker in WORKERS if worker.pod_key not in said}
        made = report(self.state, self.before, spec=self.spec.dump(), workers=WORKERS, at=self.now)
        seen = self.hangs.see(made._replace(observer=cast(Any, SimpleNamespace(statuses=said))))
        self.hang, self.workers = seen.of(Hang), seen.workers
        self.news += [event.message for event in self.hangs.after(seen)]
        self.agree()
        return self.hang

    @property
    def condition(self) -> str:
        found = next(one for one in self.before.conditions if one.type == "Progressing")
        return f"{found.status} {found.reason} {found.message}".strip()


def of(**states: ProcessState) -> str:
    """How it is told if worker 0 does this, and the others that: `zero`, `others`."""
    told = Job()
    told.say(0, step=7, process=states["zero"])
    told.say(1, 2, 3, step=7, process=states["others"])
    return told.look().sentence.removeprefix("no member has reported for 60 s: ")


def test_while_nobody_stalls_nobody_is_asked() -> None:
    told = Job()
    assert told.look() == Hang()
    assert (told.before.rendezvous.stalled, told.condition, told.before.reason) == (0, "True WithinDeadline", "")


def test_one_that_stalls_has_all_asked_and_it_hangs_when_all_have_answered() -> None:
    told = Job()
    told.say(1, step=7)
    assert (told.look().stalled, told.hang.sentence, told.hang.again) == (3, "", PATIENCE)
    assert told.before.rendezvous.stalled == 3
    told.say(0, 1, 2, 3, step=7, process=WAITS)
    told.say(2, step=7, process=STOPPED)
    told.look(after=1)
    sentence = "no member has reported for 60 s: worker 2's training process is stopped; all at step 7"
    assert (told.hang.sentence, told.condition) == (sentence, f"False ProgressDeadlineExceeded {sentence}")
    assert (told.before.reason, told.before.phase) == ("ProgressDeadlineExceeded", "Running")
    told.look(after=1)
    told.look(after=1)
    assert told.news == [sentence]


def test_who_does_not_answer_is_not_waited_for_long() -> None:
    """Such as a trainer that is stopped."""
    told = Job()
    told.say(0, 1, 3, step=7, process=WAITS)
    told.say(2, stalled=False)
    told.look()
    told.look(after=PATIENCE - 1)
    assert (told.hang.sentence, told.hang.again) == ("", 1.0)
    told.look(after=1)
    assert "worker 2's trainer does not say what its training processes do; all at step 7" in told.hang.sentence


def test_a_sidecar_that_knows_no_such_question_is_not_waited_for_long_and_not_named() -> None:
    told = Job()
    told.say(0, 1, 3, step=7, process=WAITS)
    assert told.look().again == PATIENCE
    assert told.look(after=PATIENCE).sentence.endswith("none of them lags behind the others; all at step 7")


def test_one_that_trains_on_makes_it_no_hang() -> None:
    """A script of which one rank has stopped reporting."""
    told = Job()
    told.say(3, step=7, process=WAITS)
    told.say(0, 1, 2, stalled=False, step=90, process=COMPUTES)
    told.look()
    told.look(after=3600)
    assert (told.hang.stalled, told.hang.sentence, told.hang.again, told.news) == (3, "", None, [])
    told.say(0, 1, 2, step=120, process=WAITS)
    assert told.look().sentence != ""


def test_who_never_reported_is_no_proof_that_the_others_train() -> None:
    told = Job()
    told.say(0, step=7, process=WAITS)
    told.say(1, 2, 3, stalled=False, process=WAITS)
    assert "none of them lags behind the others; all at step 7" in told.look().sentence


def test_when_they_go_on_all_is_well_and_the_next_hang_is_announced_anew() -> None:
    told = Job()
    told.say(0, 1, 2, 3, step=7, process=WAITS)
    told.look()
    told.say(0, 1, 2, 3, stalled=False, step=8)
    assert told.look() == Hang()
    assert (told.before.rendezvous.stalled, told.condition) == (0, "True WithinDeadline")
    told.say(0, 1, 2, 3, step=9, process=WAITS)
    told.look()
    assert len(told.news) == 2


def test_what_was_said_of_another_round_does_not_count() -> None:
    told = Job()
    told.say(0, 1, 2, 3, round=2, step=7, process=STOPPED)
    assert told.look() == Hang()


@pytest.mark.parametrize("phase", [RendezvousPhase.FORMING, RendezvousPhase.CLOSED])
def test_no_other_phase_hangs(phase: RendezvousPhase) -> None:
    told = Job(replace(STATE, phase=phase))
    told.say(0, 1, 2, 3, step=7, process=STOPPED)
    assert told.look() == Hang()


def test_without_a_deadline_nothing_hangs() -> None:
    told = Job(progressDeadlineSeconds=None)
    told.say(0, 1, 2, 3, step=7, process=STOPPED)
    assert told.look() == Hang()
    assert all(one.type != "Progressing" for one in told.before.conditions)


def test_the_finished_are_not_waited_for() -> None:
    told = Job(replace(STATE, finished=(Member(3, "a"),)))
    told.say(0, 1, 2, step=7, process=WAITS)
    assert told.look().sentence != ""


def test_an_operator_that_begins_gives_the_time_to_answer_anew_and_announces_nothing_twice() -> None:
    told = Job()
    told.say(0, step=7)
    told.look()
    told.look(after=PATIENCE - 1)
    told.hangs = Hangs()
    assert (told.look().sentence, told.hang.again) == ("", PATIENCE)
    told.look(after=PATIENCE)
    assert len(told.news) == 1
    told.hangs, condition = Hangs(), told.condition
    for after in (0, PATIENCE):
        told.look(after)
        assert (told.condition, len(told.news)) == (condition, 1)


def test_another_operator_does_not_announce_again() -> None:
    told = Job()
    told.say(0, 1, 2, 3, step=7, process=WAITS)
    told.look()
    told.hangs = Hangs()
    told.look()
    assert len(told.news) == 1


@pytest.mark.parametrize(
    ("zero", "others", "named"),
    [
        (STOPPED, WAITS, "worker 0's training process is stopped"),
        (STOPPED, COMPUTES, "worker 0's training process is stopped"),
        (BLOCKED, WAITS, "worker 0's training process waits in the kernel, for a disk or a device"),
        (COMPUTES, WAITS, "worker 0's training process computes while others wait"),
        (WAITS, COMPUTES, "none of them lags behind the others"),  # who waits for a GPU or by polling may compute
        (WAITS, WAITS, "none of them lags behind the others"),
        (COMPUTES, COMPUTES, "none of them lags behind the others"),
        (UNKNOWN, WAITS, "none of them lags behind the others"),
        (COMPUTES, UNKNOWN, "none of them lags behind the others"),
    ],
)
def test_who_is_named_by_what_its_process_does(zero: ProcessState, others: ProcessState, named: str) -> None:
    assert of(zero=zero, others=others) == f"{named}; all at step 7"


def test_one_of_two_is_named_too() -> None:
    told = Job(replace(STATE, participants=STATE.participants[:2]))
    told.say(0, step=7, process=COMPUTES, local_rank=3)
    told.say(1, step=8, process=WAITS)
    named = "worker 0's training process (local rank 3) computes while others wait; at steps 7 to 8"
    assert told.look().sentence.endswith(named)


def test_few_that_are_behind_are_named_and_many_are_not() -> None:
    """Who waits in a collective may be one step behind the one that hangs."""
    told = Job()
    told.say(0, 1, 2, step=8, process=WAITS)
    told.say(3, step=7, process=WAITS, waits=0.034)
    assert told.look().sentence.endswith("worker 3 is at step 7 (it waits 3% of its time), the others at step 8")
    told.say(1, 2, step=7, process=WAITS)
    assert told.look().sentence.endswith("none of them lags behind the others; at steps 7 to 8")


def test_many_are_named_in_few_words() -> None:
    told = Job()
    told.say(0, 1, 2, 3, process=STOPPED)
    assert told.look().sentence.count("is stopped") == 3
    assert told.hang.sentence.endswith("worker 2's training process is stopped and 1 more")


@pytest.mark.parametrize(("policy", "hung"), [("Report", []), ("Restart", [2])])
def test_the_round_is_restarted_for_who_lags_if_the_job_says_so(policy: str, hung: list[int]) -> None:
    told = Job(hangPolicy=policy)
    told.look()
    assert told.workers is WORKERS
    told.say(0, 1, 2, 3, process=WAITS)
    told.say(2, process=STOPPED)
    told.look()
    assert [one.index for one in told.workers if one.hung] == hung
    assert {one.hung for one in told.workers} <= {"", told.hang.sentence}


def test_where_nobody_lags_it_is_restarted_all_the_same() -> None:
    told = Job(hangPolicy="Restart")
    told.say(0, 1, 2, 3, step=7, process=WAITS)
    told.look()
    assert [one.index for one in told.workers if one.hung] == [0]


def test_the_question_ends_with_the_round() -> None:
    told = Job()
    told.say(0, 1, 2, 3, step=7, process=WAITS)
    told.look()
    told.state = replace(STATE, phase=RendezvousPhase.FORMING, round=4)
    told.agree()
    assert told.before.rendezvous.stalled == 0
    assert told.look().asked == StallQuestion()
    assert told.condition == "True WithinDeadline"
