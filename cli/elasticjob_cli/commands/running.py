# SPDX-License-Identifier: Apache-2.0
"""The command that makes a job: run."""

from dataclasses import replace
from typing import Any

import click

from elasticjob.objects import Object
from elasticjob_cli.commands.options import Session, connected
from elasticjob_cli.output import documents
from elasticjob_cli.output.console import say
from elasticjob_cli.plans.manifest import Wish, command, manifest


class RunCommand(click.Command):
    """Lets `--dry-run` stand alone, as for kubectl: the next word is not its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        own = ["--dry-run=client" if word == "--dry-run" else word for word in args[:end]]
        return super().parse_args(ctx, own + args[end:])


@click.command(cls=RunCommand)
@click.argument("name")
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", required=True, help="The image that holds torch and the script.")
@click.option("--replicas", type=click.IntRange(1), default=1, help="Number of workers; 1 by default.")
@click.option("--min-replicas", type=click.IntRange(1), help="Fewest workers that may train.")
@click.option("--max-replicas", type=click.IntRange(1), help="Most workers that may train.")
@click.option("--nproc-per-node", help="Training processes in each worker: a number, auto, cpu or gpu.")
@click.option("--max-restarts", type=click.IntRange(0), help="Failures of the training after which it is restarted.")
@click.option("--gpus", type=click.IntRange(0), default=0, help="GPUs of each worker, as nvidia.com/gpu.")
@click.option("--cpu", default="", metavar="QUANTITY", help="CPU that each worker requests, such as 4 or 500m.")
@click.option("--memory", default="", metavar="QUANTITY", help="Memory request and limit of each worker, such as 8Gi.")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable of the trainer; may be repeated."
)
@click.option("--claim", multiple=True, metavar="CLAIM=PATH", help="A PersistentVolumeClaim and where it is mounted.")
@click.option("--pull-secret", multiple=True, metavar="SECRET", help="A Secret with the registry's credentials.")
@click.option("--pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), default=None)
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server"]),
    help="Print the manifest and create nothing; `server` lets the API server check it.",
)
@connected("json", "yaml", "name")
def run(session: Session, name: str, script: tuple[str, ...], dry_run: str | None, **given: Any) -> None:
    """Make the job NAME, whose workers run SCRIPT and its arguments, which follow `--`.

    A script (`train.py`, `-m package.train`) runs under torchrun; another program (`accelerate launch ...`) as it is.
    """
    body = manifest(wish_of(name, script, **given))
    if dry_run != "client":
        body = _without_owners(session.cluster.create_job(body, dry_run=dry_run == "server"))
    made = body["metadata"]["name"]
    if session.form == "name":
        say(documents.name_of(made))
    elif session.is_document or dry_run:
        click.echo(documents.written(body, session.form or "yaml"))
    else:
        say(f"{documents.name_of(made)} created")


def _without_owners(body: Object) -> Object:
    """The object without managedFields, as kubectl shows it."""
    meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": meta}


def wish_of(
    name: str,
    script: tuple[str, ...],
    *,
    env: tuple[str, ...],
    claim: tuple[str, ...],
    pull_secret: tuple[str, ...],
    pull_policy: str | None,
    **given: Any,
) -> Wish:
    """The wish that the options describe. Raises CliError and click.BadParameter."""
    return replace(
        Wish(name=name, command=command(script), pull_secrets=pull_secret, pull_policy=pull_policy or "", **given),
        env=dict(_pairs("--env", env, "NAME=VALUE")),
        claims=_pairs("--claim", claim, "CLAIM=PATH"),
    )


def _pairs(flag: str, given: tuple[str, ...], form: str) -> list[tuple[str, str]]:
    found = []
    for one in given:
        key, equals, value = one.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{one!r} is not {form}", param_hint=flag)
        found.append((key, value))
    return found
