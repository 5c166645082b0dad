# SPDX-License-Identifier: Apache-2.0
"""What a process was started as, from its arguments and from /proc."""

import os
import subprocess
import sys

import pytest

from elasticjob_torch.agent import command_line
from elasticjob_torch.agent.command_line import script_of, start_of_container


@pytest.mark.parametrize(
    ("arguments", "script"),
    [
        (["/usr/bin/accelerate", "launch", "--num_processes", "4", "/work/train.py", "--lr", "0.1"], "train.py"),
        (["/work/own_launcher.py"], "own_launcher.py"),
        (["/usr/bin/my-launcher", "--config", "a.yaml"], "my-launcher"),
        (["x" * 300], "x" * 64),
        ([], ""),
    ],
)
def test_the_script_of_another_launcher_than_torchrun(arguments: list[str], script: str) -> None:
    assert script_of(arguments) == script


def test_all_processes_of_a_container_name_one_start(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "from elasticjob_torch.agent.command_line import start_of_container as s; print(s())"
    child = subprocess.run([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True, check=True)
    assert child.stdout.strip() == start_of_container() != ""


@pytest.mark.parametrize("above", ["pause", "containerd-shim", "conmon"])
def test_what_outlives_a_container_is_not_its_first_process(monkeypatch: pytest.MonkeyPatch, above: str) -> None:
    """As where a pod's containers share their processes, or the node's (`hostPID`)."""
    names = {1: "systemd", 5: above, 7: "bash", os.getpid(): "torchrun"}
    parents = {os.getpid(): ("30", 7), 7: ("20", 5), 5: ("15", 1), 1: ("10", 0)}
    monkeypatch.setattr(command_line, "name_of", names.__getitem__)
    monkeypatch.setattr(
        command_line, "read_stat", lambda pid: type("Stat", (), {"started": parents[pid][0], "parent": parents[pid][1]})
    )
    assert start_of_container() == "20"
