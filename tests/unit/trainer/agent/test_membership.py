# SPDX-License-Identifier: Apache-2.0
"""One agent's membership: which cause it gives, what it reports as changed, and how it ends."""

import gc
import logging
import re
import threading
import time
from dataclasses import replace

import pytest

from elasticjob_torch import wire
from elasticjob_torch.agent import state_machine
from elasticjob_torch.agent.membership import AgentMembership
from elasticjob_torch.agent.settings import parse_settings
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.sidecar import client
from elasticjob_torch.sidecar.calls import Interrupted
from elasticjob_torch.sidecar.errors import Closed, Leaving, NewProcesses, RoundBroken, SidecarUnavailable
from elasticjob_torch.wire import ProcessState
from support.trainer_sidecar import DEADLINE, RUN_ID, handed, refusal
from support.waiting import wait_until

JOIN = "POST /v1/rendezvous"


def make(sidecar, run_id=RUN_ID, **config):
    return AgentMembership(parse_settings(f"127.0.0.1:{sidecar.port}", run_id, {"sidecar_timeout": DEADLINE, **config}))


@pytest.fixture
def member(sidecar):
    membership = make(sidecar)
    membership.open()
    yield membership
    membership.end(stopped=True)


def enter(sidecar, member, number):
    """Join round `number`, take it into use and see its view."""
    sidecar.answers[JOIN] = [handed(number)]
    member.use(member.join())
    sidecar.tell(round=number, phase="Formed", handed=number, changed=False)
    await_view(member, lambda view: view.round == number)


def await_view(member, condition):
    wait_until("the view", lambda: member.view is not None and condition(member.view), seen=lambda: member.view)


def test_a_view_is_out_of_date_while_the_sidecar_or_the_api_server_is_not_heard(sidecar, member):
    enter(sidecar, member, 1)
    assert member.present_view is member.view
    sidecar.tell(round=1, phase="Formed", handed=1, apiServerAway=True)
    await_view(member, lambda view: view.api_away)
    assert member.present_view is None
    sidecar.tell(apiServerAway=False)
    wait_until("the API server to be heard", lambda: member.present_view)
    sidecar.stop()
    wait_until("the end of the stream", lambda: member.present_view is None)
    assert member.view.round == 1


@pytest.mark.parametrize(
    ("news", "over"),
    [
        ({"ended": True}, True),
        ({"closed": True, "outcome": "Complete"}, True),
        ({"closed": True, "outcome": "Failed"}, True),
        ({"closed": True, "outcome": "Closed"}, False),
        ({}, False),
    ],
)
def test_nobody_is_awaited_once_no_member_trains_or_the_job_has_ended(sidecar, member, news, over):
    enter(sidecar, member, 1)
    sidecar.tell(round=1, phase="Formed", handed=1, worldSize=2, **news)
    await_view(member, lambda view: view.world_size == 2)
    assert member.is_over() is over


def causes(sidecar):
    return [(body["after"], body["cause"]) for body in sidecar.said(JOIN)]


def test_the_first_join_is_a_start(sidecar, member):
    enter(sidecar, member, 3)
    assert causes(sidecar) == [(0, "Started")]
    assert member.notice_change() == 0


def test_a_join_names_the_limits_in_place_of_the_jobs(sidecar):
    membership = make(sidecar, last_call_timeout="5", keep_alive_max_attempt="4")
    membership.open()
    enter(sidecar, membership, 3)
    (said,) = sidecar.said(JOIN)
    assert (said["lastCall"], said["workerLost"]) == (5, 20)
    membership.end(stopped=True)


def test_a_change_that_was_reported_is_the_cause(sidecar, member):
    enter(sidecar, member, 1)
    sidecar.tell(round=2, phase="Forming", waiting=3)
    await_view(member, lambda view: view.round == 2)
    assert member.notice_change() == 3
    enter(sidecar, member, 2)
    assert causes(sidecar) == [(0, "Started"), (1, "MembershipChanged")]
    assert member.notice_change() == 0


def test_without_a_change_the_worker_failed(sidecar, member):
    enter(sidecar, member, 1)
    enter(sidecar, member, 2)
    assert causes(sidecar) == [(0, "Started"), (1, "WorkerFailed")]


def test_news_that_nobody_asked_for_count(sidecar, member):
    enter(sidecar, member, 1)
    sidecar.tell(round=2, phase="Forming")
    await_view(member, lambda view: view.round == 2)
    enter(sidecar, member, 2)
    assert causes(sidecar) == [(0, "Started"), (1, "MembershipChanged")]


