# SPDX-License-Identifier: Apache-2.0
"""Whether a process that does not answer is slow, or hangs."""

import os
import signal
import subprocess
import sys

import pytest

from elasticjob_torch.warm.handed import SessionProgress, work_of
from support.waiting import wait_until


def test_it_stands_still_since_its_last_work():
    now, work = 100.0, (0, 0)
    progress = SessionProgress(lambda: work, lambda: now)
    assert progress.still_for() == 0
    now = 101.0
    assert progress.still_for() == 1
    now = 103.0
    assert progress.still_for() == 3
    work = (0, 1)
    assert progress.still_for() == 0
    now = 104.0
    assert (progress.still_for(), progress.took()) == (1, 4)


def test_where_nobody_could_look_it_may_have_been_unable_to_work_too():
    """As on a node that stood still."""
    now = 100.0
    progress = SessionProgress(lambda: (0, 0), lambda: now)
    assert progress.still_for() == 0
    now = 1000.0
    assert progress.still_for() < 10


WAITS = "import os, sys; sys.stdin.buffer.raw.read(1); {}; sys.stdin.buffer.raw.read(1)"


@pytest.mark.parametrize(
    ("does", "which"),
    [
        ("[os.times() for _ in range(10**6)]", 0),
        ("open(sys.executable, 'rb').read()", 1),
        ("import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])", 1),
    ],
)
def test_what_a_process_does_shows_and_a_wait_does_not(does, which):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS.format(does)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        before = settled(process.pid)
        process.stdin.write(b"!")
        process.stdin.flush()
        wait_until("work that shows", lambda: work_of(process.pid)[which] > before[which])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def settled(pid):
    """What it has done when it waits."""
    looks = [work_of(pid)]

    def is_still():
        looks.append(work_of(pid))
        return looks[-1][1] > 0 and len(looks) > 20 and len(set(looks[-20:])) == 1

    wait_until("a process that waits", is_still)
    return looks[-1]


def test_of_one_that_is_gone_nothing_is_known():
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    assert work_of(process.pid) == (0, 0)
