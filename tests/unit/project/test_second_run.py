# SPDX-License-Identifier: Apache-2.0
"""A test that times out runs once more, alone, and no other does; `make flakes` counts them all."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from support.flakes import Tally
from support.second_run import FLAKY, REPORTS, timed_out
from support.waiting import Deadline, run, wait_until, within

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[2]
CONFTEST = """
import fcntl, os, pytest
from pathlib import Path
from e2e.hiccups import OF_RUNC, is_the_machines
from support.second_run import run_again
pytest_plugins = ["support.second_run"]
HERE = Path(__file__).parent

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if "machine" in item.name:
        report.sections.append(("events", f"Failed: {OF_RUNC}: unknown"))
    if is_the_machines(report):
        run_again(item, report)
    return report

class Interrupts:  # as `make check` does when its time is over
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        if "interrupted" in item.name and report.failed:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: its time is over")
        return report

def pytest_configure(config):
    config.pluginmanager.register(Interrupts())

@pytest.fixture
def times(request):
    \"\"\"How often the test has run.\"\"\"
    with (HERE / "log").open("a") as log:
        print(request.node.name, file=log)
    return (HERE / "log").read_text().splitlines().count(request.node.name)

@pytest.fixture
def alone():
    with (HERE / "flaky.json").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
"""
FLAKY_TWICE = """
import pytest
from support.waiting import Deadline

def test_passes(): pass

@pytest.mark.xdist_group("some")
@pytest.mark.parametrize("name", ["a::b/c@d"])
def test_call(times, alone, name):
    print("times", times)
    assert alone == (times == 2)
    if times == 1:
        raise Deadline("Godot", 5, "nobody")

@pytest.fixture
def late(times):
    yield
    if times == 1:
        raise BaseExceptionGroup("two", [Deadline("Vladimir", 5), Deadline("Estragon", 5)])

def test_teardown(late): pass
"""
NEVER_LET_THROUGH = """
import pytest
from support.waiting import Deadline

def test_times_out_again(times):
    raise Deadline("Godot", 5)

def test_is_wrong_the_second_time(times):
    assert times == 1
    raise Deadline("Godot", 5)

def test_is_wrong(times):
    assert times == 2

def test_is_wrong_before_a_wait(times):
    try:
        assert times == 2
    finally:
        if times == 1: raise Deadline("Godot", 5)

def test_is_wrong_beside_a_wait(times):
    if times == 1:
        raise ExceptionGroup("two", [Deadline("Godot", 5), ValueError("seen")])

@pytest.fixture
def wrong_in_the_end(times):
    yield
    assert times == 2

def test_is_wrong_after_a_wait(times, wrong_in_the_end):
    if times == 1: raise Deadline("Godot", 5)
"""
INTERRUPTED = """
from support.waiting import Deadline

def test_is_wrong(): assert False

def test_is_interrupted(): raise Deadline("Godot", 5)
"""
FLAKY_THRICE = """
import pytest
from support.waiting import Deadline

@pytest.mark.parametrize("name", ["one", "two", "machine"])
def test_flaky(times, name):
    if times == 1: raise ValueError if name == "machine" else Deadline("Godot", 5)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv(FLAKY, str(pytester.path / "flaky.json"))
    (pytester.path / "flaky.json").write_text("[]")
    return pytester


def outcome(project: pytest.Pytester, tests: str, *options: str) -> tuple[int, dict[str, int]]:
    """The exit code, and what the closing line counts."""
    project.makepyfile(tests)
    done = project.runpytest_subprocess("-p", "no:cacheprovider", *options)
    return int(done.ret), {kind: number for kind, number in done.parseoutcomes().items() if "warning" not in kind}