def test_a_round_that_was_given_up_is_not_asked_for_again(sidecar, member):
    sidecar.answers[JOIN] = [handed(1), handed(2)]
    member.give_up(member.join())
    member.use(member.join())
    assert causes(sidecar) == [(0, "Started"), (1, "WorkerFailed")]


def test_an_interrupted_join_asks_for_the_same_round(sidecar, member):
    sidecar.answers[JOIN] = [handed(1), handed(1)]
    assert member.join() == member.join()
    assert causes(sidecar) == [(0, "Started"), (0, "Started")]


def test_a_victim_leaves_without_blame(sidecar, member):
    enter(sidecar, member, 1)
    sidecar.tell(leaving=True)
    await_view(member, lambda view: view.leaving)
    assert member.notice_change() == 1
    sidecar.answers[JOIN] = [refusal(410, "Leaving")]
    with pytest.raises(Leaving):
        member.join()
    assert member.end()
    assert [body["cause"] for body in sidecar.said("POST /v1/leave")] == ["ToldToLeave"]


def test_a_close_is_only_asked_once_the_sidecar_knows_this_trainer(sidecar):
    with pytest.raises(SidecarUnavailable, match="event stream did not open"):
        make(sidecar, sidecar_timeout="0.2").close()
    assert sidecar.said("POST /v1/close") == []
    membership = make(sidecar)
    membership.open()
    membership.close()
    assert len(sidecar.said("POST /v1/close")) == 1
    membership.end(stopped=True)


def test_closed_tells_how(sidecar, member):
    sidecar.answers[JOIN] = [refusal(410, "Closed", "all workers have finished", outcome="Complete")]
    with pytest.raises(Closed, match="all workers have finished") as caught:
        member.join()
    assert caught.value.outcome == "Complete"


def test_failure_is_a_leave(sidecar, member):
    enter(sidecar, member, 1)
    assert member.end()
    assert [body["cause"] for body in sidecar.said("POST /v1/leave")] == ["TrainerLeft"]
    sidecar.await_(lambda: sidecar.streams == 0, "the end of the stream")


def test_success_is_told_once(sidecar, member):
    enter(sidecar, member, 4)
    assert member.finish()
    assert member.end()
    assert [body["round"] for body in sidecar.said("POST /v1/finish")] == [4]
    assert sidecar.said("POST /v1/leave") == []


def test_success_that_was_not_recorded_is_told_again(sidecar, member):
    enter(sidecar, member, 4)
    sidecar.answers["POST /v1/finish"] = [refusal(504, "ApiServerAway")]
    assert not member.finish()
    assert member.end()
    assert len(sidecar.said("POST /v1/finish")) == 2


@pytest.mark.parametrize(("end", "path"), [("finish", "POST /v1/finish"), ("end", "POST /v1/leave")])
def test_the_end_is_told_to_a_sidecar_that_has_just_started(sidecar, member, end, path):
    """It knows this trainer as soon as the stream is open again."""
    enter(sidecar, member, 4)
    sidecar.answers[path] = [refusal(409, "NoTrainer"), refusal(409, "NoTrainer")]
    assert getattr(member, end)()
    assert len(sidecar.said(path)) == 3


def test_the_end_of_one_that_was_replaced_is_told_once(sidecar, member):
    enter(sidecar, member, 4)
    sidecar.answers["POST /v1/finish"] = [refusal(409, "Superseded")]
    assert not member.finish()
    assert len(sidecar.said("POST /v1/finish")) == 1


def test_success_is_only_what_was_told(sidecar, member):
    """A later round is another work, and no exception tells of its failure."""
    enter(sidecar, member, 4)
    assert member.finish()
    enter(sidecar, member, 5)
    assert member.end()
    assert [body["cause"] for body in sidecar.said("POST /v1/leave")] == ["TrainerLeft"]


def test_the_end_is_told_once(sidecar, member):
    enter(sidecar, member, 1)
    sidecar.answers["POST /v1/leave"] = [refusal(504, "ApiServerAway")]
    assert [member.end(), member.end(stopped=True)] == [False, False]
    assert len(sidecar.said("POST /v1/leave")) == 1


def test_a_membership_that_is_dropped_lets_the_sidecar_go(sidecar):
    dropped = make(sidecar)
    dropped.open()
    sidecar.await_(lambda: sidecar.streams == 1, "the stream")
    del dropped
    gc.collect()
    sidecar.await_(lambda: sidecar.streams == 0, "the end of the stream")


