# SPDX-License-Identifier: Apache-2.0
"""The commands that change a job: scale, suspend, resume, restart.

Each reports what the API server has accepted and what follows by the rules, waits for that, and reports the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from elasticjob.reading import Pod
from elasticjob.rendezvous.words import round_of
from elasticjob_cli.cluster.gather import gather
from elasticjob_cli.cluster.logs import see
from elasticjob_cli.cluster.transport import RequestRefused, may_pass
from elasticjob_cli.cluster.waits import Late, glance, wait_until
from elasticjob_cli.commands.options import Session, connected, job_argument
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.output import documents
from elasticjob_cli.output.console import say
from elasticjob_cli.plans.changes import check, forms_no_round, plan, restart_plan
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.times import length
from elasticjob_cli.reading.words import plural
from elasticjob_cli.why.answer import answer

DEADLINE_SECONDS = 600


def waits(command: Any) -> Any:
    """Adds the options of a command that waits."""
    seconds = click.FloatRange(min=0, min_open=True)
    deadline = f"Seconds to wait at most; {DEADLINE_SECONDS} unless given."
    command = click.option("--timeout", type=seconds, default=DEADLINE_SECONDS, metavar="SECONDS", help=deadline)(
        command
    )
    return click.option("--no-wait", is_flag=True, help="Return as soon as the API server has accepted the change.")(
        command
    )


@click.command()
@job_argument
@click.argument("replicas", type=click.IntRange(1))
@waits
@connected("json", "yaml", "name")
def scale(session: Session, job: str, replicas: int, timeout: float, no_wait: bool) -> None:
    """Run JOB with REPLICAS workers. Says what will follow, waits for the round, and says how long it took."""
    before = see(session.cluster, job)
    check(job, before.spec, replicas)
    if before.has_ended:
        raise CliError(f"{job} has ended: it cannot be scaled.", Exit.JOB_ENDED)
    result = Change(session, before, "scale", changed=before.spec.replicas != replicas)
    if result.changed:
        session.cluster.scale_job(job, replicas)
    result.say(plan(before, replicas))
    if no_wait or before.spec.suspend or before.is_closed or forms_no_round(before, replicas):
        result.tell(replicas=replicas)
        return
    what = f"a round of {plural(replicas - len(before.finished), 'worker')}"
    done, seconds = _wait(session, job, what, lambda seen: _has_size(seen, replicas), timeout)
    result.tell_round(done, seconds, replicas=replicas)


@click.command()
@job_argument
@waits
@connected("json", "yaml", "name")
def suspend(session: Session, job: str, timeout: float, no_wait: bool) -> None:
    """Stop JOB's workers and keep its state. Waits until all of its pods have ended or are gone."""
    before = glance(session.cluster, job)
    _refuse(before)
    result = Change(session, before, "suspend", changed=not before.spec.suspend)
    if result.changed:
        session.cluster.patch_job(job, {"spec": {"suspend": True}})
        result.say(
            f"spec.suspend of {job} is true now. What follows: its workers end; scripts that call wants_restart() may "
            f"save before, for up to {before.spec.rendezvous.save_seconds} s."
        )
    else:
        result.say(f"{job} was suspended already: nothing was changed.")
    if no_wait or not _may_see_pods(result):
        result.tell(suspended=True)
        return
    _, seconds = _wait(session, job, "its workers to end", lambda seen: _has_stopped(session, seen), timeout)
    ended = f"All workers have ended after {length(seconds)}." if result.changed else "None of its workers runs."
    result.say(f"{ended} `kubectl elasticjob resume {job}` resumes it.")
    result.tell(suspended=True, waited=True, seconds=seconds)


@click.command()
@job_argument
@waits
@connected("json", "yaml", "name")
def resume(session: Session, job: str, timeout: float, no_wait: bool) -> None:
    """Resume a suspended JOB. Waits until a round has formed."""
    before = glance(session.cluster, job)
    _refuse(before)
    result = Change(session, before, "resume", changed=before.spec.suspend)
    if result.changed:
        session.cluster.patch_job(job, {"spec": {"suspend": False}})
        pods = plural(before.spec.replicas, "worker")
        result.say(f"spec.suspend of {job} is false now. What follows: a round of {pods}, in new pods.")
    else:
        result.say(f"{job} was not suspended: nothing was changed.")
    if no_wait:
        result.tell(suspended=False)
        return
    done, seconds = _wait(session, job, "a round", lambda seen: _is_current(seen) and seen.is_formed, timeout)
    result.tell_round(done, seconds, suspended=False)


