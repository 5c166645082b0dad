# SPDX-License-Identifier: Apache-2.0
"""When processes are prestarted, what they import early, and how torch's agent gets them."""

import selectors
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from elasticjob_torch.warm import handed as handed_module
from elasticjob_torch.warm import pool as pool_module
from elasticjob_torch.warm import room
from elasticjob_torch.warm.launch import Launch
from elasticjob_torch.warm.orders import LEARN
from support.waiting import exit_code


@pytest.fixture
def launch(agent, monkeypatch):
    """Starts the script as torch does; returns the process."""
    monkeypatch.setattr(pool_module, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(pool_module, "_TICK_SECONDS", 0.02)
    monkeypatch.setattr(pool_module, "_REST", 0.0)
    agent.library("")
    agent.library("", "second")
    agent.script.write_text("import library, second; print('trained')")
    start = Launch(agent.pool).popen

    def run(rank=0, **options):
        given = agent.start()
        environment = {**given.environment, "LOCAL_RANK": str(rank)}
        agent.pool.watch()
        with agent.output.open("ab") as output:
            options = {"args": given.arguments, "env": environment, "start_new_session": True, **options}
            process = start(stdout=output, stderr=output, **options)
        assert exit_code(process) == 0, agent.output.read_text()
        return process

    return run


def prestarted(agent, rank=0):
    found = agent.pool._prestarted.get(rank)
    return found is not None and found.modules and found.imports


def test_while_a_round_trains_the_next_processes_are_prestarted_with_what_this_one_imported(agent, launch):
    agent.pool.give([])
    launch()
    agent.until(lambda: prestarted(agent) == ["library", "second"], "a prestarted process that has imported both")
    pid = agent.pool._prestarted[0].popen.pid
    assert launch().pid == pid
    agent.heard("training process 0 starts warm")


def test_a_worker_that_waits_for_its_first_round_says_that_it_is_ready(agent):
    """As a spare does, perhaps for days."""
    agent.library("")
    agent.prestart(agent.start())
    agent.heard("prestarted for the first round: processes 1, modules ")


def test_each_process_of_a_worker_has_its_own(agent, launch):
    for rank in (0, 1):
        launch(rank)
    agent.until(lambda: prestarted(agent, 0) and prestarted(agent, 1), "two prestarted processes")
    pids = [agent.pool._prestarted[rank].popen.pid for rank in (0, 1)]
    assert [launch(rank).pid for rank in (0, 1)] == pids


def test_processes_of_one_start_that_share_a_local_rank_are_ordinary_ones(agent, launch):
    """As with torchrun's --virtual-local-rank."""
    launch()
    agent.until(lambda: prestarted(agent), "a prestarted process")
    go_on = agent.folder / "go_on"
    agent.script.write_text(f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)")
    start, given = Launch(agent.pool).popen, agent.start()
    options = {"args": given.arguments, "env": given.environment, "start_new_session": True}
    processes = [start(stdout=given.outputs[0], stderr=given.outputs[1], **options) for _ in range(3)]
    agent.pool.start(0, given)
    assert agent.pool._prestarted == {}
    go_on.touch()
    assert [exit_code(process) for process in processes] == [0, 0, 0]
    assert agent.told().count("from now on: more than one process has LOCAL_RANK 0") == 1


def test_what_is_learned_later_is_imported_too(agent, launch):
    launch()
    agent.until(lambda: prestarted(agent) == ["library", "second"], "what was given, and then what was learned")


def test_what_a_warm_process_had_imported_stays_known_with_what_it_imports_itself(agent, launch):
    agent.prestart(agent.start())
    launch()
    agent.heard("training process 0 starts warm")
    agent.until(lambda: prestarted(agent) == ["library", "second"], "a prestarted process that has imported both")


def test_what_was_learned_is_told(agent, launch):
    told = []
    agent.pool.tell(lambda names: told.append(names) is None)
    launch()
    agent.until(lambda: told and told[-1] == ["library", "second"], "the imports")


def test_the_next_one_is_prestarted_without_an_import_that_cannot_be_early(agent, launch):
    agent.library("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "second")
    launch()
    agent.heard("not imported early any more: second (second starts a thread)")
    agent.until(lambda: prestarted(agent) == ["library"], "a prestarted process without it")


@pytest.mark.parametrize("cautious", [True, False])
def test_no_process_is_prestarted_where_there_is_no_room(agent, launch, monkeypatch, cautious):
    agent.pool._reserve.cautious = cautious
    kept = 200 if cautious else 100
    free = [399 + kept]
    monkeypatch.setattr(room, "rooms", lambda: [room.Room(free[0] << 20, 100 << 20)])
    launch()
    agent.heard(f"a prestarted one needs 400 MiB, beside which {kept} MiB are kept for the training")
    agent.heard(f"this container has room for {free[0]} MiB")
    assert agent.pool._prestarted == {}
    free[0] += 1
    agent.until(lambda: prestarted(agent), "a prestarted process")
    assert agent.told().count("a prestarted one needs") == 1


def test_prestarted_processes_are_ended_when_the_training_needs_their_room(agent, launch, monkeypatch):
    """All of the container would be ended else, where the kernel ends a group of processes."""
    free = [1000]
    monkeypatch.setattr(room, "rooms", lambda: [room.Room(free[0] << 20, 100 << 20)])
    launch()
    agent.until(lambda: prestarted(agent), "a prestarted process")
    process = agent.pool._prestarted[0].popen
    free[0] = 99
    agent.until(lambda: not agent.pool._prestarted, "the end of the prestarted process")
    assert process.returncode == -signal.SIGKILL
    agent.heard("this container has 99 MiB of memory left, and 100 are kept for the training")
    free[0] = 1000
    launch()
    assert agent.pool._prestarted == {}, "what has run short once would again"


def test_the_room_of_those_that_import_yet_is_not_given_to_another(agent, monkeypatch):
    monkeypatch.setattr(room, "rooms", lambda: [room.Room(500 << 20, 0)])
    monkeypatch.setattr(room, "cpus", lambda: 32)
    agent.library("")
    for rank in (0, 1):
        agent.pool.expects(rank, agent.start(LOCAL_RANK=str(rank)))
    agent.pool._changed = -1e9  # long ago
    agent.pool._refill()
    assert list(agent.pool._prestarted) == [0]
    assert "MiB" not in agent.told()  # it may have room when that one has its imports
    agent.pool.watch()
    agent.until(
        lambda: prestarted(agent, 0) and prestarted(agent, 1),
        "two prestarted processes, which need less than was guessed",
    )


def test_where_nothing_can_be_early_it_is_said_once(agent, launch):
    agent.pool.give([])
    agent.script.write_text("import os; os.environ['A'] = '1'; import library")
    launch()
    # what Python itself has imported by then differs between versions
    agent.until(lambda: "nothing can be imported early" in agent.told() or prestarted(agent), "either")
    assert not prestarted(agent) or "library" not in prestarted(agent)


def test_but_not_where_something_was_learned_that_cannot_be_early(agent, launch):
    agent.pool.give([])
    launch()
    agent.until(lambda: prestarted(agent), "a prestarted process")
    agent.pool.give_up("the test prestarts no more")
    for name in agent.pool._learned.imports(0):
        agent.pool._learned.leave_out(name, "", "the test says so")
    assert not agent.pool._learned.imports(0)
    agent.pool._refill()
    assert "nothing can be imported early" not in agent.told()


def test_what_ends_early_imports_is_said_where_torch_is_not_among_them(agent, launch):
    agent.script.write_text("import os, library; os.environ['A'] = '1'; import second")
    launch()
    agent.heard("not imported early: what the script imports after library (os.putenv)")


@pytest.mark.parametrize(
    "options",
    [
        {"args": ("/bin/true",)},
        {"args": (sys.executable, "-c", "pass")},
        {"cwd": "/"},
        {"start_new_session": False},
    ],
)
def test_what_is_not_torchs_usual_start_is_an_ordinary_one(agent, launch, options):
    launch()
    agent.until(lambda: prestarted(agent), "a prestarted process")
    pid = agent.pool._prestarted[0].popen.pid
    assert launch(**options).pid != pid


def test_the_ordinary_start_is_popens_own(agent, launch, monkeypatch):
    seen = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda **options: seen.append(options) or real(**options))
    launch()
    assert seen[0].keys() == {"args", "env", "stdout", "stderr", "start_new_session"}
    assert LEARN in seen[0]["env"]


def test_a_closed_pool_parks_no_more(agent, launch):
    launch()
    agent.pool.close()
    agent.pool.start(0, agent.start())
    assert agent.pool._prestarted == {}
    assert launch().returncode == 0


def no_descriptor():
    raise OSError("too many open files")


def test_when_the_watch_ends_by_an_error_none_stays_prestarted_that_nobody_watches(agent, launch, monkeypatch):
    launch()
    agent.until(lambda: prestarted(agent), "a prestarted process")
    process = agent.pool._prestarted[0].popen
    monkeypatch.setattr(selectors, "DefaultSelector", no_descriptor)
    agent.until(lambda: not agent.pool._prestarted, "the end of the prestarted process")
    assert process.returncode == -signal.SIGKILL
    agent.heard("processes start in the ordinary way from now on: nobody watches prestarted ones any more")
    assert "too many open files" in agent.log.text
    assert launch().returncode == 0
    assert agent.pool._prestarted == {}


def test_a_process_on_its_way_has_its_bound_even_then(agent, launch, monkeypatch):
    begun = agent.folder / "begun"
    agent.library(f"import pathlib, signal; pathlib.Path({str(begun)!r}).touch(); signal.sigwait({{signal.SIGUSR1}})")
    start = agent.start()
    agent.pool.start(0, start)
    agent.until(begun.exists, "an import that hangs")
    process = agent.pool.take(0, start)
    monkeypatch.setattr(handed_module, "_STILL_SECONDS", 0.1)
    monkeypatch.setattr(selectors, "DefaultSelector", no_descriptor)
    agent.pool.watch()
    assert exit_code(process) == -signal.SIGKILL


def test_a_torch_of_another_shape_is_left_alone():
    from elasticjob_torch.warm import ahead, launch

    class Handler:
        def _popen(self, args, env):
            return subprocess.Popen(args, env=env)

    class Other:
        def _popen(self, args, env):
            return args

    def module(**names):
        return SimpleNamespace(**{"SubprocessHandler": Handler, "Popen": subprocess.Popen, **names})

    assert (
        launch._cannot(module()) == "the plug-in's sitecustomize is not the one that Python imports at its start here"
    )
    ahead._startup = dict(ahead._read_at_start())
    try:
        assert launch._cannot(module()) is None
        older = SimpleNamespace(SubprocessHandler=Handler, subprocess=subprocess)
        assert launch._cannot(older) is None
        assert launch._cannot(module(SubprocessHandler=Other)) == "this torch starts its processes in another way"
        assert launch._cannot(SimpleNamespace()) == "this torch starts its processes in another way"
        taken = "something else has taken the place of subprocess.Popen in torch"
        assert launch._cannot(module(Popen=print)) == taken
        launch._take_the_place(older, launch.Launch(None).popen)
        assert older.subprocess.Popen is not subprocess.Popen
        assert older.subprocess.run is subprocess.run
        assert launch._cannot(older) is None
    finally:
        ahead._startup = None
