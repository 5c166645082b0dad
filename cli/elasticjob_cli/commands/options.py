# SPDX-License-Identifier: Apache-2.0
"""The options that all commands share: kubectl's own flags for the cluster and the user, and the output format.

Heavy modules are imported only when a command needs them: help, versions and completion have to be fast.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from elasticjob_cli.defaults import DEFAULT_LEASE

if TYPE_CHECKING:
    from elasticjob_cli.cluster.access import KubectlFlags
    from elasticjob_cli.cluster.connection import Cluster

F = TypeVar("F", bound=Callable[..., Any])

DOCUMENTS = ("json", "yaml")  # formats for programs
FORMS = {
    "json": "json and yaml for programs",
    "name": "name for names alone",
    "wide": "wide for more columns",
}


@dataclass
class Session:
    """One call of a command: its cluster, connected at first use, and its output. `form`: json, yaml, wide or name;
    empty for people. `headers`: whether tables have them."""

    flags: "KubectlFlags"
    lease: str
    form: str = ""
    headers: bool = True

    @cached_property
    def cluster(self) -> "Cluster":
        from elasticjob_cli.cluster.connection import Cluster

        return Cluster.connect(self.flags)

    @property
    def is_document(self) -> bool:
        return self.form in DOCUMENTS


def connected(*forms: str, headers: bool = False) -> Callable[[F], F]:
    """Gives the command a `Session` as its first argument, and the flags that it is made from. `forms`: the choices of
    `--output`."""

    def decorate(command: F) -> F:
        @wraps(command)
        def run(operator: str, **arguments: Any) -> Any:
            if not gc.isenabled():  # all is imported: the present objects are no garbage
                gc.freeze()
                gc.enable()
            given = {name: arguments.pop(name) for name in PLACE_NAMES}
            form = (arguments.pop("output") or "") if forms else ""
            has_headers = not arguments.pop("no_headers") if headers else True
            return command(Session(_flags(given), operator, form, has_headers), **arguments)

        for option in reversed([*PLACE, OPERATOR, *_printing(forms, headers=headers)]):
            run = option(run)
        return run  # type: ignore[return-value]

    return decorate


def job_argument(command: F, *, required: bool = True) -> F:
    return click.argument("job", required=required, callback=_job, shell_complete=complete_job)(command)


def _job(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A job's name, alone or after the resource's name, as for kubectl."""
    from elasticjob.api import GROUP, JOBS

    kinds = ("ej", "elasticjob", JOBS, f"{JOBS}.{GROUP}", f"elasticjob.{GROUP}")
    kind, slash, name = (value or "").rpartition("/")
    if slash and (kind.lower() not in kinds or not name):
        raise click.BadParameter(f"{value!r} is no ElasticJob: name the job, alone or as elasticjob/NAME")
    return name or None


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of jobs. Empty if the cluster does not answer, because a shell shows no errors."""
    from elasticjob_cli.cluster.connection import Cluster

    try:
        cluster = Cluster.connect(_flags(context.params))
        found = [str(job["metadata"]["name"]) for job in cluster.jobs()]
    except Exception:
        return []
    return [name for name in found if name.startswith(incomplete)]


def complete_context(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from elasticjob_cli.cluster import kubeconfig

    try:
        known = kubeconfig.read(context.params.get("kubeconfig"))
    except Exception:
        return []
    return [name for name in known.contexts if name.startswith(incomplete)]


def _flags(given: dict[str, Any]) -> "KubectlFlags":
    from elasticjob_cli.cluster.access import KubectlFlags, seconds_of

    known = {name: value for name, value in given.items() if name in KubectlFlags._fields and value}
    if timeout := given.get("request_timeout"):
        known["request_seconds"] = seconds_of(timeout)
    return KubectlFlags(**known)


def length_of_time(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Checks a duration as kubectl takes it, such as 30s, 5m or 1m30s; a number alone is in seconds."""
    if value is None:
        return None
    from elasticjob_cli.cluster.access import seconds_of

    try:
        seconds_of(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no length of time, such as 30s, 5m or 1h") from None
    return value


# accepted before the command's name and after it, as by kubectl
PLACE: tuple[Callable[[Any], Any], ...] = (
    click.option("--kubeconfig", metavar="FILE", help="The kubeconfig; by default KUBECONFIG, or ~/.kube/config."),
    click.option("--context", metavar="NAME", shell_complete=complete_context, help="The context of the kubeconfig."),
    click.option("-n", "--namespace", metavar="NAME", help="The namespace; by default that of the context."),
    click.option("-s", "--server", metavar="URL", help="The API server; by default that of the context."),
    click.option("--token", metavar="TOKEN", help="The bearer token to log in with."),
    click.option("--as", "as_user", metavar="USER", help="The user to act as."),
    click.option("--as-group", "as_groups", multiple=True, metavar="GROUP", help="A group to act as; may be repeated."),
    click.option("--as-uid", metavar="UID", help="The uid to act as."),
    click.option("--certificate-authority", metavar="FILE", help="The CA certificate of the API server."),
    click.option("--insecure-skip-tls-verify", "insecure", is_flag=True, help="Trust any certificate."),
    click.option(
        "--request-timeout",
        metavar="TIME",
        callback=length_of_time,
        help="Longest time for one request, such as 5s; 0 for no limit, 30s by default.",
    ),
)
PLACE_NAMES = (
    *("kubeconfig", "context", "namespace", "server", "token", "as_user", "as_groups", "as_uid"),
    *("certificate_authority", "insecure", "request_timeout"),
)


def placed(command: F) -> F:
    """Adds the options of `PLACE` to the group of all commands."""
    for option in reversed(PLACE):
        command = option(command)
    return command


def _lease(context: click.Context, parameter: click.Parameter, value: str) -> str:
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"{value!r} is not NAMESPACE/LEASE, such as {DEFAULT_LEASE}")
    return value


OPERATOR = click.option(
    "--operator",
    metavar="NAMESPACE/LEASE",
    envvar="ELASTICJOB_OPERATOR",
    default=DEFAULT_LEASE,
    callback=_lease,
    help=f"The leader's Lease; {DEFAULT_LEASE} by default, another if the release has another name.",
)


def _printing(forms: tuple[str, ...], *, headers: bool) -> list[Callable[[Any], Any]]:
    found: list[Callable[[Any], Any]] = []
    if forms:
        described = ", ".join(FORMS[form] for form in forms if form in FORMS)
        found.append(click.option("-o", "--output", type=click.Choice(forms), help=f"Output format: {described}."))
    if headers:
        found.append(click.option("--no-headers", is_flag=True, help="Print tables without column headers."))
    return found