@click.command()
@job_argument
@waits
@connected("json", "yaml", "name")
def restart(session: Session, job: str, timeout: float, no_wait: bool) -> None:
    """Restart the training processes of all of JOB's workers in their pods. Waits for the round."""
    before = glance(session.cluster, job)
    _refuse(before)
    planned = restart_plan(before)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    result = Change(session, before, "restart", changed=True)
    taken = session.cluster.patch_job(job, {"spec": {"restartedAt": at}})
    if taken["spec"].get("restartedAt") != at:
        raise CliError("the CRDs of this cluster do not know spec.restartedAt: upgrade the chart that brings them")
    result.say(planned)
    if no_wait or before.spec.suspend:
        result.tell(restarted_at=at)
        return
    done, seconds = _wait(session, job, "a round of new processes", _is_restarted, timeout)
    result.tell_round(done, seconds, restarted_at=at)


@dataclass(frozen=True)
class Change:
    """What a command has done to a job, reported in sentences as it goes, or in one document at the end. `before`: the
    job before the change. `changed`: whether its spec has changed."""

    session: Session
    before: Look
    change: str
    changed: bool

    def say(self, sentence: str) -> None:
        if not self.session.form:
            say(sentence)

    def tell_round(self, done: Look, seconds: float, **what: Any) -> None:
        """Reports the awaited round. A round that stood before was not formed by the command."""
        subject = round_of(done.round, done.status.rendezvous.world_size).capitalize()
        stood = self.before.is_formed and done.round == self.before.round
        self.say(f"{subject} stands, as before." if stood else f"{subject} formed after {length(seconds)}.")
        self.tell(waited=True, seconds=seconds, round=done.round, world_size=done.status.rendezvous.world_size, **what)

    def tell(self, *, waited: bool = False, seconds: float | None = None, **what: Any) -> None:
        if self.session.form == "name":
            say(documents.name_of(self.before.name))
        if not self.session.is_document:
            return
        known = dict.fromkeys(("replicas", "suspended", "restarted_at", "round", "world_size")) | what
        took = None if seconds is None else round(seconds, 3)
        head = {"change": self.change, "changed": self.changed, "waited": waited, "seconds": took}
        body = documents.change(self.before.name, self.before.namespace, **head, **known)
        click.echo(documents.written(body, self.session.form))


def _wait(session: Session, job: str, what: str, done: Callable[[Look], bool], timeout: float) -> tuple[Look, float]:
    """Waits until the job is `done`. Raises CliError with the reason if it is late, or if the job has ended
    meanwhile."""

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


def _is_current(seen: Look) -> bool:
    """Whether the status is that of the current spec."""
    return bool(seen.status.observed_generation == seen.scene.job["metadata"].get("generation"))


def _has_size(seen: Look, replicas: int) -> bool:
    return _is_current(seen) and seen.is_formed and seen.unfinished == replicas - len(seen.finished)


def _is_restarted(seen: Look) -> bool:
    """Whether the requested restart is done; a later one counts too."""
    return seen.is_formed and seen.status.rendezvous.restarted_at == seen.spec.restarted_at


def _has_stopped(session: Session, seen: Look) -> bool:
    """Whether no pod may run. status.replicas does not show that: a finished worker keeps its pod."""
    found = seen.condition("Suspended")
    is_suspended = found is not None and found.status == "True" and not seen.status.rendezvous.leaving
    return is_suspended and not any(_may_run(Pod.read(pod)) for pod in session.cluster.pods(seen.name))


def _may_see_pods(result: Change) -> bool:
    """Whether the end of the pods can be awaited. The change itself is done without that."""
    try:
        result.session.cluster.pods(result.before.name)
    except CliError as error:
        if not isinstance(error, RequestRefused) or error.status != 403:
            return True  # the wait will meet the error again, or it will have passed
        result.say(f"That they have ended cannot be seen: {error}")
        return False
    return True


def _may_run(pod: Pod) -> bool:
    return not (pod.is_over or pod.deleting)


def _refuse(seen: Look) -> None:
    """Refuses a job that no suspension can stop and nothing can resume."""
    if seen.has_ended:
        raise CliError(f"{seen.name} has ended ({seen.status.phase}): make a new job", Exit.JOB_ENDED)
    if seen.is_closed:
        sentence = f"{seen.name} is closed: its last round trains on to its end, and no other follows"
        raise CliError(f"{sentence}; delete the job to stop it sooner", Exit.JOB_ENDED)
