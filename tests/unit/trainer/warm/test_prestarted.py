# SPDX-License-Identifier: Apache-2.0
"""Prestarted processes: what they are to their script, and what becomes of those that cannot stand for an ordinary
start.

The contract tests have the same with torch.
"""

import itertools
import json
import os
import signal
from dataclasses import replace

import pytest

from elasticjob_torch.warm import handed as handed_module
from elasticjob_torch.warm.handed import SessionProgress
from support.waiting import exit_code, wait_until

LOOK = """
import library
import gc, json, os, resource, signal, sys, threading
import logging, warnings

def links():
    return {n: os.readlink(f"/proc/self/fd/{n}").split("(")[0] for n in os.listdir("/proc/self/fd") if int(n) < 3}

status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
    "modules": sorted(sys.modules),
    "meta_path": [getattr(each, "__name__", type(each).__name__) for each in sys.meta_path],
    "hooks": [each.__qualname__ for each in sys.path_hooks], "main": sorted(vars(sys.modules["__main__"])),
    "file": __file__, "name": __name__, "spec": str(__spec__ and __spec__.name),
    "importers": sorted(sys.path_importer_cache),
    "environment": {**os.environ, "ELASTICJOB_START": "ELASTICJOB_START" in os.environ},  # an id for each start
    "getitem": os._Environ.__getitem__.__qualname__,
    "iter": os._Environ.__iter__.__qualname__, "ours": sorted(vars(sys.modules["elasticjob_torch"])),
    "customize": sorted(vars(sys.modules["sitecustomize"])),
    "fds": links(), "numbers": sorted(int(n) for n in os.listdir("/proc/self/fd")), "parent": os.getppid(),
    "leads": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()], "cwd": os.getcwd(),
    "status": {
        name: value for name, value in status.items()
        if name.startswith(("SigB", "SigC", "SigI", "SigP", "ShdP", "Cap", "Umask", "Seccomp", "Thr"))
    },
    "nice": os.nice(0), "oom": open("/proc/self/oom_score_adj").read(),
    "limits": [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")],
    "signals": [str(signal.getsignal(n)).split(" at ")[0] for n in range(1, 32)], "filters": str(warnings.filters),
    "threads": [each.name for each in threading.enumerate()], "loggers": sorted(logging.root.manager.loggerDict),
    "hook": sys.excepthook.__qualname__, "gc": [gc.get_threshold(), gc.isenabled()],
    "stdout": [sys.stdout.line_buffering, sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.seekable()],
}))
"""


def differing(warm, ordinary):
    return {name: (warm[name], ordinary[name]) for name in warm if warm[name] != ordinary[name]}


def test_all_that_a_script_sees_is_as_in_an_ordinary_start(agent):
    agent.library("import json, logging, threading, warnings")
    agent.script.write_text(LOOK)
    start = agent.start(str(agent.script), "--lr", "1")
    ordinary = json.loads(agent.ordinary(start, str(agent.folder / "learned")))
    agent.prestart(start)
    assert differing(json.loads(agent.warm(start)), ordinary) == {}
    agent.heard("training process 0 starts warm: prestarted for ")


def test_a_module(agent):
    (agent.folder / "library" / "pkg").mkdir()
    (agent.folder / "library" / "pkg" / "__init__.py").write_text("")
    (agent.folder / "library" / "pkg" / "train.py").write_text(LOOK)
    agent.library("")
    start = agent.start("-m", "pkg.train", "--lr")
    ordinary = json.loads(agent.ordinary(start, str(agent.folder / "learned")))
    agent.prestart(start)
    assert differing(json.loads(agent.warm(start)), ordinary) == {}


def test_what_differs_from_round_to_round_comes_with_the_orders(agent):
    agent.library("import os; os.environ['SET_BY_IMPORT'] = '1'")
    agent.script.write_text("import os; print(*(os.environ.get(n) for n in ('RANK', 'WORLD_SIZE', 'SET_BY_IMPORT')))")
    agent.prestart(agent.start(RANK="1"))
    assert agent.warm(agent.start(RANK="2", WORLD_SIZE="5")) == "2 5 1\n"


