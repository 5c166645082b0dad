# SPDX-License-Identifier: Apache-2.0
"""The commands that change nothing: status, why, history, logs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import click

from elasticjob_cli.cluster import logs as reading_logs
from elasticjob_cli.cluster.access import seconds_of
from elasticjob_cli.cluster.gather import gather, gather_all
from elasticjob_cli.commands.options import Session, connected, job_argument, length_of_time
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.output import documents, views
from elasticjob_cli.output.console import Screen, is_terminal, plain, say, say_line, show
from elasticjob_cli.output.tables import Paragraph, Part
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.members import Rates, steps_of
from elasticjob_cli.reading.scene import Leader, Scene
from elasticjob_cli.why.answer import answer

WATCH_SECONDS = 2.0


@dataclass(frozen=True)
class Shown:
    """What a command has found: `parts` for people, `document` for programs, and `names`. `nothing`: the message if
    there is nothing to show."""

    parts: Callable[[], Sequence[Part]]
    document: Callable[[], object]
    names: Sequence[str]
    nothing: str = ""


@click.command()
@partial(job_argument, required=False)
@click.option("-w", "--watch", is_flag=True, help="Keep showing it, with rank 0's step rate, until interrupted.")
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="Without JOB: list the jobs of all namespaces."
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="Without JOB: list only jobs with these labels.")
@connected("json", "yaml", "wide", "name", headers=True)
def status(session: Session, job: str | None, watch: bool, everywhere: bool, selector: str) -> None:
    """Show JOB: its round, its members, awaited workers, the last rounds. Without JOB, list all jobs."""
    if job is not None and everywhere:
        raise click.UsageError("-A goes without JOB: a name is one of a namespace, which -n names")
    if job is not None and selector:
        raise click.UsageError("--selector goes without JOB: it chooses among all jobs")
    rates = Rates()
    ask = partial(_one, session, job, rates) if job is not None else partial(_all, session, everywhere, selector)
    if watch:
        _watch(session, ask)
    else:
        _print(session, ask())


@click.command()
@job_argument
@connected("json", "yaml", "name")
def why(session: Session, job: str) -> None:
    """Say in one paragraph why JOB does not train at full size."""
    seen = look(gather(session.cluster, job, session.lease))
    _print(session, Shown(lambda: views.why_view(answer(seen)), lambda: documents.report(seen, {}), [seen.name]))


@click.command()
@job_argument
@connected("json", "yaml", "name", headers=True)
def history(session: Session, job: str) -> None:
    """Show the last rounds of JOB: causes, durations, and which failures counted against maxRestarts."""
    seen = look(gather(session.cluster, job, session.lease))
    _print(session, Shown(lambda: views.history_view(seen), lambda: documents.report(seen, {}), [seen.name]))


@click.command()
@job_argument
@click.option("--rank", type=click.IntRange(0), help="Only this rank, whichever pod it is in.")
@click.option("-f", "--follow", is_flag=True, help="Follow the logs over rounds and pods until the job ends.")
@click.option("-c", "--container", default="", help="Read this container instead of the trainer.")
@click.option("-p", "--previous", is_flag=True, help="Read the previous instance of the container.")
@click.option("--tail", type=click.IntRange(-1), help="At most this many last lines of each pod; -1 for all.")
@click.option(
    "--since", metavar="TIME", callback=length_of_time, help="Only lines that are not older than this, such as 5m."
)
@connected()
def logs(
    session: Session,
    job: str,
    rank: int | None,
    follow: bool,
    container: str,
    previous: bool,
    tail: int | None,
    since: str | None,
) -> None:
    """Print the logs of JOB's trainers: of one rank, or of all with a prefix, ordered by time."""
    if follow and previous:
        raise click.UsageError("--previous and --follow exclude each other: what has ended says nothing more")
    seconds = seconds_of(since) if since else None
    choice = reading_logs.Choice(rank, container, previous, None if tail == -1 else tail, seconds)
    if follow:
        for line in reading_logs.follow(session.cluster, job, choice):
            _say(line, prefix=rank is None)
        return
    seen = reading_logs.see(session.cluster, job)
    lines = reading_logs.past(session.cluster, seen, choice)
    for line in lines:
        _say(line, prefix=rank is None)
    if not lines and not reading_logs.chosen(seen, choice):
        what = f"container {container}" if container else "trainer"
        raise CliError(f"{job} has no {what} that has run; `kubectl elasticjob why {job}` says why", Exit.REFUSED)


def _say(line: reading_logs.Line, *, prefix: bool) -> None:
    who = f"[{'-' if line.rank is None else line.rank} {line.pod}] " if prefix else ""
    say_line(who, line.text)


def _one(session: Session, job: str, rates: Rates) -> Shown:
    seen = look(gather(session.cluster, job, session.lease))
    rates.note(steps_of(seen), seen.scene.now)
    known = rates.rates(seen.scene.now)
    return Shown(
        lambda: views.status_view(seen, known, wide=session.form == "wide"),
        lambda: documents.report(seen, known),
        [seen.name],
    )


def _all(session: Session, everywhere: bool, selector: str) -> Shown:
    """Complete reports are only for programs: the table is made of the jobs, without their pods."""
    cluster = session.cluster
    if session.is_document:
        scenes = gather_all(cluster, session.lease, everywhere=everywhere, selector=selector)
    else:
        jobs = cluster.jobs(everywhere=everywhere, selector=selector)
        scenes = [Scene(job=job, leader=Leader(""), now=cluster.now) for job in jobs]
    looks: list[Look] = [look(scene) for scene in scenes]
    where = "in any namespace" if everywhere else f"in the namespace {cluster.namespace}; -A looks in all"
    return Shown(
        lambda: views.list_view(looks, everywhere=everywhere, wide=session.form == "wide"),
        lambda: documents.reports([documents.report(one, {}) for one in looks]),
        [one.name for one in looks],
        f"There is no ElasticJob {f'with the labels {selector} ' if selector else ''}{where}.",
    )


def _print(session: Session, found: Shown) -> None:
    if session.is_document:
        click.echo(documents.written(found.document(), session.form))
    elif not found.names:
        say(found.nothing, err=True)
    elif session.form == "name":
        say("\n".join(map(documents.name_of, found.names)))
    else:
        show(found.parts(), headers=session.headers)


def _watch(session: Session, ask: Callable[[], Shown]) -> None:
    """On a terminal, shows the result in place. Otherwise prints it each time it changes, in JSON one document a
    line."""
    screen = Screen() if is_terminal() and session.form in ("", "wide") else None
    shown: object = None
    while True:
        found = ask()
        if screen:
            screen.show(found.parts() if found.names else [Paragraph.of(found.nothing)], headers=session.headers)
        elif (now := (plain(found.parts()), found.names)) != shown:
            shown = now
            _print_next(session, found)
        time.sleep(WATCH_SECONDS)


def _print_next(session: Session, found: Shown) -> None:
    if session.is_document:
        click.echo(documents.written(found.document(), session.form, on_one_line=True))
    else:
        _print(session, found)
        say("")
