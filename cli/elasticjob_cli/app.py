# SPDX-License-Identifier: Apache-2.0
"""The command `kubectl elasticjob`, and how errors are reported: a sentence and an exit code.

A command's modules are imported when the command is called.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from elasticjob import __version__
from elasticjob_cli import completion
from elasticjob_cli.commands.options import placed
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.output.console import say

LOOKING = ("status", "why", "history", "logs")
CHANGING = ("scale", "suspend", "resume", "restart")


class Sentences(click.Group):
    """Reports an error in one sentence and exits with its code. Flags may also come before a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*LOOKING, *CHANGING, "run", "completion"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LOOKING:
            from elasticjob_cli.commands import looking

            return _command(looking, cmd_name)
        if cmd_name in CHANGING:
            from elasticjob_cli.commands import changing

            return _command(changing, cmd_name)
        if cmd_name == "run":
            from elasticjob_cli.commands.running import run

            return run
        return print_completion if cmd_name == "completion" else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {flag for option in self.params for flag in option.opts if not getattr(option, "is_flag", False)}
        return super().parse_args(ctx, command_first(args, self.list_commands(ctx), flags))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CliError as error:
            say(f"error: {error}", err=True)
            ctx.exit(error.code)
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)
        except BrokenPipeError:
            _end_as_kubectl()
            ctx.exit(Exit.REFUSED)


def command_first(words: Sequence[str], commands: Sequence[str], flags: set[str]) -> list[str]:
    """`words` with the first command name moved to the front. `flags`: the flags that take the following word as their
    value, even if it is a command's name. After any other flag, a word that is not a command's name is taken as its
    value."""
    before = ""
    for index, word in enumerate(words):
        if before not in flags:
            if word in commands:
                return [word, *words[:index], *words[index + 1 :]]
            if word in ("--", "--version") or not (word.startswith("-") or before.startswith("-")):
                break
        before = "" if before in flags else word
    return list(words)


def _command(module: Any, name: str) -> click.Command:
    found: click.Command = getattr(module, name)
    return found


def _end_as_kubectl() -> None:
    """The reader of the output has gone, for example `head`. End silently by the signal, as kubectl does."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)


@click.group(
    cls=Sentences,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="These options can stand before or after the command's name.",
)
@click.version_option(__version__, message="%(version)s")
@placed
def cli(**_: object) -> None:
    """Show what ElasticJobs do and why they wait, change them, and wait for the effect."""


@click.command("completion")
@click.argument("shell", type=click.Choice(completion.SHELLS))
def print_completion(shell: str) -> None:
    """Print the completion script of SHELL: `source <(kubectl-elasticjob completion bash)`."""
    click.echo(completion.script(cli, shell))


def main() -> None:
    gc.disable()  # until all is imported: garbage collection meanwhile takes a tenth of a call
    # pydantic has no plugins here, and would read the metadata of each package that is installed to find them
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    cli(prog_name="kubectl elasticjob", complete_var=completion.VARIABLE)


def complete_for_kubectl() -> None:
    """The console script `kubectl_complete-elasticjob`, which kubectl runs."""
    click.echo("\n".join(completion.answer(cli, sys.argv[1:])))