@pytest.mark.parametrize("options", [(), ("-n2", "--dist=loadgroup")], ids=["one process", "xdist"])
def test_who_passes_when_run_again_alone_is_flaky(project: pytest.Pytester, options: tuple[str, ...]) -> None:
    assert outcome(project, FLAKY_TWICE, *options) == (0, {"passed": 1, "flaky": 2})
    listed = json.loads((project.path / "flaky.json").read_text())
    assert sorted((test["test"].partition("::")[2], test["when"]) for test in listed) == [
        ("test_call[a::b/c@d]", "call"),
        ("test_teardown", "teardown"),
    ]
    call = next(test for test in listed if test["when"] == "call")
    assert call["why"] == "support.waiting.Deadline: waited 5 s for Godot; last seen: nobody"
    assert ("times 1" in call["first"], "times 2" in call["second"]) == (True, True)


def test_without_a_file_the_first_output_is_printed(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLAKY)
    project.makepyfile(FLAKY_THRICE)
    lines = project.runpytest_subprocess("-p", "no:cacheprovider", "-k", "one").outlines
    begin = next(number for number, line in enumerate(lines) if line.startswith("FLAKY "))
    assert "E       support.waiting.Deadline: waited 5 s for Godot" in lines[begin:]


def test_who_is_wrong_fails_whatever_a_second_run_says(project: pytest.Pytester) -> None:
    assert outcome(project, NEVER_LET_THROUGH) == (1, {"failed": 6, "errors": 1})
    log = (project.path / "log").read_text().splitlines()
    twice = ["test_times_out_again", "test_is_wrong_the_second_time"]
    assert (len(log), log[-2:]) == (len(set(log)) + 2, twice)
    assert json.loads((project.path / "flaky.json").read_text()) == []


def test_what_somebody_has_interrupted_does_not_run_again(project: pytest.Pytester) -> None:
    assert outcome(project, INTERRUPTED) == (1, {"failed": 1, "skipped": 1})


def test_three_flaky_tests_are_failures(project: pytest.Pytester) -> None:
    assert outcome(project, FLAKY_THRICE) == (1, {"failed": 3})
    assert len(json.loads((project.path / "flaky.json").read_text())) == 3


def test_the_parts_of_a_run_are_counted_together(project: pytest.Pytester) -> None:
    """Two in one part are let through, and a third in another is not."""
    assert outcome(project, FLAKY_THRICE, "-k", "one or two") == (0, {"flaky": 2, "deselected": 1})
    assert outcome(project, FLAKY_THRICE, "-k", "machine") == (1, {"failed": 1, "deselected": 2})


async def test_what_counts_as_timed_out() -> None:
    with pytest.raises(Deadline, match=r"^waited 0\.01 s for Godot$") as raised:
        async with within("Godot", 0.01):
            await asyncio.sleep(60)
    assert timed_out(raised.value)
    with pytest.raises(TimeoutError) as products:
        async with within("Godot"):
            raise TimeoutError("the product's own")
    assert not timed_out(products.value)
    with pytest.raises(Deadline, match="the end of sleep 60; last seen: ") as command:
        run(["sleep", "60"], 0.01)
    assert timed_out(command.value)


def test_flakes_are_counted_with_where_they_failed(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPORTS, str(project.path / "reports"))
    tally = Tally()
    for _ in range(2):
        (project.path / "reports").write_text("")
        outcome(project, FLAKY_THRICE, "-k", "one or two")
        tally.add([json.loads(line) for line in (project.path / "reports").read_text().splitlines()])
    one, where, other, _ = tally.lines()
    assert all("failed 1 of 2  " in line and "::test_flaky[" in line for line in (one, other))
    assert where.endswith(".py:6: support.waiting.Deadline: waited 5 s for Godot")


def test_the_busy_processes_end_with_the_run() -> None:
    code = "import os, support.flakes as f\nwith f.busy() as pids: print(*pids, flush=True); os.kill(os.getpid(), 9)"
    done = run([sys.executable, "-c", code], env={"PYTHONPATH": str(TESTS)})
    burning = [int(pid) for pid in done.stdout.split()]
    assert (done.returncode, len(burning)) == (-signal.SIGKILL, 2)
    wait_until("the end of the busy processes", lambda: not any(map(computes, burning)))


def computes(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
