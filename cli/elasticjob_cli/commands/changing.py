# SPDX-License-Identifier: Apache-2.0
"""The commands that change a job: scale, suspend, resume, restart, run. Each says what it does, and waits for it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click
import yaml

from elasticjob.reading import Pod
from elasticjob.rendezvous.words import round_of
from elasticjob_cli.cluster.connection import ApiError, may_pass
from elasticjob_cli.cluster.gather import gather
from elasticjob_cli.cluster.logs import see
from elasticjob_cli.cluster.waits import Late, glance, wait_until
from elasticjob_cli.commands.options import Session, connected, job_argument
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.output.console import say, show_json
from elasticjob_cli.plans.manifest import Wish, command, manifest
from elasticjob_cli.plans.restarting import restart_plan
from elasticjob_cli.plans.scaling import check, forms_no_round, plan
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.times import length
from elasticjob_cli.reading.words import plural
from elasticjob_cli.why.answer import answer

DEADLINE_SECONDS = 600


def waits(command: Any) -> Any:
    """The options of a command that waits."""
    seconds = click.FloatRange(min=0, min_open=True)
    deadline = f"Seconds to wait at most; {DEADLINE_SECONDS} unless given."
    command = click.option("--timeout", type=seconds, default=DEADLINE_SECONDS, metavar="SECONDS", help=deadline)(
        command
    )
    return click.option("--no-wait", is_flag=True, help="Return as soon as the API server has taken it.")(command)


@click.command()
@job_argument
@click.argument("replicas", type=click.IntRange(1))
@waits
@connected()
def scale(session: Session, job: str, replicas: int, timeout: float, no_wait: bool) -> None:
    """Run JOB with REPLICAS workers: says what will happen, waits for the round, says how long it took."""
    before = see(session.cluster, job)
    check(job, before.spec, replicas)
    planned = plan(before, replicas)
    if before.has_ended:
        raise CliError(planned, Exit.JOB_ENDED)
    _say(session, planned)
    if before.spec.replicas != replicas:
        session.cluster.scale_job(job, replicas)
    if no_wait or before.spec.suspend or before.is_closed or forms_no_round(before, replicas):
        _result(session, {"job": job, "replicas": replicas, "waited": False})
        return
    what = f"a round of {plural(replicas - len(before.finished), 'worker')}"
    done, seconds = _wait(session, job, what, lambda seen: _is_formed(seen, replicas), timeout)
    _say_formed(session, done, seconds)
    _result(session, {"job": job, "replicas": replicas, "round": done.round, "seconds": round(seconds, 3)})


@click.command()
@job_argument
@waits
@connected()
def suspend(session: Session, job: str, timeout: float, no_wait: bool) -> None:
    """Stop JOB's workers and keep its state; waits until all of its pods are gone or have ended."""
    before = glance(session.cluster, job)
    _refuse(before)
    session.cluster.patch_job(job, {"spec": {"suspend": True}})
    _say(
        session,
        f"{job} is told to stop; its scripts may save before, for up to {before.spec.rendezvous.save_seconds} s.",
    )
    if no_wait or not _may_see_pods(session, job):
        _result(session, {"job": job, "suspended": True, "waited": False})
        return
    _, seconds = _wait(session, job, "its workers to end", lambda seen: _has_stopped(session, seen), timeout)
    _say(session, f"All workers have ended after {length(seconds)}. `kubectl elasticjob resume {job}` lets it go on.")
    _result(session, {"job": job, "suspended": True, "seconds": round(seconds, 3)})


@click.command()
@job_argument
@waits
@connected()
def resume(session: Session, job: str, timeout: float, no_wait: bool) -> None:
    """Let a suspended JOB go on; waits until a round has formed."""
    before = glance(session.cluster, job)
    _refuse(before)
    session.cluster.patch_job(job, {"spec": {"suspend": False}})
    _say(session, f"{job} goes on with {plural(before.spec.replicas, 'worker')} in new pods.")
    if no_wait:
        _result(session, {"job": job, "suspended": False, "waited": False})
        return
    done, seconds = _wait(session, job, "a round", lambda seen: seen.is_formed, timeout)
    _say_formed(session, done, seconds)
    _result(session, {"job": job, "suspended": False, "round": done.round, "seconds": round(seconds, 3)})


@click.command()
@job_argument
@waits
@connected()
def restart(session: Session, job: str, timeout: float, no_wait: bool) -> None:
    """Start the training processes of all of JOB's workers anew, in the pods that they have; waits for the round."""
    before = glance(session.cluster, job)
    _refuse(before)
    planned = restart_plan(before)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    taken = session.cluster.patch_job(job, {"spec": {"restartedAt": at}})
    if taken["spec"].get("restartedAt") != at:
        raise CliError("the CRDs of this cluster do not know spec.restartedAt: upgrade the chart that brings them")
    _say(session, planned)
    if no_wait or before.spec.suspend:
        _result(session, {"job": job, "restartedAt": at, "waited": False})
        return
    done, seconds = _wait(session, job, "a round of new processes", _is_restarted, timeout)
    _say_formed(session, done, seconds)
    _result(session, {"job": job, "restartedAt": at, "round": done.round, "seconds": round(seconds, 3)})


