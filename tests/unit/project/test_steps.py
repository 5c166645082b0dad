# SPDX-License-Identifier: Apache-2.0
"""The time left of a set-up, as hack/cluster/steps.sh tells it: at the pace of the machine that it runs on."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "hack/cluster/steps.sh"
# programs are compiled, then a node is built of them; images need neither
STEPS = """
step images 50 "" "" true
step programs 100 "" "" true
step node 20 "programs" "" true
afterwards=30
unset SECONDS  # as a plain variable it stands still
"""


def seconds_left(state: str) -> int:
    done = subprocess.run(
        ["bash", "-euc", f". {SCRIPT}\n{STEPS}\n{state}\nseconds_left"], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        pytest.param("", 100 + 20 + 30, id="at first, the usual times"),
        pytest.param("states[1]=running began[1]=0 SECONDS=60", 40 + 20 + 30, id="none has ended"),
        pytest.param("states[0]=ended took[0]=100", 200 + 40 + 60, id="a machine at half the speed"),
        pytest.param("states[0]=ended took[0]=25", 50 + 10 + 15, id="a machine at twice the speed"),
        pytest.param(
            "states=(ended running waiting) took[0]=50 began[1]=0 SECONDS=400", 40 + 60 + 90, id="one that is late"
        ),
        pytest.param("states=(ended ended running) took=(50 100) began[2]=0 SECONDS=19", 1 + 30, id="the last one"),
        pytest.param("states[0]=ended took[0]=0", 50 + 10 + 15, id="one that found its work done"),
    ],
)
def test_time_left(state: str, seconds: int) -> None:
    assert seconds_left(state) == seconds