def test_a_stop_by_signal_announces_nothing(sidecar, member):
    enter(sidecar, member, 1)
    assert member.end(stopped=True)
    assert sidecar.said("POST /v1/leave") == []


def test_the_end_never_raises(sidecar):
    member = make(sidecar, close_timeout="0.2")
    member.open()
    sidecar.stop()
    assert not member.end()


def test_a_join_is_asked_again(sidecar, member):
    sidecar.answers[JOIN] = [refusal(504, "JoinTimeout"), refusal(409, "NoTrainer"), handed(1)]
    assert member.join().number == 1


def test_a_join_survives_a_restart_of_the_sidecar(sidecar, member):
    enter(sidecar, member, 1)
    sidecar.stop()
    sidecar.answers[JOIN] = [handed(2)]
    sidecar.start()
    assert member.join().number == 2


@pytest.fixture
def impatient(member):
    """It has found its sidecar, and waits no longer than half a second for it from now on."""
    member._settings = replace(member._settings, sidecar_timeout=0.5)
    return member


def test_a_sidecar_that_keeps_refusing_is_an_error(sidecar, impatient):
    sidecar.default = lambda path: refusal(409, "NoTrainer", "the pod is being stopped") if path == JOIN else (204, {})
    with pytest.raises(SidecarUnavailable, match=r"refuses a join, for [0-9.]+ s: the pod is being stopped"):
        impatient.join()


