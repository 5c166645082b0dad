# SPDX-License-Identifier: Apache-2.0
"""The options that all commands share: kubectl's own flags for the cluster, and how to print."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import click

from elasticjob.api import GROUP, JOBS
from elasticjob_cli.cluster import kubeconfig
from elasticjob_cli.cluster.connection import Cluster, Place
from elasticjob_cli.cluster.gather import DEFAULT_LEASE

KINDS = ("ej", "elasticjob", JOBS, f"{JOBS}.{GROUP}")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Session:
    """One call of a command: its cluster, which is connected when it is first used, and how it prints."""

    place: Place
    lease: str
    as_json: bool

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster.connect(self.place)


def connected(*, output: bool = True) -> Callable[[F], F]:
    """The command gets a `Session` first; it has the flags by which that is made."""

    def decorate(command: F) -> F:
        @wraps(command)
        def run(
            kubeconfig: str | None, context: str | None, namespace: str | None, operator: str, **arguments: Any
        ) -> Any:
            as_json = output and arguments.pop("output") == "json"
            return command(Session(Place(kubeconfig, context, namespace), operator, as_json), **arguments)

        for option in reversed(_options(output)):
            run = option(run)
        return run  # type: ignore[return-value]

    return decorate


def job_argument(command: F, *, required: bool = True) -> F:
    return click.argument("job", required=required, callback=_job, shell_complete=complete_job)(command)


def _job(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A job's name, alone or behind the resource's as kubectl takes it."""
    kind, slash, name = (value or "").rpartition("/")
    if slash and (kind.lower() not in KINDS or not name):
        raise click.BadParameter(f"{value!r} is no ElasticJob: name the job, alone or as elasticjob/NAME")
    return name or None


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of jobs; none where the cluster does not answer, as a shell shows no errors."""
    given = context.params
    try:
        cluster = Cluster.connect(Place(given.get("kubeconfig"), given.get("context"), given.get("namespace")))
        found = [str(job["metadata"]["name"]) for job in cluster.jobs()]
    except Exception:
        return []
    return [name for name in found if name.startswith(incomplete)]


def complete_context(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        known = kubeconfig.read(context.params.get("kubeconfig"))
    except Exception:
        return []
    return [name for name in known.namespaces if name.startswith(incomplete)]


# as kubectl takes them, before the command's name and after it
PLACE: tuple[Callable[[Any], Any], ...] = (
    click.option("--kubeconfig", metavar="FILE", help="The kubeconfig; else KUBECONFIG, or ~/.kube/config."),
    click.option("--context", metavar="NAME", shell_complete=complete_context, help="The kubeconfig's context."),
    click.option("-n", "--namespace", metavar="NAME", help="The namespace; else that of the context."),
)


def placed(command: F) -> F:
    """The group of all commands takes the options of `PLACE` too."""
    for option in reversed(PLACE):
        command = option(command)
    return command


def _options(output: bool) -> list[Callable[[Any], Any]]:
    found = [
        *PLACE,
        click.option(
            "--operator",
            metavar="NAMESPACE/LEASE",
            envvar="ELASTICJOB_OPERATOR",
            default=DEFAULT_LEASE,
            callback=_lease,
            help=f"The Lease of the operators that lead; {DEFAULT_LEASE} unless the release has another name.",
        ),
    ]
    if output:
        found.append(
            click.option("-o", "--output", type=click.Choice(["json"]), default=None, help="JSON, for programs.")
        )
    return found


def _lease(context: click.Context, parameter: click.Parameter, value: str) -> str:
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"{value!r} is not NAMESPACE/LEASE, such as {DEFAULT_LEASE}")
    return value
