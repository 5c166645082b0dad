# SPDX-License-Identifier: Apache-2.0
"""What `make bench` shows of its processes: the end of a log when one fails, and nothing otherwise."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from rounds import child as children
from rounds import logs
from rounds.child import Child
from rounds.progress import Progress
from rounds.starter import EQUAL_SHARES, Starter, _first, local_starter


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(logs, "FOLDER", tmp_path / "logs")
    logs._folder.cache_clear()
    return tmp_path / "logs"


@pytest.fixture(autouse=True)
def starter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    with local_starter() as made:
        monkeypatch.setattr(children, "starter", lambda: made)
        yield made


def test_the_error_of_a_process_that_has_ended_has_the_end_of_its_log(folder: Path) -> None:
    child = Child("no_such_module")
    with pytest.raises(
        RuntimeError, match=r"has ended; the process printed 1 lines, see .*no_such_module\.log, .*\n.*No module"
    ):
        child.answer()
    child.kill()
    assert [log.name.endswith("no_such_module.log") for log in folder.iterdir()] == [True]
    assert logs.kept() == f"1 of the benchmark's processes printed something: {folder}"


def test_of_a_process_that_prints_nothing_no_log_is_left(folder: Path) -> None:
    child = Child("json.tool")  # waits for its input
    child.kill()
    assert list(folder.iterdir()) == []
    assert logs.kept() == ""


def test_a_process_gives_way_as_it_is_told(folder: Path) -> None:
    child = Child("json.tool", nice=7)
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == 7
    child.kill()


def test_with_equal_shares_no_process_gives_way(folder: Path) -> None:
    with local_starter(EQUAL_SHARES) as equal:
        child = Child("json.tool", nice=7, by=equal)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        child.kill()


def test_all_processes_end_with_the_one_that_measures(folder: Path, starter: Starter) -> None:
    child = Child("json.tool")
    starter.close()
    with pytest.raises(RuntimeError, match="has ended"):
        child.answer()
    child.kill()


def test_a_starter_to_which_nobody_connects_ends(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "nobody.sock"))
        listening.listen()
        with pytest.raises(TimeoutError, match=r"no process has connected to .*nobody\.sock in 0\.05 s"):
            _first(listening, 0.05)


def test_of_a_long_log_only_the_end_is_shown(folder: Path) -> None:
    log = logs.new_log("handlers")
    trace = "".join(f"frame #{number}: c10d::TCPStore\n" for number in range(500))
    log.write_text("".join(f"[W] {number} {'x' * 1000}\n{trace}\n" for number in range(10)))
    said = logs.with_log("late", log).splitlines()
    assert said[0] == f"late; the process printed 5020 lines, see {log}, which ends with"
    assert len(said) == 1 + logs.LAST_LINES
    assert max(map(len, said[1:])) < 200


def test_each_step_tells_how_far_the_run_is(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(2)
    with progress.step("8 agents, the floor"):
        pass
    with progress.step("8 agents, ElasticJob, run 1 of 1") as found:
        found.append("first 0.089 s")
    lines = [line.split("s  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "1 of 2: 8 agents, the floor",
        "1 of 2: 0 s",
        "2 of 2: 8 agents, ElasticJob, run 1 of 1",
        "2 of 2: 0 s, first 0.089 s",
    ]
