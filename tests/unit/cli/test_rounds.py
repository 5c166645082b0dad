# SPDX-License-Identifier: Apache-2.0
"""The time line of a job, what counted, and what its members do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from elasticjob.objects import Object
from elasticjob_cli.output.console import plain
from elasticjob_cli.output.documents import report
from elasticjob_cli.output.views import history_view, status_view
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.members import Rates, members_of
from elasticjob_cli.reading.rounds import FormedRound, goodput, rounds_of
from elasticjob_cli.reading.times import age, length
from elasticjob_cli.reading.words import names
from support.cli_jobs import NOW, ago, blocker, condition, formed, forming, joins, pod, record, scene


def kept(number: int, formed_ago: float, after: float, cause: str = "Scaled", **more: object) -> Object:
    words = {"cause": cause, "reason": f"why it was {cause}"}
    return {"round": number, "size": 2, "seconds": after, "time": ago(formed_ago)} | words | more


def lost(cause: str, seconds: float, message: str = "worker 0 lost") -> Object:
    about = {"kind": "ElasticJob", "name": "digits"}
    return {
        "metadata": {"annotations": {"elasticjob.io/cause": cause}},
        "involvedObject": about,
        "reason": "WorkerLost",
        "message": message,
        "eventTime": ago(seconds),
        "lastTimestamp": f"{ago(seconds)[:19]}Z",
    }


HISTORY = [kept(1, 900, 20, "FirstFormation"), kept(2, 500, 10), kept(3, 100, 4, "WorkerFailed")]


def standing(**more: object) -> Look:
    return formed([0, 1], number=3, history=HISTORY, **more)


def test_a_round_lasts_until_the_next_is_opened() -> None:
    assert [(one.number, one.formed_after, one.lasted) for one in rounds_of(standing())] == [
        (1, 20, 390),
        (2, 10, 396),
        (3, 4, 100),
    ]


def test_goodput_since_the_start() -> None:
    found = goodput(standing(), rounds_of(standing()))
    assert found is not None
    assert (found.trained, found.lost, found.whole) == (886, 34, True)
    assert found.share == pytest.approx(886 / 920)


def test_processes_that_start_are_no_goodput() -> None:
    """A round of a job that tells of its starts, and has told nothing, has ended before it trained."""
    history = [kept(1, 900, 20, started=90), kept(2, 500, 10), kept(3, 100, 4, started=30)]
    seen = formed([0, 1], number=3, history=history)
    assert [one.starting for one in rounds_of(seen)] == [90, 396, 30]
    found = goodput(seen, rounds_of(seen))
    assert found is not None
    assert (found.trained, found.starting, found.lost) == (370, 516, 34)
    assert "trained for 6 min 10 s (40.2 %), started processes for 8 min 36 s and lost 34 s" in plain(
        status_view(seen, {})
    )


def test_so_far_a_round_that_starts_has_not_trained() -> None:
    starting = standing(starting=True)
    assert [one.starting for one in rounds_of(starting)] == [None, None, 100]
    assert {one.state for one in members_of(starting, {})} == {"starts"}


def test_what_containers_do_after_success_is_neither_trained_nor_lost() -> None:
    """In a round, and between two stages."""
    history = [kept(1, 900, 20, started=90, succeeded=100), kept(2, 500, 10, "NextStage", started=0, succeeded=30)]
    seen = formed([0, 1], number=2, history=history)
    assert [(one.starting, one.finishing) for one in rounds_of(seen)] == [(90, 290), (0, 470)]
    found = goodput(seen, rounds_of(seen))
    assert found is not None
    assert (found.trained, found.starting, found.finishing, found.lost) == (40, 90, 770, 20)
    assert found.share == pytest.approx(40 / 150)
    assert "waited for containers after success for 12 min 50 s and lost 20 s" in plain(status_view(seen, {}))
    waits = forming(joined=[0], history=history, rendezvous={"cause": "NextStage", "stage": 3})
    later = goodput(waits, rounds_of(waits))
    assert later is not None
    assert later.lost == 20


def test_a_change_of_the_stage_is_a_round_that_counts_as_no_failure() -> None:
    seen = formed([0, 1], number=2, history=[kept(2, 500, 10, "NextStage")], rendezvous={"stage": 2})
    told = plain(history_view(seen))
    assert "NextStage   why it was NextStage   it does not count as a failure" in told
    assert ", stage 2, restarts 0 of 3" in plain(status_view(seen, {}))
    assert report(seen, {})["stage"] == 2


def test_how_many_members_live_through_changes_is_told_where_any_does() -> None:
    seen = formed([0, 1, 2], rendezvous={"live": "0-1"})
    assert "3 workers (at least 1), 2 of them live through changes, restarts" in plain(status_view(seen, {}))
    assert "live through" not in plain(status_view(formed([0, 1]), {}))


@pytest.mark.parametrize(
    ("active", "told", "seconds"),
    [
        ({"seconds": 500, "since": ago(100)}, ", active for 10 min of 60 min", 600),
        ({"seconds": 500}, ", active for 8 min 20 s of 60 min", 500),
    ],
    ids=["active", "suspended"],
)
def test_how_much_of_its_time_a_job_was_active_is_told(active: Object, told: str, seconds: int) -> None:
    seen = formed([0], spec={"activeDeadlineSeconds": 3600}, active=active)
    assert told in plain(status_view(seen, {}))
    assert report(seen, {})["activeSeconds"] == seconds
    assert "active for" not in plain(status_view(formed([0], active=active), {}))


def test_goodput_of_a_job_whose_first_rounds_are_not_kept() -> None:
    """What was lost before the oldest round that is kept is before the time of which is spoken."""
    seen = formed([0, 1], number=3, history=HISTORY[1:])
    found = goodput(seen, rounds_of(seen))
    assert found is not None
    assert (found.trained, found.lost, found.whole) == (496, 4, False)
    assert "Since the oldest round that its status keeps it trained for 8 min 16 s" in plain(history_view(seen))


def test_time_is_lost_while_a_round_forms_but_not_while_suspended() -> None:
    agreed = {"round": 4, "phase": "Forming", "participants": "0/ab.0"}
    told = [condition("Rendezvoused", "False", 40)]
    for suspend, seconds in ((False, 74), (True, 34)):
        status = {"rendezvous": agreed, "history": HISTORY, "conditions": told}
        seen = look(scene({"replicas": 2, "suspend": suspend}, status))
        found = goodput(seen, rounds_of(seen))
        assert found is not None
        assert (found.trained, found.lost) == (846, seconds)


def last_round(*events: Object, **more: object) -> FormedRound:
    history = [*HISTORY[:2], kept(3, 100, 4, **more)]  # type: ignore[arg-type]
    status = {"rendezvous": {"round": 3, "phase": "Formed"}, "history": history}
    return rounds_of(look(scene({"replicas": 2}, status, events=list(events))))[-1]


@pytest.mark.parametrize(
    ("cause", "counted", "loss", "why"),
    [
        ("WorkerFailed", True, "PodFailed", "it counts as a failure"),
        ("WorkerFailed", False, "Unresponsive", "the loss explains it: worker 0 lost"),
        ("TrainerHung", False, "PodDeleted", "the loss explains it: worker 0 lost"),
        ("PodFailed", False, "PodFailed", "it does not count as a failure"),
        ("PodDeleted", True, "PodDeleted", "it counts as a failure"),
        ("WorkerFailed", False, "PodFailed", "it does not count as a failure"),
        ("PodDeleted", False, "PodDeleted", "it does not count as a failure"),
    ],
)
def test_whether_a_failure_counted_and_why(cause: str, counted: bool, loss: str, why: str) -> None:
    found = last_round(lost(loss, 101), cause=cause, counted=counted)
    assert (found.cause, found.counted, found.why) == (cause, counted, why)


def test_the_first_of_two_losses_in_one_second_explains_a_failure() -> None:
    losses = lost("Unresponsive", 100.2, "the second"), lost("Unresponsive", 100.8, "the first")
    assert last_round(*losses, cause="WorkerFailed", counted=False).why == "the loss explains it: the first"


def test_a_loss_of_another_time_explains_nothing() -> None:
    assert last_round(lost("Unresponsive", 300), cause="WorkerFailed").why == "it does not count as a failure"


def test_members_are_in_rank_order_and_others_after_them() -> None:
    seen = formed([2, 0], spec={"replicas": 4}, pods=[pod(1)], records=[record(1, joins(4))])
    assert [(one.rank, one.worker, one.pod, one.node, one.state) for one in members_of(seen, {})] == [
        (0, 2, "digits-2-0", "node-2", "trains"),
        (1, 0, "digits-0-0", "node-0", "trains"),
        (None, 1, "digits-1-0", "node-1", "has joined"),
        (None, 3, "", "", "no pod"),
    ]


STALLED = {"round": 4, "stalled": True, "step": 7}


def stalling(stall: Object, *, hangs: bool = False, **rendezvous: object) -> Look:
    """Worker 1 says that of itself; `hangs`: the operator says it of the training."""
    said = record(1, joins(3), step=3, waits=0.031, stall=stall)
    hung = [blocker("ProgressDeadlineExceeded", "no member has reported for 60 s")] * hangs
    whole = formed([0, 1], rendezvous={"stalled": 4, **rendezvous}, blockers=hung)
    return look(replace(whole.scene, records=(whole.scene.records[0], said)))


@pytest.mark.parametrize(
    ("stall", "state"),
    [
        (STALLED, "takes no steps"),
        (STALLED | {"process": "Stopped"}, "takes no steps: its process is stopped"),
        (STALLED | {"process": "Unknown"}, "takes no steps"),
        (STALLED | {"stalled": False}, "trains"),
        (STALLED | {"round": 3}, "trains"),
    ],
)
def test_who_takes_no_steps_and_what_its_process_does(stall: Object, state: str) -> None:
    assert [one.state for one in members_of(stalling(stall), {})] == ["trains", state]


@pytest.mark.parametrize(
    ("stall", "state"),
    [
        ({"process": "Stopped"}, "takes no steps: its process is stopped"),
        ({}, "takes no steps"),
        ({"round": 3, "process": "Stopped"}, "trains"),
    ],
)
def test_of_one_that_never_reports_it_is_said_once_the_training_hangs(stall: Object, state: str) -> None:
    silent = {"round": 4, "stalled": False} | stall
    assert members_of(stalling(silent, hangs=True), {})[1].state == state
    assert members_of(stalling(silent), {})[1].state == "trains"


def test_nobody_is_said_to_hang_where_the_operator_does_not_ask() -> None:
    assert members_of(stalling(STALLED, stalled=0), {})[1].state == "trains"


def test_the_share_that_workers_wait_has_a_column_where_one_reports_it() -> None:
    lines = plain(status_view(stalling(STALLED), {})).splitlines()
    assert next(line for line in lines if "WAITS" in line).split() == [
        *("RANK", "WORKER", "POD", "NODE", "STEP", "RATE", "WAITS", "AGE", "STATE"),
    ]
    assert next(line for line in lines if "digits-1-0" in line).split()[4:7] == ["3", "-", "3%"]
    assert "WAITS" not in plain(status_view(standing(), {}))


def test_the_nodes_on_which_workers_have_failed_have_a_table() -> None:
    once = {"node": "node-4", "failures": 1, "pod": "digits-4-0", "round": 2, "time": ago(60)}
    twice = once | {"node": "node-1", "failures": 2, "pod": "digits-1-0", "avoidedUntil": "2026-01-02T05:04:05Z"}
    scene = standing().scene
    status = scene.job["status"] | {"nodeFailures": [once, twice]}
    seen = look(replace(scene, job=scene.job | {"status": status}))
    lines = [line.split() for line in plain(status_view(seen, {})).splitlines()]
    at = lines.index(["NODE", "FAILURES", "LAST", "AVOIDED", "UNTIL"])
    assert lines[at + 1] == ["node-1", "2", "digits-1-0", "2026-01-02T05:04:05Z"]
    assert lines[at + 2][:3] == ["node-4", "1", "digits-4-0"]
    assert [one["node"] for one in report(seen, {})["nodeFailures"]] == ["node-4", "node-1"]
    assert "FAILURES" not in plain(status_view(standing(), {}))


def test_the_failure_that_ended_a_job_is_told_as_no_round_was_formed_after_it() -> None:
    why = "worker 1's processes failed (rank 1, SIGKILL): failure 2, and maxRestarts is 1"
    failed = {"phase": "Closed", "outcome": "Failed", "reason": why}
    seen = formed([0, 1], number=4, history=HISTORY, spec={"maxRestarts": 1}, rendezvous=failed, restarts=2)
    told = f"2 failures counted against maxRestarts 1. The last of them ended the job: {why}."
    assert told in plain(history_view(seen))
    assert "ended the job" not in plain(history_view(standing(restarts=1)))


def test_status_and_history_of_a_job_that_has_formed_no_round() -> None:
    seen = forming(last=[], spec={"replicas": 1}, pods=[pod(0)], rendezvous={"round": 1, "reason": ""})
    assert plain(status_view(seen, {})).startswith("digits  Pending  round 1 forming, 0 of 1 worker (at least 1)")
    assert plain(history_view(seen)).startswith("digits has formed no round yet.")
    assert report(seen, {})["rounds"] == []


def test_a_spare_has_no_rank_and_waits() -> None:
    seen = formed([0, 1], spec={"spareReplicas": 2}, pods=[pod(2), pod(3)], records=[record(2, joins(4))])
    assert [(one.rank, one.spare, one.worker, one.state) for one in members_of(seen, {})][2:] == [
        (None, True, 2, "waits for a place"),
        (None, True, 3, "has not joined"),
    ]
    text = plain(status_view(seen, {}))
    assert ", 2 of 2 workers (at least 1), 1 of 2 spares ready, restarts 0 of 3" in text
    assert "\nspare        2   digits-2-0" in text


def test_a_step_is_shown_also_where_the_api_server_keeps_no_account_of_writes() -> None:
    """As of each record that its sidecar has joined with."""
    told = record(0, joins(3), step=7)
    del told["metadata"]["managedFields"]
    assert [one.step for one in members_of(formed([0], records=[told]), {})] == [7]


def test_a_rate_lies_between_two_steps_and_falls_while_no_other_comes() -> None:
    rates = Rates()
    for seconds, step in ((0, 100), (2, 100), (5, 110), (7, 110)):
        rates.note({"a": step}, NOW + timedelta(seconds=seconds))
    assert [rates.rates(NOW + timedelta(seconds=seconds)) for seconds in (5, 10, 25)] == [
        {"a": 2},
        {"a": 2},
        {"a": 0.5},
    ]
    rates.note({"a": 7}, NOW + timedelta(seconds=26))
    assert rates.rates(NOW + timedelta(seconds=27)) == {}


def test_only_rank_0_has_a_rate_as_the_others_steps_are_minutes_old() -> None:
    rates = {"digits-0-0": 2.0, "digits-1-0": 0.01}
    assert [one.rate for one in members_of(formed([0, 1]), rates)] == [2.0, None]


def test_status_shows_it_all_on_plain_lines() -> None:
    seen = formed([0, 1], number=3, history=HISTORY, phase="Running", progress={"step": 7, "summary": "7/60"})
    text = plain(status_view(seen, {}))
    assert text.startswith("digits  Running  round 3 formed, 2 of 2 workers (at least 1), restarts 0 of 3, step 7/60\n")
    assert (
        "RANK   WORKER   POD          NODE     STEP   RATE   AGE   STATE\n   0        0   digits-0-0   node-0      -"
        in text
    )
    assert "\n    3         2   " in text
    assert text.endswith("Since its start it trained for 14 min 46 s (96.3 %) and lost 34 s between rounds.")
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert report(seen, {})["goodput"]["share"] == pytest.approx(886 / 920)


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (0.04, "0 s", "0s"),
        (4.13, "4.1 s", "4s"),
        (12.4, "12 s", "12s"),
        (119, "119 s", "119s"),
        (200, "3 min 20 s", "3m"),
        (7500, "2 h 5 min", "2h"),
        (200000, "2 d 7 h", "2d"),
        (None, "", ""),
    ],
)
def test_lengths_of_time(seconds: float | None, long: str, short: str) -> None:
    assert (length(seconds), age(seconds)) == (long, short)


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ([3], "worker 3"),
        ([3, 4], "workers 3 and 4"),
        ([0, 1, 2, 3, 4], "workers 0, 1, 2, 3 and 4"),
        ([0, 1, 2, 3, 4, 5], "workers 0, 1, 2, 3 and 2 more"),
    ],
)
def test_names_of_workers(workers: list[int], words: str) -> None:
    assert names(workers) == words