def test_what_imports_print_comes_before_what_the_script_prints(agent):
    agent.library("import os, sys; print('out'); print('err', file=sys.stderr); os.write(1, b'raw\\n')")
    agent.script.write_text("import library; print('script')")
    start = agent.start()
    process = agent.prestart(start)
    assert agent.output.read_text() == ""
    assert sorted(agent.warm(start).splitlines()) == ["err", "out", "raw", "script"]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("script", "code"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9), ("1 / 0", 1)]
)
def test_exit_codes(agent, script, code):
    agent.library("")
    agent.script.write_text(script)
    start = agent.start()
    process = agent.prestart(start)
    agent.warm(start)
    assert process.returncode == code


def test_an_exception_is_kept_for_the_agent(agent):
    agent.library("")
    agent.script.write_text("def f():\n    raise ValueError('no such data')\nf()")
    agent.prestart(agent.start(TORCHELASTIC_ERROR_FILE=str(agent.folder / "of-the-round-before")))
    assert agent.warm(agent.start(RANK="5")).count("ValueError: no such data") == 1
    message = json.loads((agent.folder / "error.json").read_text())["message"]
    assert (message["message"], message["extraInfo"]["rank"]) == ("ValueError: no such data", "5")


@pytest.mark.parametrize("library", ["VALUE = 1", "import os; VALUE = os.environ['RANK']"])
def test_a_process_keeps_the_id_of_its_own_start(agent, library):
    """Whether it trains as it is or starts anew: by it the agent tells what it leaves behind from what it prestarts."""
    agent.library(library)
    agent.script.write_text("import os, library; print(os.environ['ELASTICJOB_START'])")
    agent.prestart(agent.start(RANK="1"))
    (own,) = agent.pool.living()
    assert agent.warm(agent.start(RANK="2")) == f"{own}\n"
    assert agent.pool.living() == set()


def test_code_that_was_edited_meanwhile_is_read_anew(agent):
    agent.library("VALUE = 1")
    agent.script.write_text("import library; print(library.VALUE)")
    start = agent.start()
    agent.prestart(start)
    agent.library("VALUE = 2  # longer")
    assert agent.warm(start) == "2\n"
    agent.heard("library.py has changed")


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "a thread"),
        ("import subprocess; PROCESS = subprocess.Popen(['sleep', '60'])", "library starts a process"),
        ("import sys; sys.path.insert(0, '/elsewhere')", "library changes sys.path"),
        ("import os; os.chdir('/')", "library changes the working directory"),
        ("raise OSError('no such device')", "library raises OSError: no such device"),
        ("import missing_module", "library raises ModuleNotFoundError"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "a prestarted process ended in library, exit code -11",
        ),
        ("import own", "library imports own, which the script's folder has"),
    ],
)
def test_an_import_that_cannot_be_early_is_left_out(agent, library, why):
    (agent.script.parent / "own.py").write_text("")
    agent.library(library)
    agent.script.write_text("")
    start = agent.start()
    assert agent.prestart(start) is None
    agent.heard("not imported early any more: library")
    assert why in agent.told()
    agent.pool.start(0, start)
    assert agent.pool.take(0, start) is None  # there is nothing left to import


def test_a_module_that_is_not_there_is_none_of_its_own_business(agent):
    agent.script.write_text("print('trained')")
    start = agent.start()
    agent.prestart(start)
    assert agent.warm(start) == "trained\n"


def test_what_an_import_starts_and_ends_is_its_own(agent):
    agent.library("import subprocess, threading; subprocess.run(['true']); t = threading.Thread(); t.start(); t.join()")
    agent.script.write_text("import library; print('trained')")
    start = agent.start()
    agent.prestart(start)
    assert agent.warm(start) == "trained\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()", "starts a thread"),
        ("raise OSError('broken')", "OSError: broken"),
    ],
)
def test_a_sitecustomize_that_wants_a_process_of_its_own(agent, text, why):
    agent.library(text, "sitecustomize")
    agent.script.write_text("print('must not run')")
    assert agent.prestart(agent.start()) is None
    agent.heard("processes start in the ordinary way from now on")
    assert why in agent.told()
    assert agent.output.read_text() == ""


