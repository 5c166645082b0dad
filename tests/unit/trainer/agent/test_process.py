# SPDX-License-Identifier: Apache-2.0
"""What the plug-in does with its process: orphans of a killed agent, stop signals, calls that hang."""

import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticjob_torch.agent import orphans, processes, stopping
from elasticjob_torch.sidecar.calls import CallThread, Interrupted
from support.waiting import DEADLINE, exit_code, happened, joined, run

TRAINER = Path(__file__).parents[4] / "trainer"
RUN = f"run-{os.getpid()}"  # another test process has other orphans
SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


@pytest.fixture
def start(started):
    """Start a marked process; all are ended afterwards."""

    def start_marked(mark, command=SLEEP):
        env = {**os.environ, orphans.MARK: mark}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    return start_marked


@pytest.fixture
def dead_agent():
    """The pid and start time of a process that no longer lives, as a mark has them."""
    process = subprocess.Popen(["sleep", "60"])
    started = processes.read_stat(process.pid).started
    process.kill()
    process.wait()
    return f"{process.pid}:{started}"


def living_agent(pid=None):
    pid = pid or os.getpid()
    return f"{pid}:{processes.read_stat(pid).started}"


def test_workers_of_a_dead_agent_are_ended(start, dead_agent):
    orphan = start(f"{dead_agent}:{RUN}:1")
    assert orphans.end_orphans(f"{RUN}:1") == 1
    assert exit_code(orphan) == -signal.SIGTERM


def test_one_that_ignores_sigterm_is_killed(start, dead_agent, monkeypatch):
    monkeypatch.setattr(orphans, "_TERM_SECONDS", 0.1)
    orphan = start(f"{dead_agent}:{RUN}", STUBBORN)
    assert orphans.end_orphans(RUN) == 1
    assert exit_code(orphan) == -signal.SIGKILL


def test_others_are_spared(start, dead_agent):
    kept = [
        start(f"{living_agent()}:{RUN}"),  # a training process of an agent that lives
        start(f"{dead_agent}:another-run"),
        start(""),
        start("nonsense"),
    ]
    assert orphans.end_orphans(RUN) == 0
    assert [process.poll() for process in kept] == [None] * len(kept)


def test_a_reused_pid_is_no_living_agent(start):
    orphan = start(f"{os.getpid()}:1:{RUN}")
    assert orphans.end_orphans(RUN) == 1
    assert exit_code(orphan) == -signal.SIGTERM


def test_the_mark_reaches_children(monkeypatch):
    monkeypatch.setenv(orphans.MARK, "")
    orphans.leave_mark(RUN)
    shown = run(["printenv", orphans.MARK], check=True).stdout.strip()
    assert shown == f"{living_agent()}:{RUN}"


SHOW_AGENT = """
import os
from elasticjob_torch.agent.orphans import agent_above
print(agent_above(os.environ))
"""


@pytest.mark.parametrize("between", [[], ["sh", "-c", '"$@"; exit', "sh"]])
def test_a_process_knows_the_living_agent_above_it(monkeypatch, between):
    monkeypatch.setenv(orphans.MARK, "")
    orphans.leave_mark(RUN)
    shown = run([*between, sys.executable, "-c", SHOW_AGENT], check=True).stdout
    assert int(shown) == os.getpid()
    assert orphans.agent_above(os.environ) == 0, "it is itself none that is above"


def test_no_agent_is_above_where_none_lives(dead_agent):
    for mark in ("", "nonsense", f"{dead_agent}:{RUN}", f"{os.getppid()}:1:{RUN}"):
        assert orphans.agent_above({orphans.MARK: mark}) == 0
    assert orphans.agent_above({}) == 0


class Stopped(Exception):
    pass


