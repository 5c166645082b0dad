# SPDX-License-Identifier: Apache-2.0
"""What the pool says of the script's imports, for the job's next pods."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticjob_torch.warm import pool as pools
from elasticjob_torch.warm import room
from elasticjob_torch.warm.launch import Launch
from elasticjob_torch.warm.pool import Pool
from elasticjob_torch.warm.process import Start
from support.waiting import DEADLINE, acquired, happened, joined

START = Start((sys.executable, "-u", "train.py"), {}, (1, 2), {})


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """It prestarts nothing, for want of room."""
    monkeypatch.setattr(room, "rooms", lambda: [room.Room(0, 0)])
    monkeypatch.setattr(pools, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(pools, "_TICK_SECONDS", 0.01)
    made = Pool(["given"])
    yield made
    made.close()


def test_what_process_0_imports_is_told_once_and_again_when_it_has_grown(pool: Pool) -> None:
    told: list[list[str]] = []
    has_told = threading.Semaphore(0)

    def tell(names: list[str]) -> bool:
        told.append(names)
        has_told.release()
        return True

    pool.tell(tell)
    pool.watch()
    Path(pool.expects(1, START)).write_text("of.another\n")
    Path(pool.expects(0, START)).write_text("torch\nsklearn.datasets\n")
    acquired(has_told, "what is imported to be told")
    Path(pool.expects(0, START)).write_text("torch\nsklearn.datasets\n")
    Path(pool.expects(0, START)).write_text("torch\nnumpy\n")
    acquired(has_told, "what is imported to be told")
    assert told == [["torch", "sklearn.datasets"], ["torch", "sklearn.datasets", "numpy"]]


def test_what_was_not_taken_is_told_again_and_then_no_more(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_AGAIN_SECONDS", 0.05)
    told: list[list[str]] = []
    has_told = threading.Semaphore(0)

    def tell(names: list[str]) -> bool:
        told.append(names)
        has_told.release()
        return len(told) > 1

    pool.tell(tell)
    pool.watch()
    Path(pool.expects(0, START)).write_text("torch\n")
    acquired(has_told, "what is imported to be told")
    acquired(has_told, "what is imported to be told")
    Path(pool.expects(0, START)).write_text("torch\nnumpy\n")
    acquired(has_told, "what is imported to be told")
    assert told == [["torch"], ["torch"], ["torch", "numpy"]]


def test_what_was_imported_early_is_told_with_what_the_script_then_imports(
    agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script finds it imported, so that nothing is heard of it again."""
    monkeypatch.setattr(pools, "_QUIET_SECONDS", 0.05)
    for name in ("library", "another"):
        agent.library("", name)
    agent.script.write_text("import library, another\n")
    told: list[list[str]] = []
    agent.pool.tell(lambda names: told.append(names) is None)
    start = agent.start()
    agent.prestart(start)
    agent.pool.take(0, start, agent.pool.expects(0, start)).wait(DEADLINE)
    agent.until(lambda: told[-1:] == [["library", "another"]], "both imports to be told")


def test_what_a_process_asks_for_again_after_a_warm_start_takes_nothing_back(
    agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not there is asked for each time: in the first process in the state between the imports around it, and
    in a warm one in that after all of them."""
    for name, value in (("_QUIET_SECONDS", 0.05), ("_TICK_SECONDS", 0.01), ("_REST", 0.0)):
        monkeypatch.setattr(pools, name, value)
    agent.library("import warnings; warnings.simplefilter('ignore')")
    agent.library("import logging; logging.getLogger('second').setLevel('ERROR')", "second")
    agent.script.write_text(
        "import library\ntry:\n    import not_there\nexcept ImportError:\n    pass\nimport second\n"
    )
    all_of_them = ["library", "not_there", "second"]
    told: list[list[str]] = []
    agent.pool.give([])
    agent.pool.tell(lambda names: told.append([name for name in names if name in all_of_them]) is None)
    start, launch = agent.start(), Launch(agent.pool).popen
    agent.pool.watch()
    for _ in range(3):
        with agent.output.open("ab") as output:
            launch(
                args=start.arguments, env=start.environment, stdout=output, stderr=output, start_new_session=True
            ).wait(DEADLINE)
        agent.until(lambda: prestarted(agent), "all to be prestarted")
        agent.until(lambda: told[-1:] == [all_of_them], "all to be told")
    shorter = [len(names) for names in told]
    assert shorter == sorted(shorter)
    assert agent.told().count("starts warm") == 2


def prestarted(agent: Any) -> bool:
    process = agent.pool._prestarted.get(0)
    return process is not None and process.modules > 0 and "second" in process.imports


def test_processes_start_while_it_is_told(pool: Pool) -> None:
    """The sidecar may be away."""
    telling, started, in_time = threading.Event(), threading.Event(), []

    def tell(_: list[str]) -> bool:
        telling.set()
        in_time.append(started.wait(DEADLINE))
        return True

    pool.tell(tell)
    pool.watch()
    Path(pool.expects(0, START)).write_text("torch\n")
    happened(telling, "what is imported to be told")
    assert pool.take(0, START) is None
    started.set()
    pool.close()
    assert pool._thread is not None
    joined(pool._thread)
    assert in_time == [True]
