# SPDX-License-Identifier: Apache-2.0
"""Training processes that are real ones, started as torch's agent would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINER = Path(__file__).parents[4] / "trainer"


@pytest.fixture
def started():
    """A list of processes, which are ended afterwards."""
    processes = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def start(tmp_path, started):
    """Start a script as torch's agent would, which this process is; `agent` is another one's pid."""

    def start_script(script, agent=None, options=(), through=()):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(TRAINER),
            "TORCHELASTIC_ERROR_FILE": str(error_file := tmp_path / f"error-{len(started)}.json"),
            "ELASTICJOB_AGENT": f"{agent or os.getpid()}:123:{__name__}",
        }
        errors = tmp_path / f"{len(started)}.log"
        with errors.open("w") as file:
            process = subprocess.Popen(
                [*through, sys.executable, *options, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=file
            )
        process.log, process.error_file = errors, error_file
        started.append(process)
        assert process.stdout.readline() == b"here\n"
        return process

    return start_script
