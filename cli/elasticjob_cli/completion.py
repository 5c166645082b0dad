# SPDX-License-Identifier: Apache-2.0
"""Completion in shells: by click's scripts for `kubectl-elasticjob`, and by kubectl's protocol for `kubectl
elasticjob`.

kubectl runs `kubectl_complete-elasticjob` with the words so far, of which the last is to be completed. It reads one
completion a line and then a directive; 4 means that no file names are expected.
"""

from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

from elasticjob_cli.errors import CliError

PROGRAM, VARIABLE = "kubectl-elasticjob", "_KUBECTL_ELASTICJOB_COMPLETE"
NO_FILES = ":4"
SHELLS = ("bash", "zsh", "fish")


def script(command: click.Command, shell: str) -> str:
    """The script that the shell has to read once."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CliError(f"there is no completion for {shell}: choose one of {', '.join(SHELLS)}")
    return kind(command, {}, PROGRAM, VARIABLE).source()


def answer(command: click.Command, words: Sequence[str]) -> list[str]:
    """The lines that kubectl reads."""
    *before, incomplete = words or ("",)
    found = ShellComplete(command, {}, PROGRAM, VARIABLE).get_completions(list(before), incomplete)
    lines = [f"{one.value}\t{one.help}" if one.help else str(one.value) for one in found if one.type == "plain"]
    return [*lines, NO_FILES]