def test_the_images_sitecustomize_runs_as_ever(agent):
    agent.library("THEIRS = True", "sitecustomize")
    agent.library("")
    agent.script.write_text("import sitecustomize; print(sitecustomize.THEIRS)")
    start = agent.start()
    agent.prestart(start)
    assert agent.warm(start) == "True\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"OMP_NUM_THREADS": "2"}, "its environment variable OMP_NUM_THREADS is another"),
        ({"PYTHONHASHSEED": "2"}, "its environment variable PYTHONHASHSEED is another"),
    ],
)
def test_another_environment_takes_the_ordinary_start(agent, change, why):
    agent.library("")
    agent.script.write_text("")
    process = agent.prestart(agent.start())
    assert agent.pool.take(0, agent.start(**change)) is None
    assert why in agent.told()
    assert process.returncode == -signal.SIGKILL


def test_another_command_takes_the_ordinary_start(agent):
    agent.library("")
    agent.script.write_text("")
    agent.prestart(agent.start())
    assert agent.pool.take(0, agent.start(str(agent.script), "--lr")) is None
    assert "it has another command" in agent.told()


def test_another_mask_takes_the_ordinary_start(agent):
    agent.library("")
    agent.script.write_text("")
    agent.prestart(agent.start())
    before = os.umask(0o77)
    try:
        start = agent.start()
    finally:
        os.umask(before)
    assert agent.pool.take(0, start) is None
    assert "it has another umask" in agent.told()


def test_a_prestarted_process_that_was_killed_is_not_used(agent):
    agent.library("")
    agent.script.write_text("")
    start = agent.start()
    process = agent.prestart(start)
    process.kill()
    process.wait()
    assert agent.pool.take(0, start) is None


def test_orders_that_come_while_it_imports_are_carried_out_after_that_import(agent, monkeypatch):
    agent.library("import time, os\nwhile not os.path.exists('go'): time.sleep(0.01)")
    agent.library("raise RuntimeError('the script has asked for it')", "second")
    agent.script.write_text("import sys, library; print('second' in sys.modules)")
    agent.pool.give(["library", "second"])
    monkeypatch.chdir(agent.folder)
    start = agent.start()
    agent.pool.start(0, start)
    agent.pool.watch()
    agent.until(lambda: agent.pool._prestarted[0].doing == "library", "the import to begin")
    process = agent.pool.take(0, start)
    (agent.folder / "go").touch()
    assert exit_code(process) == 0
    assert agent.output.read_text() == "False\n"
    agent.heard("; the script still imports second")