class Run(click.Command):
    """`--dry-run` alone takes no value from the word after it, as with kubectl."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        own = ["--dry-run=client" if word == "--dry-run" else word for word in args[:end]]
        return super().parse_args(ctx, own + args[end:])


@click.command(cls=Run)
@click.argument("name")
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", required=True, help="The image that holds torch and the script.")
@click.option("--replicas", type=click.IntRange(1), default=1, help="How many workers; 1 unless given.")
@click.option("--min-replicas", type=click.IntRange(1), help="The smallest group that may train.")
@click.option("--max-replicas", type=click.IntRange(1), help="The largest group.")
@click.option("--nproc-per-node", help="Training processes in each worker: a number, auto, cpu or gpu.")
@click.option("--max-restarts", type=click.IntRange(0), help="How many failures of the training may be cured.")
@click.option("--gpus", type=click.IntRange(0), default=0, help="GPUs of each worker, as nvidia.com/gpu.")
@click.option("--cpu", default="", metavar="QUANTITY", help="What each worker requests, such as 4 or 500m.")
@click.option("--memory", default="", metavar="QUANTITY", help="What each worker requests and may use, such as 8Gi.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of the trainer; may be repeated.")
@click.option("--claim", multiple=True, metavar="CLAIM=PATH", help="A PersistentVolumeClaim and where it is mounted.")
@click.option("--pull-secret", multiple=True, metavar="SECRET", help="A Secret with the registry's credentials.")
@click.option("--pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), default=None)
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server"]),
    help="Print the manifest and make nothing; `server` lets the API server check it.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="How to print it; yaml for a dry run.")
@connected(output=False)
def run(
    session: Session, name: str, script: tuple[str, ...], dry_run: str | None, output: str | None, **given: Any
) -> None:
    """Make the job NAME, whose workers run SCRIPT and its arguments, which follow `--`.

    A script (`train.py`, `-m package.train`) runs under torchrun; another program (`accelerate launch ...`) as it is.
    """
    body = manifest(wish_of(name, script, **given))
    if dry_run == "server" or dry_run is None:
        made = session.cluster.create_job(body, dry_run=dry_run == "server")
    if dry_run or output:
        show_json(body) if output == "json" else say(yaml.safe_dump(body, sort_keys=False).rstrip("\n"))
        return
    say(f"elasticjob.elasticjob.io/{made['metadata']['name']} created")


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
    """Raises CliError and click.BadParameter."""
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


def _wait(session: Session, job: str, what: str, done: Callable[[Look], bool], timeout: float) -> tuple[Look, float]:
    """Raises Late with why it is not so, and CliError when the job has ended meanwhile."""

    def probe() -> Look | None:
        seen = glance(session.cluster, job)
        if done(seen):
            return seen
        if seen.has_ended or seen.is_closed:
            how = "has ended" if seen.has_ended else "was closed"
            raise CliError(f"{job} {how} meanwhile: {seen.status.rendezvous.reason}", Exit.JOB_ENDED)
        return None

    try:
        return wait_until(what, probe, timeout)
    except Late as late:
        raise CliError(f"{late}; what was asked for stays. {_why(session, job)}", Exit.DEADLINE) from None


def _why(session: Session, job: str) -> str:
    try:
        return answer(look(gather(session.cluster, job, session.lease))).paragraph
    except CliError as error:
        if may_pass(error):
            return f"Why is not known: {error}"
        raise


def _say_formed(session: Session, done: Look, seconds: float) -> None:
    told = round_of(done.round, done.status.rendezvous.world_size).capitalize()
    _say(session, f"{told} formed after {length(seconds)}.")


def _is_formed(seen: Look, replicas: int) -> bool:
    current = seen.status.observed_generation == seen.scene.job["metadata"].get("generation")
    return current and seen.is_formed and seen.unfinished == replicas - len(seen.finished)


def _is_restarted(seen: Look) -> bool:
    """A later restart than the one that was asked for will do."""
    return seen.is_formed and seen.status.rendezvous.restarted_at == seen.spec.restarted_at


def _has_stopped(session: Session, seen: Look) -> bool:
    """status.replicas would not do: a worker that has finished keeps its pod."""
    found = seen.condition("Suspended")
    told = found is not None and found.status == "True" and not seen.status.rendezvous.leaving
    return told and not any(_may_run(Pod.read(pod)) for pod in session.cluster.pods(seen.name))


def _may_see_pods(session: Session, job: str) -> bool:
    """Whether their end can be waited for; what was asked for is done without it."""
    try:
        session.cluster.pods(job)
    except CliError as error:
        if not isinstance(error, ApiError) or error.status != 403:
            return True  # the wait will meet it again, or it will have passed
        _say(session, f"That they have ended cannot be seen: {error}")
        return False
    return True


def _may_run(pod: Pod) -> bool:
    return not (pod.is_over or pod.deleting)


def _refuse(seen: Look) -> None:
    """What no suspension can stop, and nothing can resume."""
    if seen.has_ended:
        raise CliError(f"{seen.name} has ended ({seen.status.phase}): make a new job", Exit.JOB_ENDED)
    if seen.is_closed:
        sentence = f"{seen.name} is closed: its last round trains on to its end, and no other follows"
        raise CliError(f"{sentence}; delete the job to stop it sooner", Exit.JOB_ENDED)


def _say(session: Session, sentence: str) -> None:
    if not session.as_json:
        say(sentence)


def _result(session: Session, body: dict[str, Any]) -> None:
    if session.as_json:
        show_json(body)
