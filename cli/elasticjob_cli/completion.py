# SPDX-License-Identifier: Apache-2.0
"""Completion in shells: for `kubectl-elasticjob` itself by click's scripts, for `kubectl elasticjob` as kubectl asks.

kubectl runs `kubectl_complete-elasticjob` with the words so far, the last one to be completed, and reads one
completion a line and then a directive; 4 says that no file names are meant.
"""

from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

from elasticjob_cli.errors import CliError

PROGRAM, VARIABLE = "kubectl-elasticjob", "_KUBECTL_ELASTICJOB_COMPLETE"
NO_FILES = ":4"
SHELLS = ("bash", "zsh", "fish")


def script(command: click.Command, shell: str) -> str:
    """What the shell has to read once."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CliError(f"there is no completion for {shell}: choose one of {', '.join(SHELLS)}")
    return kind(command, {}, PROGRAM, VARIABLE).source()


def answer(command: click.Command, words: Sequence[str]) -> list[str]:
    """What kubectl reads."""
    *before, incomplete = words or ("",)
    found = ShellComplete(command, {}, PROGRAM, VARIABLE).get_completions(list(before), incomplete)
    told = [f"{one.value}\t{one.help}" if one.help else str(one.value) for one in found if one.type == "plain"]
    return [*told, NO_FILES]