@pytest.fixture
def default_signals():
    before = {number: signal.signal(number, signal.SIG_DFL) for number in stopping._SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("default_signals")
def test_a_stop_signal_interrupts():
    stopping.hear_signals(lambda number: Stopped(number.name))
    with pytest.raises(Stopped, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("default_signals")
def test_handlers_of_others_stay():
    seen = []

    def theirs(number, frame):
        seen.append(number)

    signal.signal(signal.SIGTERM, theirs)
    stopping.hear_signals(lambda number: Stopped(number.name))
    os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [signal.SIGTERM]


@pytest.mark.usefixtures("default_signals")
def test_outside_the_main_thread_signals_are_left_alone():
    thread = threading.Thread(target=stopping.hear_signals, args=(Stopped,))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


IGNORED_CHILDREN = """
import signal, subprocess, sys
from elasticjob_torch.agent.stopping import hear_signals
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
hear_signals(lambda number: RuntimeError(number.name))
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"])
sys.exit(child.wait())
"""


def test_how_children_end_is_known_though_whoever_started_this_process_has_ignored_it():
    done = run([sys.executable, "-c", IGNORED_CHILDREN], env=os.environ | {"PYTHONPATH": str(TRAINER)})
    assert done.returncode == 3


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


def test_a_call_returns_or_raises_as_itself():
    calls = CallThread(lambda: False)
    assert calls.call(lambda: 42, DEADLINE) == 42
    with pytest.raises(KeyError, match="missing"):
        calls.call(lambda: {}["missing"], 5)
    assert calls.call(lambda: 43, 5) == 43


def test_a_hanging_call_is_given_up_when_the_round_ends(release):
    calls = CallThread(release.is_set)
    threading.Timer(0.05, release.set).start()
    with pytest.raises(Interrupted, match="the round ended"):
        calls.call(threading.Event().wait, 60)


def test_a_hanging_call_has_a_deadline_and_bars_others_until_it_returns(release):
    calls = CallThread(lambda: False)
    with pytest.raises(Interrupted, match=r"timeout: the store did not answer within 0\.01 s"):
        calls.call(release.wait, 0.01)
    with pytest.raises(Interrupted, match="an earlier call"):
        calls.call(lambda: 42, DEADLINE)
    release.set()
    happened(calls._done, "the end of the call that hangs")
    assert calls.call(lambda: 42, DEADLINE) == 42


def test_callers_on_several_threads_take_turns(release):
    calls, returned = CallThread(lambda: False), []
    first = threading.Thread(
        target=lambda: returned.append(calls.call(lambda: release.wait(DEADLINE) and "first", DEADLINE))
    )
    first.start()
    while calls._done.is_set():  # until the first is on its way
        first.join(0.001)
    second = threading.Thread(target=lambda: returned.append(calls.call(lambda: "second", DEADLINE)))
    second.start()
    release.set()
    for caller in (first, second):
        joined(caller)
    assert returned == ["first", "second"]


def test_a_caller_in_the_queue_is_given_up_when_the_round_ends(release):
    ended = threading.Event()
    calls = CallThread(ended.is_set)
    with ThreadPoolExecutor(2) as callers:
        waiting = [callers.submit(calls.call, release.wait, 60) for _ in range(2)]
        ended.set()
        for caller in waiting:
            assert isinstance(caller.exception(DEADLINE), Interrupted)


AT_THE_END = """
import os, sys, threading, time
from elasticjob_torch.sidecar import calls
calls._PARTING_SECONDS = float(sys.argv[1])
thread, abandoned = calls.CallThread(lambda: True), threading.Event()
try:
    thread.call(lambda: abandoned.wait() and time.sleep(float(sys.argv[2])), 60)
except calls.Interrupted:
    thread.end(lambda: os.write(1, b"the last call"))
    abandoned.set()
"""


@pytest.mark.parametrize(
    ("patience", "call", "printed"), [(DEADLINE, 0.2, "the last call"), (0.2, 2 * DEADLINE, "")], ids=["short", "hangs"]
)
def test_the_end_of_the_process_waits_for_what_is_under_way(patience, call, printed):
    """But not for ever, as a call may hang."""
    done = run(
        [sys.executable, "-c", AT_THE_END, str(patience), str(call)], env={**os.environ, "PYTHONPATH": str(TRAINER)}
    )
    assert (done.returncode, done.stdout) == (0, printed)


def test_a_thread_ends_when_nobody_can_call_any_more():
    calls = CallThread(lambda: False)
    thread = calls.call(threading.current_thread, DEADLINE)
    assert thread.is_alive()
    del calls
    gc.collect()
    joined(thread)


def test_the_last_call_comes_after_all_others(release):
    done = threading.Event()
    calls = CallThread(lambda: False)
    with pytest.raises(Interrupted):
        calls.call(release.wait, 0.01)
    calls.end(done.set)
    assert not done.is_set()
    release.set()
    happened(done, "the last call")
