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

    def run_script(script, agent=None, **environment):
        file = tmp_path / "error.json"
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{TRAINER}:{tmp_path}",
            "TORCHELASTIC_ERROR_FILE": str(file),
            "ELASTICJOB_AGENT": f"{agent or os.getpid()}:123:{__name__}",
            "RANK": "3",
            **environment,
        }
        done = waiting.run([sys.executable, "-c", script], env=env)
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


@pytest.mark.parametrize("script", ["import sys; sys.exit(1)", "pass", "import os; os._exit(1)"])
def test_without_an_exception_nothing_is_kept(run, script):
    assert run(script)[1] is None


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
