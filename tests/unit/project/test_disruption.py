# SPDX-License-Identifier: Apache-2.0
"""What runc may fail to do on a busy machine is done again, and nothing else is."""

import pytest

from e2e import kind_machines
from e2e.kube import Answer, Failed

PAUSED = Answer(0, "node", "")
NOT_FROZEN = Answer(1, "", "Cannot pause container: OCI runtime pause failed: unable to freeze: unknown")
NO_NODE = Answer(1, "", "No such container: node")


def docker(monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> list[tuple[str, ...]]:
    """Give these answers in turn; return the commands."""
    left, commands = list(answers), list[tuple[str, ...]]()

    def run(*command: str) -> Answer:
        commands.append(command)
        return left.pop(0)

    monkeypatch.setattr(kind_machines, "run", run)
    return commands


def test_a_node_that_runc_could_not_freeze_is_paused_again(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = docker(monkeypatch, NOT_FROZEN, NOT_FROZEN, PAUSED)
    kind_machines.Kind().pause("node")
    assert commands == [("docker", "pause", "node")] * 3


def test_another_error_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = docker(monkeypatch, NO_NODE)
    with pytest.raises(Failed, match="docker pause node\nNo such container"):
        kind_machines.Kind().pause("node")
    assert len(commands) == 1
