# SPDX-License-Identifier: Apache-2.0
"""What earlier starts of an agent's processes left behind is ended, and nothing else; on real processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from elasticjob_torch.agent import leftovers, orphans
from elasticjob_torch.agent.leftovers import Leftovers
from elasticjob_torch.environment import MARK, START
from support.waiting import exit_code, run, wait_until

UP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {UP}"


@pytest.fixture(autouse=True)
def _agent(monkeypatch):
    monkeypatch.setenv(MARK, "")
    monkeypatch.delenv(START, raising=False)
    orphans.leave_mark("run")


@pytest.fixture
def start(started):
    """Start a process of an agent's start; all are ended afterwards."""

    def start_one(start_id, code=UP, **changes):
        environment = {**os.environ, **({START: start_id} if start_id else {}), **changes}
        command = [sys.executable, "-S", "-c", code]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    return start_one


def end(made):
    made.begin()
    made.end()


def test_what_an_earlier_start_left_is_ended_and_told(start, caplog):
    left = start(Leftovers.new_start())
    end(Leftovers())
    assert exit_code(left) == -signal.SIGTERM
    (said,) = caplog.messages
    assert said.startswith(f"ending processes that an earlier round left behind: {left.pid} ({sys.executable} -S -c")


def test_the_round_does_not_wait_for_it_before_it_has_to(start, monkeypatch):
    stubborn = start(Leftovers.new_start(), STUBBORN)
    made = Leftovers(within=0.2)
    made.begin()
    assert stubborn.poll() is None
    made.end()
    assert exit_code(stubborn) == -signal.SIGKILL


def test_it_has_the_jobs_time_to_end(start):
    saves = start(
        Leftovers.new_start(),
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(3)));" + UP,
    )
    end(Leftovers(within=86400))
    assert exit_code(saves) == 3


def test_what_a_leftover_starts_while_it_ends_is_ended_too(start, tmp_path):
    """In a session of its own, as what it left in the first place."""
    child = f"[{sys.executable!r}, '-S', '-c', {STUBBORN!r}]"
    again = textwrap.dedent(f"""
        import pathlib, signal, subprocess, sys
        def leave(*_):
            child = subprocess.Popen({child}, stdout=subprocess.PIPE, start_new_session=True)
            child.stdout.readline()
            pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(child.pid))
            sys.exit()
        signal.signal(signal.SIGTERM, leave)
    """)
    start(Leftovers.new_start(), again + UP)
    end(Leftovers())
    pid = int((tmp_path / "pid").read_text())
    wait_until("the end of the child", lambda: not leftovers.command_of(pid))


def test_those_that_train_in_a_later_round_and_all_others_are_spared(start):
    prestarted, running = Leftovers.new_start(), Leftovers.new_start()
    kept = [
        start(prestarted),
        start(running),
        start(""),  # the agent's own helper
        start(Leftovers.new_start(), **{MARK: "1:1:run"}),  # of another agent
        start(Leftovers.new_start(), **{MARK: ""}),
    ]
    end(Leftovers(lambda: {prestarted, running}))
    assert [process.poll() for process in kept] == [None] * len(kept)


def test_a_process_that_is_prestarted_meanwhile_is_spared(start):
    """It is in the list of processes before its pool says so."""
    made = []
    prestarted = Leftovers.new_start()
    process = start(prestarted)

    def living():
        made.append(process.poll())
        return {prestarted}

    end(Leftovers(living))
    assert made == [None]
    assert process.poll() is None


def test_an_agent_that_has_started_nothing_looks_at_no_process(monkeypatch):
    """A look takes milliseconds with a hundred processes, which a join would wait for: all of a node, with hostPID."""
    monkeypatch.setattr(Leftovers, "_has_started", False)
    monkeypatch.setattr(leftovers, "others_that_live", lambda: pytest.fail("it looked"))
    end(Leftovers())


def test_nothing_left_takes_no_time(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"slept {seconds} s"))
    end(Leftovers())


REAPS = """
import ctypes, multiprocessing, os, subprocess, sys, time
from elasticjob_torch.agent import reaping
from elasticjob_torch.agent.processes import all_processes

ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are its, as they are of a container's first process
reaping._PAUSE_SECONDS = 0.05
reaper = reaping.Reaper(adopts=bool(int(sys.argv[1])))

def children(states="ZSRD"):
    return {pid for pid, stat in all_processes() if stat.state in states and stat.parent == os.getpid()}

def zombies():
    return children("Z")

def look_until(met):
    deadline = time.monotonic() + 60
    while not met() and time.monotonic() < deadline:
        reaper.look()
        time.sleep(0.01)

def train(workers):  # as a training process whose loader workers are still there when it is killed
    code = f"import os, time; [time.sleep(0.2) or os._exit(1) for _ in range({workers}) if not os.fork()]"
    subprocess.run([sys.executable, "-S", "-c", code], start_new_session=True, check=True)

def known():  # children of its own, which have ended too, and that nobody has asked for their exit codes
    forked = os.fork() or os._exit(7)
    made = multiprocessing.get_context("fork").Process(target=os._exit, args=(5,))
    made.start()
    session = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(3)"], start_new_session=True)
    look_until(lambda: {forked, made.pid, session.pid} <= zombies())
    return forked, made, session

forked, made, session = known()
own = {forked, made.pid, session.pid}
for _ in range(10):
    train(2)
    reaper.look()
look_until(lambda: children() == zombies() and len(children() - own) == (0 if reaper._adopts else 20))
print(len(children() - own), zombies() >= own)
made.join()
print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), made.exitcode, session.wait())
"""


@pytest.mark.parametrize("adopts", [True, False])
def test_orphans_are_reaped_and_no_exit_code_is_taken_away(adopts):
    said = run([sys.executable, "-c", REAPS, str(int(adopts))], check=True).stdout.splitlines()
    assert said == [f"{0 if adopts else 20} True", "7 5 3"]


def test_only_a_containers_first_process_adopts():
    from elasticjob_torch.agent.reaping import Reaper

    assert Reaper()._adopts is (os.getpid() == 1)
