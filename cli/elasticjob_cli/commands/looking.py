# SPDX-License-Identifier: Apache-2.0
"""The commands that change nothing: status, why, history, logs."""

import json
import time
from contextlib import nullcontext
from functools import partial

import click
from rich.live import Live

from elasticjob_cli.cluster import logs as reading_logs
from elasticjob_cli.cluster.gather import gather
from elasticjob_cli.commands.options import Session, connected, job_argument
from elasticjob_cli.errors import CliError
from elasticjob_cli.output import views
from elasticjob_cli.output.console import console, group, is_terminal, plain, say, say_line, show, show_json
from elasticjob_cli.reading.look import look
from elasticjob_cli.reading.members import Rates, steps_of
from elasticjob_cli.reading.scene import Leader, Scene
from elasticjob_cli.why.answer import answer

WATCH_SECONDS = 2.0


@click.command()
@partial(job_argument, required=False)
@click.option("-w", "--watch", is_flag=True, help="Go on showing it, with rank 0's rate of steps, until interrupted.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Without JOB: the jobs of all namespaces.")
@connected()
def status(session: Session, job: str | None, watch: bool, everywhere: bool) -> None:
    """What JOB does: its round, its members, who is waited for, the last rounds. Without JOB, all jobs in a list."""
    if job is None:
        if watch:
            raise click.UsageError("--watch needs a JOB; `kubectl get elasticjobs --watch` shows them all")
        _list(session, everywhere)
        return
    if everywhere:
        raise click.UsageError("-A goes without JOB: a name is one of a namespace, which -n names")
    if watch:
        _watch(session, job)
        return
    seen = look(gather(session.cluster, job, session.lease))
    show_json(views.status_json(seen, {})) if session.as_json else show(*views.status_view(seen, {}))


@click.command()
@job_argument
@connected()
def why(session: Session, job: str) -> None:
    """Why JOB does not train at full size now, in one paragraph."""
    reply = answer(look(gather(session.cluster, job, session.lease)))
    show_json(reply.as_json()) if session.as_json else show(*views.why_view(reply))


@click.command()
@job_argument
@connected()
def history(session: Session, job: str) -> None:
    """The last rounds of JOB: their causes, their seconds, and which failures counted against maxRestarts."""
    seen = look(gather(session.cluster, job, session.lease))
    show_json(views.history_json(seen)) if session.as_json else show(*views.history_view(seen))


@click.command()
@job_argument
@click.option("--rank", type=click.IntRange(0), help="Only that rank, in whatever pod it is.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, over rounds and pods, until the job ends.")
@click.option("-c", "--container", default="", help="Another container than the trainer.")
@click.option("-p", "--previous", is_flag=True, help="The life of the container before this one.")
@click.option("--tail", type=click.IntRange(0), help="At most so many of the last lines of each pod.")
@connected(output=False)
def logs(
    session: Session, job: str, rank: int | None, follow: bool, container: str, previous: bool, tail: int | None
) -> None:
    """The logs of JOB's trainers: one rank's, or all of them with a prefix, in the order of time."""
    if follow and previous:
        raise click.UsageError("--previous and --follow exclude each other: what has ended says nothing more")
    choice = reading_logs.Choice(rank, container, previous, tail)
    if follow:
        for line in reading_logs.follow(session.cluster, job, choice):
            _print(line, prefix=rank is None)
        return
    seen = reading_logs.see(session.cluster, job)
    lines = reading_logs.past(session.cluster, seen, choice)
    for line in lines:
        _print(line, prefix=rank is None)
    if not lines and not reading_logs.chosen(seen, choice):
        what = f"container {container}" if container else "trainer"
        raise CliError(f"{job} has no {what} that has run; `kubectl elasticjob why {job}` says why")


def _print(line: reading_logs.Line, *, prefix: bool) -> None:
    who = f"[{'-' if line.rank is None else line.rank} {line.pod}] " if prefix else ""
    say_line(who, line.text)


def _list(session: Session, everywhere: bool) -> None:
    jobs = session.cluster.jobs(everywhere=everywhere)
    now = session.cluster.now
    looks = [look(Scene(job=job, leader=Leader(""), now=now)) for job in jobs]
    if session.as_json:
        show_json([views.list_json(one) for one in looks])
    elif looks:
        show(*views.list_view(looks, everywhere=everywhere))
    else:
        where = "in any namespace" if everywhere else f"in the namespace {session.cluster.namespace}; -A looks in all"
        say(f"There is no ElasticJob {where}.", err=True)


def _watch(session: Session, job: str) -> None:
    """For people on a terminal in place; else each time that it has changed, in JSON as one document a line."""
    rates = Rates()
    shown = ""
    in_place = is_terminal() and not session.as_json
    with Live(console=console(), auto_refresh=False) if in_place else nullcontext() as live:
        while True:
            seen = look(gather(session.cluster, job, session.lease))
            rates.note(steps_of(seen), seen.scene.now)
            known = rates.rates(seen.scene.now)
            parts = views.status_view(seen, known)
            if live:
                live.update(group(*parts), refresh=True)
            elif (text := plain(*parts)) != shown:
                shown = text
                say(json.dumps(views.status_json(seen, known)) if session.as_json else f"{text}\n")
            time.sleep(WATCH_SECONDS)