@pytest.fixture
def answer_joins(sidecar, monkeypatch):
    """Let a join be answered when a condition holds, and its waiting be told often."""
    monkeypatch.setattr(client, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(state_machine, "_LOG_SECONDS", 0.05)
    over = threading.Event()

    def answer_when(condition):
        def answer(path):
            while path == JOIN and not condition() and not over.is_set():
                sidecar.changed.wait(0.01)
            return handed(1) if path == JOIN else (204, {})

        sidecar.default = answer

    yield answer_when
    over.set()


def test_what_a_join_waits_for_is_told(sidecar, member, answer_joins, caplog):
    caplog.set_level("INFO")
    told = re.compile(r"waiting for a round for \d+ s: the job is at Forming 3, scaled from 2 to 3")
    answer_joins(lambda: any(map(told.fullmatch, list(caplog.messages))))
    sidecar.tell(round=3, phase="Forming", reason="scaled from 2 to 3")
    await_view(member, lambda view: view.round == 3)
    assert member.join().number == 1
    assert any(map(told.fullmatch, caplog.messages))


def test_a_sidecar_that_falls_silent_ends_a_join(sidecar, impatient, answer_joins):
    """It has taken the join, and ends before it has answered."""
    asked = threading.Event()

    def never():
        asked.set()
        return False

    answer_joins(never)
    await_view(impatient, lambda _: True)
    silent = threading.Thread(target=lambda: asked.wait(DEADLINE) and sidecar.stop())
    silent.start()
    with pytest.raises(SidecarUnavailable, match=r"the sidecar's event stream did not open within 0\.5 s"):
        impatient.join()


def test_no_sidecar_is_one_sentence(sidecar):
    sidecar.stop()
    with pytest.raises(CannotRunHere, match=r"no ElasticJob sidecar at 127.0.0.1:\d+ .*--rdzv-backend$"):
        make(sidecar, sidecar_timeout="0.2").open()


def test_a_sidecar_that_starts_slowly_is_waited_for_and_that_is_logged_once(sidecar, caplog):
    caplog.set_level(logging.INFO, "elasticjob_torch")
    sidecar.stop()
    member = make(sidecar, sidecar_timeout=DEADLINE)
    opening = threading.Thread(target=member.open)
    opening.start()
    wait_until("the sentence", lambda: caplog.messages)
    sidecar.start()
    opening.join(DEADLINE)
    assert not opening.is_alive()
    address = f"127.0.0.1:{sidecar.port}"
    assert caplog.messages == [f"no sidecar answers at {address} yet; waiting for at most {DEADLINE:g} s"]
    member.end(stopped=True)


def test_another_jobs_sidecar_is_one_sentence(sidecar):
    with pytest.raises(CannotRunHere, match=f"run id {RUN_ID}, but torchrun was started with --rdzv-id=mine"):
        make(sidecar, run_id="mine").open()


def test_a_successor_in_the_pod_is_one_sentence(sidecar):
    sidecar.answers["GET /v1/rendezvous/events"] = [refusal(409, "Superseded")]
    with pytest.raises(CannotRunHere, match="a newer torchrun"):
        make(sidecar).open()


def test_another_that_lives_is_one_sentence(sidecar):
    sidecar.answers["GET /v1/rendezvous/events"] = [refusal(409, "TrainerLives", "the process 17 takes part")]
    with pytest.raises(CannotRunHere, match=r"^the process 17 takes part$"):
        make(sidecar).open()
    assert len(sidecar.said("GET /v1/rendezvous/events")) == 1
    assert sidecar.said(JOIN) == []


def test_a_sidecar_whose_stream_does_not_open_is_one_sentence(sidecar):
    sidecar.answers["GET /v1/rendezvous/events"] = [refusal(409, "NoTrainer")] * 99
    with pytest.raises(CannotRunHere, match=r"the sidecar at 127.0.0.1:\d+ does not serve: .* within 0.2 s$"):
        make(sidecar, sidecar_timeout="0.2").open()


def test_one_that_was_replaced_in_its_round_is_told_that_the_round_is_over(sidecar, member):
    """Perhaps it was stopped for a while; by its last view it would train on for ever, beside the other."""
    enter(sidecar, member, 1)
    sidecar.stop()
    sidecar.answers["GET /v1/rendezvous/events"] = [refusal(409, "Superseded")]
    sidecar.start()
    wait_until("the end of the round", lambda: member.has_ended(1))
    assert member.notice_change() == 1
    with pytest.raises(CannotRunHere, match="a newer torchrun"):
        member.join()


def test_the_store_is_awaited_through_time_outs(sidecar, member, caplog):
    caplog.set_level("INFO")
    sidecar.answers[JOIN] = [handed(1)]
    round_1 = member.join()
    late = refusal(504, "StoreTimeout", "rank 0 is late")
    sidecar.answers["GET /v1/store"] = [late, (200, {"host": "127.0.0.1", "port": 27400})]
    assert member.await_store(round_1, time.monotonic() + DEADLINE).port == 27400
    assert "still waiting: rank 0 is late" in caplog.messages
    sidecar.default = lambda path: late
    with pytest.raises(RoundBroken, match="the store of round 1 did not come: rank 0 is late"):
        member.await_store(round_1, time.monotonic() + 0.05)


def test_a_store_that_does_not_come_breaks_the_round(sidecar, member):
    sidecar.answers[JOIN] = [handed(1)]
    round_1 = member.join()
    with pytest.raises(RoundBroken, match="the store of round 1 did not come"):
        member.await_store(round_1, time.monotonic())
    sidecar.tell(round=2, phase="Forming")
    await_view(member, lambda view: view.round == 2)
    with pytest.raises(RoundBroken, match="round 1 ended"):
        member.await_store(round_1, time.monotonic() + DEADLINE)


@pytest.mark.parametrize(
    ("outcome", "over"), [("Complete", True), ("Failed", True), ("Closed", False), ("RendezvousTimeout", False)]
)
def test_an_explicit_close_lets_the_round_train_on(sidecar, member, outcome, over):
    enter(sidecar, member, 1)
    sidecar.tell(phase="Closed", closed=True, outcome=outcome)
    await_view(member, lambda view: view.closed)
    assert member.is_over() is over
    assert member.notice_change() == 0


def test_what_the_script_imports_is_told_for_the_next_pods(sidecar, member):
    assert member.tell_imports(["torch", "sklearn.datasets"])
    assert sidecar.said("POST /v1/imports") == [{"imports": ["torch", "sklearn.datasets"]}]


def test_a_sidecar_that_does_not_take_it_is_no_harm(sidecar, member, caplog):
    caplog.set_level("INFO", "elasticjob_torch")
    sidecar.default = lambda path: refusal(400, "BadRequest", "imports: no")
    assert member.tell_imports(["torch"])  # it would refuse that again
    sidecar.stop()
    member._client.patience = 0.2
    assert not member.tell_imports(["torch"])
    sentence = "the job's next pods are not told what the script imports: "
    assert f"{sentence}imports: no" in caplog.messages
    assert caplog.messages[-1].startswith(f"{sentence}nothing answers at")


def test_what_the_processes_do_is_told_and_a_sidecar_that_does_not_take_it_is_no_harm(sidecar, member, caplog):
    caplog.set_level("INFO", "elasticjob_torch")
    member.tell_processes(3, ProcessState.STOPPED, 1)
    (said,) = sidecar.said("POST /v1/processes")
    assert (said["round"], said["state"], said["local_rank"]) == (3, ProcessState.STOPPED, 1)
    sidecar.default = lambda path: refusal(409, "RoundBroken", "round 3 is over")
    member.tell_processes(3, ProcessState.STOPPED, 1)
    assert caplog.messages[-1] == "the sidecar is not told what the training processes do: round 3 is over"


# --- processes that live through changes


def test_a_join_says_whether_the_processes_run_on(sidecar, member):
    sidecar.answers[JOIN] = [handed(1), handed(2)]
    member.use(member.join())
    member.join(is_void=lambda: False, live=True)
    assert [body.get("live", False) for body in sidecar.said(JOIN)] == [False, True]


def test_a_join_ends_with_a_process_that_was_to_live_on(sidecar, member):
    waits, ended = threading.Event(), []

    def answer(path):
        waits.wait(DEADLINE)
        return refusal(409, "NoTrainer")

    sidecar.default = answer
    # without the sidecar's lock, which its answer holds
    threading.Thread(target=lambda: (wait_until("the join", lambda: sidecar.said(JOIN)), ended.append(1))).start()
    try:
        with pytest.raises(Interrupted):
            member.join(is_void=lambda: bool(ended), live=True)
    finally:
        waits.set()
    time.sleep(0.3)  # the join that was abandoned asks no more
    assert len(sidecar.said(JOIN)) == 1


def test_news_end_a_join_that_they_make_void(sidecar, member):
    waits, void, late = threading.Event(), [], []

    def answer(path):
        if not waits.wait(DEADLINE):
            late.append(1)
        return refusal(409, "NoTrainer")

    def tell():
        wait_until("the join", lambda: sidecar.said(JOIN))  # without the sidecar's lock, which its answer holds
        void.append(1)
        member.updated.ring()  # as at each view; the sidecar that answers sends none here

    sidecar.default = answer
    telling = threading.Thread(target=tell)
    telling.start()
    try:
        with pytest.raises(Interrupted):
            member.join(is_void=lambda: bool(void))
    finally:
        waits.set()
        telling.join()
    assert not late


def test_a_join_can_become_void_while_the_sidecar_is_away(sidecar):
    member, asked = make(sidecar, sidecar_timeout=2 * DEADLINE), threading.Event()
    member.open()
    sidecar.default = lambda path: asked.set() or refusal(503, "Unavailable")
    away = threading.Thread(target=lambda: asked.wait(DEADLINE) and sidecar.stop())
    away.start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        member.join(is_void=lambda: asked.is_set() and not member._events.connected.is_set(), live=True)
    assert time.monotonic() - began < DEADLINE
    away.join()
    member.end(stopped=True)


def test_processes_that_have_to_be_new_are_told_apart(sidecar, member):
    sidecar.answers[JOIN] = [refusal(409, "NewProcesses")]
    with pytest.raises(NewProcesses):
        member.join(is_void=lambda: False, live=True)


@pytest.mark.parametrize("told", [False, True])
def test_a_failure_is_told_when_the_worker_steps_out_and_not_again(sidecar, member, told):
    enter(sidecar, member, 1)
    if told:
        sidecar.tell(round=2, phase="Forming")
        await_view(member, lambda view: view.round == 2)
    member.step_out(wire.Failure("rank 1, exit code 3", 3, wire.FailureKind.EXIT_CODE))
    (left,) = sidecar.said("POST /v1/leave")
    cause = "MembershipChanged" if told else "WorkerFailed"
    assert (left["cause"], left["detail"], left["exitCode"]) == (cause, "rank 1, exit code 3", 3)
    enter(sidecar, member, 3)
    joined = sidecar.said(JOIN)[-1]
    assert (joined["cause"], joined.get("detail")) == ("MembershipChanged", None)


def test_a_leave_that_is_not_taken_leaves_the_failure_to_the_join(sidecar, member):
    enter(sidecar, member, 1)
    sidecar.answers["POST /v1/leave"] = [refusal(400, "BadRequest")]
    member.step_out(wire.Failure("rank 1, exit code 3", 3, wire.FailureKind.EXIT_CODE))
    enter(sidecar, member, 2)
    assert causes(sidecar)[-1] == (1, "WorkerFailed")


def test_what_lives_is_told_and_a_refusal_is_not_raised(sidecar, member):
    enter(sidecar, member, 4)
    assert member.tell_live(4)
    sidecar.answers["POST /v1/live"] = [refusal(409, "RoundBroken"), refusal(409, "NoTrainer")]
    assert member.tell_live(4)  # and never will be taken
    assert not member.tell_live(4)
    assert [body["round"] for body in sidecar.said("POST /v1/live")] == [4, 4, 4]
