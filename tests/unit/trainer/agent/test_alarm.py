# SPDX-License-Identifier: Apache-2.0
"""An agent's wait ends when there is something to see, and lasts otherwise."""

import socket
import subprocess
import sys
import threading
import time

import pytest

from elasticjob_torch.agent import alarm
from elasticjob_torch.agent.alarm import Alarm, await_end

LONG = 60.0  # far more than anything here takes: a wait that lasts so long was not ended
SHORT = 0.05


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def takes(wait, *arguments):
    """Seconds."""
    began = time.monotonic()
    wait(*arguments)
    return time.monotonic() - began


def test_it_lasts_where_nothing_happens(child):
    assert takes(Alarm().wait, SHORT, [child.pid]) >= SHORT


def test_it_ends_when_it_is_rung():
    alarm = Alarm()
    threading.Timer(SHORT, alarm.ring).start()
    assert takes(alarm.wait, LONG) < LONG


def test_what_was_rung_before_ends_the_next_wait_and_no_more():
    alarm = Alarm()
    for _ in range(100_000):  # more than a pipe holds
        alarm.ring()
    assert takes(alarm.wait, LONG) < LONG
    while takes(alarm.wait, SHORT) < SHORT:  # what the pipe still holds
        pass
    assert takes(alarm.wait, SHORT) >= SHORT


def test_a_wait_for_an_answer_ends_with_it_or_when_it_is_rung():
    alarm, (here, there) = Alarm(), socket.socketpair()
    with here, there:
        assert not alarm.await_readable(here, SHORT)
        threading.Timer(SHORT, alarm.ring).start()
        assert takes(lambda: alarm.await_readable(here, LONG)) < LONG
        assert not alarm.await_readable(here, 0)
        threading.Timer(SHORT, there.send, [b"answer"]).start()
        assert takes(lambda: alarm.await_readable(here, LONG)) < LONG
        assert alarm.await_readable(here, LONG)


def test_it_ends_with_a_process_and_only_once_for_each(child):
    alarm = Alarm()
    threading.Timer(SHORT, child.kill).start()
    assert takes(alarm.wait, LONG, [child.pid]) < LONG
    assert takes(alarm.wait, SHORT, [child.pid]) >= SHORT  # though it was not waited for yet
    assert child.wait() < 0
    assert takes(alarm.wait, SHORT, [child.pid]) >= SHORT


def test_the_end_of_one_process_is_awaited(child):
    assert takes(await_end, child.pid, SHORT) >= SHORT
    child.kill()
    assert takes(await_end, child.pid, LONG) < LONG
    assert child.wait() < 0


def test_where_the_kernel_tells_of_no_process_the_time_counts(child, monkeypatch):
    def unknown(pid):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(alarm.os, "pidfd_open", unknown)
    assert takes(Alarm().wait, SHORT, [child.pid]) >= SHORT
    assert takes(await_end, child.pid, LONG) < LONG
