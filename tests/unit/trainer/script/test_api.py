# SPDX-License-Identifier: Apache-2.0
"""What a training script may ask and tell: from memory, in any place, and gone when its process is."""

import os
import sys
import threading
import time
import timeit
from fractions import Fraction
from pathlib import Path

import pytest

import elasticjob_torch
from elasticjob.api import MAX_JSON_INTEGER
from elasticjob_torch import wire
from elasticjob_torch.script import api as script
from elasticjob_torch.script import client
from elasticjob_torch.script.api import Current
from support.trainer_sidecar import refusal
from support.waiting import run, wait_until

ROUND = {"round": 3, "waiting": 0, "reason": "scaled from 1 to 2", "ending": False}
WATCH, SAVED, PROGRESS = "GET /v1/rendezvous/watch", "POST /v1/saved", "POST /v1/progress"


@pytest.fixture
def clean(monkeypatch):
    """A process that has made no call yet, outside of any job."""
    own = ("ELASTICJOB_ENDPOINT", "ELASTICJOB_AGENT", "TORCHELASTIC_RUN_ID")
    addresses = ("MASTER_ADDR", "ELASTICJOB_MASTER_ADDRESS")
    for variable in (*own, *addresses, "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    script._begin()
    yield monkeypatch
    if script._client is not None:
        script._client.close()
        if script._client._watching:
            script._client._stream.stop()
    script._begin()


@pytest.fixture
def job(sidecar, clean):
    """A training process in a worker of an ElasticJob."""
    clean.setenv("ELASTICJOB_ENDPOINT", f"127.0.0.1:{sidecar.port}")
    clean.setenv("ELASTICJOB_AGENT", "7:1:uid")
    clean.setenv("TORCHELASTIC_RUN_ID", "uid")
    sidecar.view = ROUND
    return clean


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock that `client` reads, moved by the test."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(client, "time", made)
    return made


class TestElsewhere:
    def test_nothing_is_known_or_done(self, clean, caplog):
        caplog.set_level("INFO")
        before = threading.active_count()
        for _ in range(3):
            assert elasticjob_torch.current() == Current()
            assert elasticjob_torch.wants_restart() is False
            elasticjob_torch.report(step=1, total=2, loss=0.5)
        assert threading.active_count() == before
        assert len(caplog.messages) == 1

    def test_the_rank_is_the_environments(self, clean):
        clean.setenv("RANK", "5")
        clean.setenv("WORLD_SIZE", "8")
        assert elasticjob_torch.current() == Current(rank=5, world_size=8)

    def test_a_process_of_a_torchrun_inside_the_training_says_nothing(self, job, sidecar):
        job.setenv("TORCHELASTIC_RUN_ID", "none")
        job.setenv("ELASTICJOB_MASTER_ADDRESS", "10.0.0.7")
        job.setenv("MASTER_ADDR", "localhost")
        elasticjob_torch.report(step=1)
        assert elasticjob_torch.current() == Current(master_address="localhost")
        assert sidecar.requests == []

    def test_an_endpoint_that_is_not_the_sidecars_is_left_alone(self, clean, caplog):
        clean.setenv("PET_RDZV_BACKEND", "elasticjob")
        clean.setenv("PET_RDZV_ENDPOINT", "example.com:29400")
        assert elasticjob_torch.wants_restart() is False
        assert "no sidecar of an ElasticJob is to be found" in caplog.text

    def test_the_package_is_imported_without_any_of_it(self):
        code = "import sys, elasticjob_torch; print([name for name in sys.modules if name.startswith('elasticjob_')])"
        said = run_python(code)
        assert said == "['elasticjob_torch']\n"

    def test_other_names_are_errors(self):
        with pytest.raises(AttributeError, match="has no attribute 'wants_restarts'"):
            elasticjob_torch.wants_restarts  # noqa: B018


class TestCurrent:
    def test_the_first_call_waits_for_the_sidecars_first_word(self, job):
        job.setenv("RANK", "1")
        job.setenv("ELASTICJOB_MASTER_ADDRESS", "10.0.0.7")
        job.setenv("MASTER_ADDR", "127.0.0.1")
        expected = Current(round=3, rank=1, reason="scaled from 1 to 2", master_address="10.0.0.7")
        assert elasticjob_torch.current() == expected

    def test_later_ones_follow_what_the_sidecar_tells(self, job, sidecar):
        elasticjob_torch.current()
        sidecar.tell(waiting=2)
        wait_until("the newcomers", lambda: elasticjob_torch.current().waiting == 2)
        assert elasticjob_torch.current() is elasticjob_torch.current()
        assert sidecar.said(WATCH)[0]["saves"] == "false"
        assert len(sidecar.said(WATCH)) == 1

    def test_a_sidecar_that_says_nothing_is_waited_for_once(self, job, sidecar):
        job.setattr(client, "FIRST_SECONDS", 0.05)
        takes_streams, sidecar.default = sidecar.default, lambda path: refusal(429, "TooMany")
        assert elasticjob_torch.current().round == 0
        sidecar.default = takes_streams
        wait_until("a later try", lambda: elasticjob_torch.current().round == 3)


class TestWantsRestart:
    def test_it_is_told_of_a_planned_end_and_tells_when_it_has_saved(self, job, sidecar, clock):
        assert elasticjob_torch.wants_restart() is False
        sidecar.await_(lambda: sidecar.streams == 1, "the stream")
        assert sidecar.said(WATCH)[0]["saves"] == "true"
        sidecar.tell(ending=True)
        wait_until("the news", elasticjob_torch.wants_restart)
        clock.now += client.HEARD_SECONDS
        assert elasticjob_torch.wants_restart() is True  # all ranks have heard by now
        assert sidecar.said(SAVED) == []
        assert elasticjob_torch.wants_restart() is True  # they have come as far as here
        sidecar.await_(lambda: len(sidecar.said(SAVED)) == 1, "the word that it has saved")
        assert elasticjob_torch.wants_restart() is True
        script._client.close()
        assert [said["round"] for said in sidecar.said(SAVED)] == [3]

    def test_a_rank_that_hears_first_does_not_cut_the_others_short(self, job, sidecar, clock):
        elasticjob_torch.wants_restart()
        sidecar.tell(ending=True)
        wait_until("the news", elasticjob_torch.wants_restart)
        clock.now += client.HEARD_SECONDS - 0.01
        for _ in range(100):  # steps of no length
            assert elasticjob_torch.wants_restart() is True
        script._client.close()
        assert sidecar.said(SAVED) == []

    def test_an_end_that_is_planned_no_more_is_none(self, job, sidecar):
        elasticjob_torch.wants_restart()
        sidecar.tell(ending=True)
        wait_until("the news", elasticjob_torch.wants_restart)
        sidecar.tell(ending=False)
        wait_until("the change", lambda: not elasticjob_torch.wants_restart())

    def test_asked_after_the_stream_was_opened_it_says_so(self, job, sidecar):
        elasticjob_torch.current()
        elasticjob_torch.wants_restart()
        sidecar.await_(lambda: len(sidecar.said(SAVED)) == 1, "the wish to save")
        (said,) = sidecar.said(SAVED)
        assert said == {"script": sidecar.said(WATCH)[0]["script"], "round": 0}


class TestReport:
    def test_the_last_value_wins_and_a_second_passes_between_two(self, job, sidecar):
        job.setattr(client, "REPORT_SECONDS", 0.2)
        job.setenv("LOCAL_RANK", "2")
        began = time.monotonic()
        elasticjob_torch.report(step=0, total=600)
        sidecar.await_(lambda: len(sidecar.said(PROGRESS)) == 1, "the first report")
        for step in range(1, 101):
            elasticjob_torch.report(step=step, loss=1 / step, accuracy=step)
        sidecar.await_(lambda: len(sidecar.said(PROGRESS)) == 2, "the last report")
        assert time.monotonic() - began >= 0.19
        metrics = {"loss": 0.01, "accuracy": 100.0}
        assert sidecar.said(PROGRESS)[1] == {"local_rank": 2, "step": 100, "total": 600, "metrics": metrics}

    def test_what_is_no_number_any_more_is_not_shown(self, job, sidecar):
        elasticjob_torch.report(loss=0.5, accuracy=0.9)
        elasticjob_torch.report(loss=float("nan"), speed=float("inf"))
        script._client.close()
        assert sidecar.said(PROGRESS)[-1]["metrics"] == {"accuracy": 0.9}

    def test_a_report_that_failed_is_sent_again(self, job, sidecar, caplog):
        job.setattr(client, "REPORT_SECONDS", 0.05)
        sidecar.answers[PROGRESS] = [refusal(500, "Broken"), refusal(500, "Broken")]
        elasticjob_torch.report(step=5)
        sidecar.await_(lambda: len(sidecar.said(PROGRESS)) == 3, "the third try")
        assert len(caplog.messages) == 1

    def test_no_number_stops_a_training_nor_gets_stuck_on_its_way(self, job, sidecar):
        """What the sidecar, and then the API server, would refuse does not leave the script."""
        job.setattr(client, "REPORT_SECONDS", 0.05)
        elasticjob_torch.report(step=2**53 - 1, total=2**53, loss=10**400, speed=1.5)
        sidecar.await_(lambda: sidecar.said(PROGRESS), "a report")
        elasticjob_torch.report(step=-1, total=10**30)
        sidecar.await_(lambda: sidecar.said(PROGRESS)[-1]["step"] == 0, "the next")
        first, last = sidecar.said(PROGRESS)[0], sidecar.said(PROGRESS)[-1]
        assert (first["step"], first["total"], first["metrics"]) == (MAX_JSON_INTEGER, MAX_JSON_INTEGER, {"speed": 1.5})
        assert (last["step"], last["total"]) == (0, MAX_JSON_INTEGER)
        for said in (first, last):
            wire.ProgressReport.from_json(said)

    def test_the_share_of_the_time_that_it_waits(self, clean):
        class Clock:
            now = 1000.0

            def monotonic(self):
                return self.now

        clock = Clock()
        clean.setattr(script, "time", clock)
        assert self.waits(waited=3.0) is None  # of a time that is not known
        for waited, share in ((4.0, 0.4), (0, 0.2), (float("nan"), 4 / 30), (-5, 0.1), (100.0, 1.0)):
            clock.now += 10
            assert self.waits(waited=waited) == pytest.approx(share)
        clock.now += 1000
        assert self.waits(step=7) == 1.0  # what a call leaves out stays

    def test_that_share_is_sent_once_it_is_known(self, job, sidecar):
        elasticjob_torch.report(step=1)
        script._client.close()
        assert "waits" not in sidecar.said(PROGRESS)[-1]
        script._begin()
        job.setattr(script, "_waiting_since", time.monotonic() - 10)
        elasticjob_torch.report(waited=1)
        script._client.close()
        assert sidecar.said(PROGRESS)[-1]["waits"] == pytest.approx(0.1, abs=0.05)

    def waits(self, **said):
        elasticjob_torch.report(**said)
        return script._progress.waits

    @pytest.mark.parametrize(
        ("arguments", "kind", "said"),
        [
            ({"step": 1.5}, TypeError, "step must be a whole number, not float"),
            ({"total": "600"}, TypeError, "total must be a whole number, not str"),
            ({"loss": "low"}, TypeError, "loss must be a number, not str"),
            ({"waited": "long"}, TypeError, "waited must be a number, not str"),
            ({"loss": None}, TypeError, "loss must be a number, not NoneType"),
            ({"a b": 1.0}, ValueError, "'a b' must be a letter, then"),
            ({"x" * 65: 1.0}, ValueError, "must be a letter, then"),
            ({f"m{number}": 1.0 for number in range(17)}, ValueError, "m16 is one more than the 16 metrics"),
        ],
    )
    @pytest.mark.parametrize("place", ["clean", "job"])
    def test_what_cannot_be_shown_is_refused_at_once(self, request, place, arguments, kind, said):
        request.getfixturevalue(place)
        with pytest.raises(kind, match=rf"^report\(\): .*{said}"):
            elasticjob_torch.report(**arguments)
        assert script._progress == client.ReportedProgress()

    def test_numbers_of_other_kinds_are_numbers(self, job, sidecar):
        class Tensor:
            def __index__(self):
                return 7

        elasticjob_torch.report(step=Tensor(), half=Fraction(1, 2), count=3)
        script._client.close()
        assert sidecar.said(PROGRESS)[0]["metrics"] == {"half": 0.5, "count": 3.0}
        assert sidecar.said(PROGRESS)[0]["step"] == 7


PATH = {**os.environ, "PYTHONPATH": str(Path(elasticjob_torch.__file__).parents[1])}


def run_python(code, port=None):
    """Run `code` in a process of its own, with a sidecar at `port`; return what it prints."""
    job = {} if port is None else {"PET_RDZV_BACKEND": "elasticjob", "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}"}
    forks = "ignore:This process:DeprecationWarning"  # it has threads, as Python 3.12 and later remark
    command = [sys.executable, "-W", "error", "-W", forks, "-c", code]
    done = run(command, env=PATH | job)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


FORKED = """
import os, sys, threading
import elasticjob_torch
elasticjob_torch.current()
elasticjob_torch.report(step=1)
child = os.fork()
if child == 0:
    assert threading.active_count() == 1
    sys.exit()  # and not os._exit: what is registered for the exit runs
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert elasticjob_torch.current().round == 3
elasticjob_torch.report(step=2)
"""
CALLING_CHILD = """
import os
import elasticjob_torch
assert elasticjob_torch.current().round == 3
if (child := os.fork()) == 0:
    print(elasticjob_torch.current().round, elasticjob_torch.wants_restart(), flush=True)
    elasticjob_torch.report(step=5)
    raise SystemExit
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
LOADER = """
import multiprocessing
import elasticjob_torch

elasticjob_torch.current()
workers = multiprocessing.get_context("fork").Pool(2)  # as a DataLoader's
for step in workers.imap(abs, range(1, 9)):
    elasticjob_torch.wants_restart()
    elasticjob_torch.report(step=step)
workers.close()
workers.join()
"""


class TestProcess:
    def test_the_last_report_is_sent_at_the_end(self, sidecar):
        sidecar.view = ROUND
        run_python("import elasticjob_torch as e\nfor step in range(9): e.report(step=step)", sidecar.port)
        assert sidecar.said(PROGRESS)[-1]["step"] == 8

    def test_a_sidecar_that_is_gone_does_not_hold_up_the_end(self, sidecar):
        port = sidecar.port
        sidecar.stop()
        code = "import logging; logging.disable(); import elasticjob_torch as e; e.report(step=1); e.wants_restart()"
        run_python(code, port)

    def test_a_forked_child_that_makes_no_call_has_no_part_in_it(self, sidecar):
        sidecar.view = ROUND
        run_python(FORKED, sidecar.port)
        assert len(sidecar.said(WATCH)) == 1
        assert [said["step"] for said in sidecar.said(PROGRESS)][-1] == 2

    def test_a_forked_child_that_makes_calls_is_one_more_script(self, sidecar):
        sidecar.view = ROUND
        assert run_python(CALLING_CHILD, sidecar.port) == "3 False\n"
        assert len({said["script"] for said in sidecar.said(WATCH)}) == 2
        assert [said["step"] for said in sidecar.said(PROGRESS)] == [5]

    def test_workers_of_a_data_loader_have_no_part_in_it(self, sidecar):
        sidecar.view = ROUND
        run_python(LOADER, sidecar.port)
        assert len(sidecar.said(WATCH)) == 1
        assert sidecar.said(PROGRESS)[-1]["step"] == 8


@pytest.mark.parametrize("call", ["current()", "wants_restart()", "report(step=7, total=9, loss=0.5)"])
def test_what_a_call_costs(job, sidecar, call, capsys):
    elasticjob_torch.current()
    elasticjob_torch.wants_restart()
    elasticjob_torch.report(step=1)
    times = 20000
    seconds = timeit.timeit(f"elasticjob_torch.{call}", number=times, globals={"elasticjob_torch": elasticjob_torch})
    with capsys.disabled():
        print(f"\n{call}: {seconds / times * 1e6:.2f} microseconds")
    assert seconds / times < 1e-3  # memory; a call of the network would take longer