@pytest.mark.parametrize(
    "late",
    [
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "raise OSError('no such device')",
        "import os; os.chdir('/')",
        "import os; os.environ['RANK']",
    ],
)
def test_one_that_was_ordered_to_train_does_so_even_if_an_import_then_shows_to_be_no_early_one(agent, late):
    go = agent.folder / "go"
    agent.library(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{late}")
    agent.script.write_text("import os; print(os.getcwd(), os.environ['RANK'])")
    agent.pool.start(0, agent.start(RANK="1"))
    agent.pool.watch()
    agent.until(lambda: agent.pool._prestarted[0].doing == "library", "the import to begin")
    process = agent.pool.take(0, agent.start(RANK="2"))
    go.touch()
    assert exit_code(process) == 0
    assert agent.output.read_text() == f"{os.getcwd()} 2\n"
    agent.heard("training process 0 starts in the ordinary way: library")


def test_none_is_left_when_the_pool_is_closed(agent):
    agent.library("")
    process = agent.prestart(agent.start())
    agent.pool.close()
    assert process.returncode == -signal.SIGKILL


def test_none_outlives_its_agent(agent):
    agent.library("")
    process = agent.prestart(agent.start())
    agent.pool._prestarted[0].link.close()  # as the kernel does for a killed one
    assert exit_code(process) == 1


def test_none_that_hangs_in_an_import_outlives_its_agent(agent):
    agent.library("import threading; threading.Event().wait()")
    start = agent.start()
    agent.pool.start(0, start)
    agent.pool.watch()
    agent.until(lambda: agent.pool._prestarted[0].doing == "library", "the import to begin")
    prestarted = agent.pool._prestarted[0]
    prestarted.let_go()  # as the kernel does for a killed one
    assert exit_code(prestarted.popen) == -signal.SIGIO


def test_one_that_trains_outlives_its_agents_end_of_the_lifeline(agent):
    agent.library("")
    go = agent.folder / "go"
    agent.script.write_text(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    start = agent.start()
    agent.prestart(start)
    process = agent.pool.take(0, start)
    agent.heard("training process 0 starts warm")
    agent.until(lambda: not agent.pool._handed.processes, "its agent to let it go")
    go.touch()
    assert exit_code(process) == 0


def test_many_at_once(agent):
    agent.library("")
    # one write: with -u print makes two, between which those of the others may come
    agent.script.write_text("import os; os.write(1, b'trained\\n')")
    start = agent.start()
    for rank in range(4):
        agent.pool.start(rank, start)
    processes = [agent.pool.take(rank, start) for rank in range(4)]
    assert [exit_code(process) for process in processes] == [0] * 4
    assert agent.output.read_text() == "trained\n" * 4


SEES = """
import sys
MAIN = sys.modules["__main__"]
SEEN = [sys.argv, sys.path, MAIN.__name__, getattr(MAIN, "__file__", None)]
SEEN = repr(SEEN)
"""


@pytest.mark.parametrize("how", ["script", "module", "package"])
def test_an_import_sees_the_same_of_its_script(agent, monkeypatch, how):
    monkeypatch.chdir(agent.script.parent)
    (agent.script.parent / "pkg").mkdir()
    agent.library(SEES)
    for file in ("train.py", "pkg/train.py", "pkg/__main__.py"):
        (agent.script.parent / file).write_text("import library, sys; print(library.SEEN, sys.path, sys.argv)")
    start = agent.start(*{"script": ["train.py"], "module": ["-m", "pkg.train"], "package": ["-m", "pkg"]}[how], "--lr")
    ordinary = agent.ordinary(start)
    agent.prestart(start)
    assert agent.warm(start) == ordinary
    agent.heard("training process 0 starts warm")


def test_the_images_sitecustomize_sees_nothing_of_the_script(agent):
    agent.library(SEES, "sitecustomize")
    agent.library("")
    agent.script.write_text("import sitecustomize; print(sitecustomize.SEEN)")
    start = agent.start()
    ordinary = agent.ordinary(start)
    agent.prestart(start)
    assert agent.warm(start) == ordinary


def test_nothing_is_prestarted_that_would_write_to_a_terminal(agent):
    agent.library("")
    ours, theirs = os.openpty()
    try:
        start = agent.start()
        agent.pool.start(0, replace(start, outputs=(theirs, start.outputs[1])))
    finally:
        os.close(ours)
        os.close(theirs)
    assert agent.pool._prestarted == {}
    assert "they write to a terminal" in agent.told()


@pytest.fixture
def in_an_import(agent):
    """A process that was ordered to train in the middle of an import, which ends when a file is there."""
    go = agent.folder / "go"
    agent.library(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    agent.script.write_text("print('trained')")
    start = agent.start()
    agent.pool.start(0, start)
    agent.pool.watch()
    agent.until(lambda: agent.pool._prestarted[0].doing == "library", "the import to begin")
    return agent.pool.take(0, start), go


def test_one_that_hangs_in_an_import_is_killed_some_time_after_its_orders(agent, monkeypatch, in_an_import):
    process, _ = in_an_import
    agent.pool._handed.progress[0] = SessionProgress(lambda: (0, 0))
    monkeypatch.setattr(handed_module, "_STILL_SECONDS", 0.1)
    assert exit_code(process) == -signal.SIGKILL
    agent.heard("not imported early any more: library (it hangs when it is early")
    assert agent.pool.has_killed()
    assert not agent.pool.has_killed(), "told once"


def test_one_that_makes_progress_may_take_longer(agent, monkeypatch, in_an_import):
    process, go = in_an_import
    work = itertools.count()
    agent.pool._handed.progress[0] = SessionProgress(lambda: (next(work), 0))
    monkeypatch.setattr(handed_module, "_STILL_SECONDS", 0.0)
    wait_until("many looks at it", lambda: next(work) > 5)
    go.touch()
    assert exit_code(process) == 0
    assert agent.output.read_text() == "trained\n"
    assert not agent.pool.has_killed()


def test_but_not_for_ever(agent, monkeypatch, in_an_import):
    work = itertools.count()
    agent.pool._handed.progress[0] = SessionProgress(lambda: (next(work), 0))
    monkeypatch.setattr(handed_module, "_ANSWER_SECONDS", 0.1)
    assert exit_code(in_an_import[0]) == -signal.SIGKILL
