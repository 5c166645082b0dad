# SPDX-License-Identifier: Apache-2.0
"""The command `kubectl elasticjob`, and how what goes wrong is told: a sentence, and an exit code."""

import sys
from typing import Any

import click

from elasticjob_cli import completion
from elasticjob_cli.commands import changing, looking
from elasticjob_cli.commands.options import placed
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.output.console import say


class Sentences(click.Group):
    """Says what went wrong in a sentence and exits with its code. Cluster and namespace may come before a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        left = super().parse_args(ctx, args)
        given = {name: text for name, text in ctx.params.items() if text}
        ctx.default_map = dict.fromkeys(self.commands, given)  # which may name others itself
        return left

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CliError as error:
            say(f"error: {error}", err=True)
            ctx.exit(error.code)
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="elasticjob-cli", message="%(version)s")
@placed
def cli(**_: str | None) -> None:
    """What ElasticJobs do, why they wait, and changes to them that are waited for."""


@click.command("completion")
@click.argument("shell", type=click.Choice(completion.SHELLS))
def print_completion(shell: str) -> None:
    """Print what SHELL reads to complete `kubectl-elasticjob`: `source <(kubectl-elasticjob completion bash)`."""
    click.echo(completion.script(cli, shell))


for command in (
    looking.status,
    looking.why,
    looking.history,
    looking.logs,
    changing.scale,
    changing.suspend,
    changing.resume,
    changing.restart,
    changing.run,
    print_completion,
):
    cli.add_command(command)


def main() -> None:
    cli(prog_name="kubectl elasticjob", complete_var=completion.VARIABLE)


def complete_for_kubectl() -> None:
    """The console script `kubectl_complete-elasticjob`, which kubectl runs."""
    click.echo("\n".join(completion.answer(cli, sys.argv[1:])))
