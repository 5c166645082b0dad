# SPDX-License-Identifier: Apache-2.0
"""The exception that ends a training process is kept for its agent, and nothing else of its process changes."""

import json
import os
import sys
from pathlib import Path

import pytest

from support import waiting

TRAINER = Path(__file__).parents[4] / "trainer"


@pytest.fixture
def run(tmp_path):
    """Run a script as torch's agent would, which this process is; returns its end and what it left behind."""

    def run_script(script, agent=None, command=(), **environment):
        file = tmp_path / "error.json"
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{TRAINER}:{tmp_path}",
            "TORCHELASTIC_ERROR_FILE": str(file),
            "ELASTICJOB_AGENT": f"{agent or os.getpid()}:123:{__name__}",
            "RANK": "3",
            **environment,
        }
        done = waiting.run([*(command or [sys.executable, "-c"]), script], env=env)
        return done, json.loads(file.read_text()) if file.exists() else None

    return run_script


def test_what_ends_a_worker_is_kept_and_shown(run):
    done, left = run("def f():\n    raise ValueError('no such data')\nf()")
    assert done.returncode == 1
    assert done.stderr.count("ValueError: no such data") == 1
    assert left["message"]["message"] == "ValueError: no such data"
    extra = left["message"]["extraInfo"]
    assert (extra["rank"], int(extra["timestamp"]) > 0) == ("3", True)
    assert "in f" in extra["py_callstack"]


def test_an_exception_that_says_nothing_is_its_name(run):
    assert run("raise KeyboardInterrupt")[1]["message"]["message"] == "KeyboardInterrupt"


@pytest.mark.parametrize("script", ["import sys; sys.exit(1)", "pass", "import os; os._exit(1)"])
def test_without_an_exception_nothing_is_kept(run, script):
    assert run(script)[1] is None


SWALLOWED = """
import sys, traceback
try:
    {}["shard"]
except KeyError:
    traceback.print_exc()
    sys.exit(1)
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('imagenet is not there')", "imagenet is not there"),
        ("raise SystemExit('imagenet is not there')", "imagenet is not there"),
        ("import argparse; argparse.ArgumentParser(prog='train').parse_args(['--lr'])", "train: error: unrecognized"),
        (SWALLOWED, "KeyError: 'shard'"),
        ("import logging; logging.error('no GPU'); exit(3)", "ERROR:root:no GPU"),
        ("import sys; print('50%\\r100%', end='\\r', file=sys.stderr); exit(3)", "100%"),
        ("import runpy; runpy._run_module_as_main('nowhere')", "No module named nowhere"),
    ],
)
def test_last_words_are_kept_where_no_exception_is(run, script, said):
    done, left = run(script)
    assert done.returncode != 0
    assert said in left["message"]["message"]
    assert left["message"]["message"].startswith("last on stderr: ")
    assert left["message"]["message"].removeprefix("last on stderr: ") in done.stderr
    assert left["message"]["extraInfo"]["rank"] == "3"


def test_a_script_that_is_not_there_is_named(run, tmp_path):
    done, left = run(str(tmp_path / "trian.py"), command=[sys.executable])
    assert (done.returncode, left["message"]["message"].count("trian.py")) == (2, 1)


def test_an_exception_is_kept_and_not_what_is_written_after_it(run):
    script = "import atexit, sys; atexit.register(print, 'bye', file=sys.stderr); raise ValueError('no such data')"
    assert run(script)[1]["message"]["message"] == "ValueError: no such data"


THROUGH_A_SHELL = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable]
FAILS = "raise ValueError('no such data')"


def test_a_wrapper_between_agent_and_script_hides_nothing(run):
    """As `torchrun --no-python bash bind.sh python3 train.py`."""
    assert run(FAILS, command=THROUGH_A_SHELL)[1]["message"]["message"] == "ValueError: no such data"


@pytest.mark.parametrize("command", [[sys.executable, "-c"], THROUGH_A_SHELL], ids=["itself", "through a shell"])
def test_what_a_worker_starts_is_no_worker(run, command):
    done, left = run(f"import subprocess; subprocess.run({[*command, FAILS]})")
    assert "no such data" in done.stderr
    assert left is None


def test_what_record_has_kept_stays(run):
    script = "import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{}'); raise ValueError('later')"
    assert run(script)[1] == {}


def test_a_process_that_a_worker_has_started_is_none(run):
    assert run("raise ValueError('caught by its parent')", agent=1)[1] is None


def test_outside_of_a_job_nothing_is_done(run):
    done, left = run("import sys; print(sys.excepthook is sys.__excepthook__)", ELASTICJOB_AGENT="")
    assert (done.stdout, left) == ("True\n", None)


def test_an_error_file_that_cannot_be_written_hides_no_exception(run):
    done, _ = run("raise ValueError('no such data')", TORCHELASTIC_ERROR_FILE="/nowhere/error.json")
    assert "ValueError: no such data" in done.stderr


def test_a_sitecustomize_of_the_image_runs_as_ever(run, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("THEIRS = True")
    done, _ = run("import sitecustomize; print(sitecustomize.THEIRS)")
    assert done.stdout == "True\n"
