# SPDX-License-Identifier: Apache-2.0
"""What the agent finds out about its training processes, which are real ones here, and what these write themselves."""

import os
import signal
import threading
from pathlib import Path

import pytest

from elasticjob_torch.agent import stalls
from elasticjob_torch.agent.stacks import NUMBER, ask_for_stacks
from elasticjob_torch.agent.stalls import StallInspector, states_of, training_process, write_stacks
from elasticjob_torch.wire import Phase, ProcessState, View
from support.waiting import joined, wait_until

TRAINER = Path(__file__).parents[4] / "trainer"
DEADLINE = 30.0

# each says "here" and then does something without an end
IN_PYTHON = "def spin():\n while True: pass\nprint('here', flush=True)\nspin()"
IN_C = "import itertools\ndef spin():\n sum(itertools.repeat(0))\nprint('here', flush=True)\nspin()"
WAITS = "import threading\ndef wait():\n threading.Event().wait()\nprint('here', flush=True)\nwait()"
THREADS = f"import threading, time\nthreading.Thread(target=lambda: time.sleep(99), daemon=True).start()\n{WAITS}"


def counted(process, *words):
    written = process.log.read_text()
    return [written.count(word) for word in words]


@pytest.mark.parametrize(
    ("script", "function"), [(IN_PYTHON, "spin"), (IN_C, "spin"), (WAITS, "wait")], ids=["python", "c", "waits"]
)
def test_a_process_writes_its_stacks_whatever_it_does(start, script, function):
    process = start(script)
    # it may be on its way there
    wait_until("the stack", lambda: write_stacks(process.pid) and f"in {function}" in process.log.read_text())
    assert "most recent call first" in process.log.read_text()
    assert process.poll() is None


def test_it_writes_those_of_all_its_threads_and_each_time_anew(start):
    process = start(THREADS)
    for times in (1, 2):
        assert write_stacks(process.pid)
        both = [times, times]
        wait_until("both stacks", lambda both=both: counted(process, "in <lambda>", "in <module>") == both)


def test_a_process_that_does_not_listen_is_left_alone(start):
    """The signal would end it: a program that is no Python, an interpreter without its site."""
    process = start(WAITS, options=("-S",))
    assert not ask_for_stacks(process.pid)
    assert not write_stacks(process.pid)
    os.kill(process.pid, NUMBER)
    assert process.wait() == -NUMBER


def test_a_child_of_a_training_process_does_not_listen(start):
    process = start(WAITS, agent=1)
    assert not ask_for_stacks(process.pid)


def test_a_process_that_is_gone_writes_nothing(start):
    process = start(WAITS)
    process.kill()
    process.wait()
    assert not write_stacks(process.pid)
    assert states_of([process.pid]) == {}


def test_what_processes_do(start):
    spins, waits, stops = start(IN_C), start(WAITS), start(IN_PYTHON)
    os.kill(stops.pid, signal.SIGSTOP)
    assert states_of([spins.pid, waits.pid, stops.pid]) == {
        spins.pid: ProcessState.COMPUTES,
        waits.pid: ProcessState.WAITS,
        stops.pid: ProcessState.STOPPED,
    }


def test_who_uses_a_gpu_is_not_said_to_compute(start, monkeypatch):
    """Its wait for the device may look like that."""
    process = start(IN_PYTHON)
    monkeypatch.setattr(stalls, "_DEVICES", (os.readlink(f"/proc/{process.pid}/fd/0"),))
    assert states_of([process.pid]) == {process.pid: ProcessState.UNKNOWN}


class Looked:
    """What `StallInspector` tells, and in which log lines."""

    def __init__(self):
        self.told = []
        self.stalls = StallInspector(lambda *said: self.told.append(said))

    def look(self, *processes, stalled=True, handed=3):
        self.stalls.look(View(round=3, phase=Phase.FORMED, handed=handed, stalled=stalled), processes)

    def finish(self):
        for thread in threading.enumerate():
            if thread.name == "elasticjob-stalls":
                joined(thread)


def test_the_process_most_at_fault_is_told_and_all_stacks_are_written(start, caplog):
    waits, stops, spins = start(WAITS), start(WAITS), start(IN_PYTHON)
    os.kill(stops.pid, signal.SIGSTOP)
    looked = Looked()
    looked.look(waits.pid, stops.pid, spins.pid)
    looked.finish()
    assert looked.told == [(3, "Stopped", 1)]
    assert f"local rank 0 (pid {waits.pid}) waits" in caplog.text
    assert f"local rank 1 (pid {stops.pid}) is stopped, and writes no stacks" in caplog.text
    assert f"local rank 2 (pid {spins.pid}) computes" in caplog.text
    assert "does not write" not in caplog.text
    wait_until("the stack of who waits", lambda: counted(waits, "in <module>") == [1])
    wait_until("the stack of who computes", lambda: counted(spins, "in <module>") == [1])
    assert stops.log.read_text() == ""
    os.kill(stops.pid, signal.SIGCONT)
    assert stops.poll() is None


def test_a_wrapper_between_agent_and_script_hides_nothing(start):
    """The agent knows the shell's pid."""
    shell = start(IN_C, through=("sh", "-c", '"$0" "$@"; exit $?'))
    script = training_process(shell.pid)
    looked = Looked()
    looked.look(shell.pid)
    looked.finish()
    assert looked.told == [(3, "Computes", 0)]
    wait_until("the script's stack", lambda: "in spin" in shell.log.read_text())
    os.kill(script, signal.SIGKILL)
    assert shell.wait() == 128 + signal.SIGKILL


def test_who_computes_comes_before_who_waits(start):
    looked = Looked()
    looked.look(start(WAITS).pid, start(IN_C).pid)
    looked.finish()
    assert looked.told == [(3, "Computes", 1)]


def test_it_looks_once_each_time_that_it_is_told_so(start, monkeypatch):
    times = []
    monkeypatch.setattr(stalls, "states_of", lambda processes: times.append(processes) or {})
    looked, process = Looked(), start(WAITS)
    for stalled in (False, True, True, False, True):
        looked.look(process.pid, stalled=stalled)
        looked.finish()
    assert len(times) == 2
    looked.look(process.pid, handed=4)
    looked.finish()
    assert len(times) == 3
    looked.stalls.look(None, [process.pid])
    looked.look(stalled=True)  # its processes are yet to start
    looked.finish()
    assert (len(times), looked.told) == (3, [])
