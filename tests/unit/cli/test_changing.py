# SPDX-License-Identifier: Apache-2.0
"""The commands that change a job and wait, on paper: what they wait for, and when they do not."""

import json
from collections.abc import Callable

import pytest
import yaml
from click.testing import CliRunner, Result

from elasticjob.objects import Object
from elasticjob_cli.app import cli
from elasticjob_cli.cluster import waits
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.transport import NoAnswer, RequestRefused
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.reading.look import Look
from support.cli_jobs import NOW, condition, formed, pod
from support.waiting import DEADLINE


class Paper(Cluster):
    """`before`: what is there until the job is changed; `after`: what follows, one for each look at the job."""

    now = NOW

    def __init__(self, before: Look, *after: Look) -> None:
        self.namespace = "default"
        self._stages = [before, *after]
        self.changes: list[Object] = []
        self.failures: list[CliError] = []  # what the next looks at the job meet

    def job(self, name: str) -> Object:
        if self.changes and self.failures:
            raise self.failures.pop(0)
        if self.changes and len(self._stages) > 1:
            self._stages.pop(0)
        return self._stages[0].scene.job

    def pods(self, job: str) -> list[Object]:
        return list(self._stages[0].scene.pods)

    def records(self, job: str) -> list[Object]:
        return list(self._stages[0].scene.records)

    def events(self) -> list[Object]:
        return []

    def lease(self, namespace: str, name: str) -> Object:
        raise RequestRefused(404, "no lease")

    def patch_job(self, name: str, patch: Object) -> Object:
        self.changes.append(patch["spec"])
        return {"spec": patch["spec"]}

    def scale_job(self, name: str, replicas: int) -> None:
        self.changes.append({"replicas": replicas})


Ask = Callable[..., Result]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """A command about the job that `cluster` has."""
    monkeypatch.setattr(waits, "LOOK_SECONDS", 0.01)

    def asked(cluster: Cluster, command: str, *arguments: str) -> Result:
        monkeypatch.setattr(Cluster, "connect", lambda place: cluster)
        return CliRunner().invoke(cli, [command, "digits", "--timeout", f"{DEADLINE}", *arguments])

    return asked


SHORT = ("--timeout", "0.3")  # for a wait that has no end: the exit code is 4 then


class Blind(Paper):
    """Of a user who may not list pods."""

    def pods(self, job: str) -> list[Object]:
        raise RequestRefused(403, "you may not list pods")


def test_who_may_not_see_pods_does_not_wait_for_their_end(ask: Ask) -> None:
    cluster = Blind(formed([0]), suspended(replicas=0))
    done = ask(cluster, "suspend")
    assert (done.exit_code, cluster.changes) == (Exit.DONE, [{"suspend": True}])
    assert "That they have ended cannot be seen: you may not list pods" in done.output
    assert "All workers have ended" not in done.output


SUSPENDED = [condition("Suspended", "True", 1)]
ENDED = {"phase": "Succeeded"}


def suspended(*pods: Object, replicas: int, leaving: str = "") -> Look:
    rendezvous = {"phase": "Forming", "finished": "1/ab.1", "leaving": leaving}
    given = {"spec": {"replicas": 2, "suspend": True}, "conditions": SUSPENDED, "replicas": replicas}
    return formed([], rendezvous=rendezvous, pods=pods, **given)


def test_a_suspension_does_not_wait_for_a_pod_that_has_ended(ask: Ask) -> None:
    cluster = Paper(formed([0, 1]), suspended(pod(1, **ENDED), replicas=1))
    done = ask(cluster, "suspend")
    assert (done.exit_code, cluster.changes) == (Exit.DONE, [{"suspend": True}])
    assert "All workers have ended after" in done.stdout


@pytest.mark.parametrize(
    "there",
    [
        suspended(pod(0), pod(1, **ENDED), replicas=2),
        suspended(pod(1, **ENDED), replicas=1, leaving="0/ab.0"),
        formed([0, 1]),
    ],
    ids=["a pod that runs", "a member that leaves", "nobody told yet"],
)
def test_a_suspension_waits_for_who_runs(ask: Ask, there: Look) -> None:
    assert ask(Paper(formed([0, 1]), there), "suspend", *SHORT).exit_code == Exit.DEADLINE


ONE_FINISHED = {"finished": "1/ab.1"}
STANDS = formed([0, 1, 2, 3], rendezvous=ONE_FINISHED)


@pytest.mark.parametrize(
    ("replicas", "after", "told"),
    [
        ("4", STANDS, "Round 4 (4 workers) stands, as before."),
        (
            "3",
            formed([0, 2], number=5, spec={"replicas": 3}, rendezvous=ONE_FINISHED),
            "Round 5 (2 workers) formed after",
        ),
    ],
    ids=["the round that stands", "a smaller one"],
)
def test_a_round_is_as_large_as_who_has_not_finished(ask: Ask, replicas: str, after: Look, told: str) -> None:
    done = ask(Paper(STANDS, after), "scale", replicas)
    assert (done.exit_code, told in done.stdout) == (Exit.DONE, True), done.output


def test_a_round_with_too_many_is_not_the_one_that_was_asked_for(ask: Ask) -> None:
    assert ask(Paper(STANDS, STANDS), "scale", "3", *SHORT).exit_code == Exit.DEADLINE


@pytest.mark.parametrize("replicas", ["1", "6"], ids=["nobody else is wanted", "a round that is about to end"])
def test_no_round_is_waited_for_that_will_not_come(ask: Ask, replicas: str) -> None:
    cluster = Paper(STANDS, STANDS)
    done = ask(cluster, "scale", replicas, "-o", "json")
    assert (done.exit_code, cluster.changes) == (Exit.DONE, [{"replicas": int(replicas)}])
    assert json.loads(done.stdout)["waited"] is False


CLOSED = formed([0, 1], rendezvous={"phase": "Closed", "outcome": "Closed", "reason": "closed by worker 0"})


class Asked(Paper):
    """For a restart, which its status answers `from_round` on."""

    from_round = 5

    def job(self, name: str) -> Object:
        body = super().job(name)
        if self.changes:
            agreed, asked = body["status"]["rendezvous"], self.changes[-1]["restartedAt"]
            body["spec"]["restartedAt"] = asked
            agreed |= {"restartedAt": asked} if agreed["round"] >= self.from_round else {}
        return body


def test_a_restart_is_waited_for_until_the_round_that_answers_it(ask: Ask) -> None:
    forming = formed([0, 1], number=5, rendezvous={"phase": "Forming"})
    done = ask(Asked(formed([0, 1]), formed([0, 1]), forming, formed([0, 1], number=5)), "restart")
    assert done.exit_code == Exit.DONE
    planned, told = done.stdout.splitlines()
    follows = "round 4 of digits ends, and the training processes of its 2 workers start anew"
    assert planned.startswith(f"spec.restartedAt is set. What follows: {follows}")
    assert told.startswith("Round 5 (2 workers) formed after ")
    assert ask(Asked(formed([0, 1]), formed([0, 1])), "restart", *SHORT).exit_code == Exit.DEADLINE


def test_a_restart_of_a_suspended_job_is_not_waited_for(ask: Ask) -> None:
    cluster = Paper(suspended(replicas=0))
    done = ask(cluster, "restart")
    assert (done.exit_code, len(cluster.changes)) == (Exit.DONE, 1)
    assert "is suspended: all its processes are new anyway when it goes on" in done.stdout


def test_no_restart_is_asked_for_once_a_member_has_finished(ask: Ask) -> None:
    cluster = Paper(STANDS)
    done = ask(cluster, "restart")
    assert (done.exit_code, cluster.changes) == (Exit.JOB_ENDED, [])
    assert "worker 1 of digits has finished, so round 4 trains on to its end" in done.stderr


def test_crds_that_do_not_know_restarts_are_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Paper, "patch_job", lambda self, name, patch: {"spec": {}})
    done = ask(Paper(formed([0, 1])), "restart")
    assert (done.exit_code, "do not know spec.restartedAt: upgrade the chart" in done.stderr) == (Exit.REFUSED, True)


@pytest.mark.parametrize("command", ["suspend", "resume", "restart"])
def test_a_closed_job_is_neither_suspended_nor_resumed_nor_restarted(ask: Ask, command: str) -> None:
    cluster = Paper(CLOSED)
    done = ask(cluster, command)
    assert (done.exit_code, cluster.changes) == (Exit.JOB_ENDED, [])
    assert "digits is closed: its last round trains on to its end, and no other follows" in done.stderr


def test_a_job_that_is_closed_meanwhile_is_not_waited_for(ask: Ask) -> None:
    done = ask(Paper(formed([0, 1]), CLOSED), "scale", "3")
    assert (done.exit_code, done.stderr) == (Exit.JOB_ENDED, "error: digits was closed meanwhile: closed by worker 0\n")


AWAY = [
    NoAnswer("the API server does not answer"),
    RequestRefused(429, "busy"),
    RequestRefused(500, "broken"),
    RequestRefused(503, "b"),
]


@pytest.mark.parametrize("command", [("scale", "1"), ("suspend",), ("resume",)], ids=lambda command: command[0])
def test_a_wait_outlasts_an_api_server_that_is_away(ask: Ask, command: tuple[str, ...]) -> None:
    there = suspended(replicas=0) if command == ("suspend",) else formed([0], number=5)
    cluster = Paper(suspended(replicas=0) if command == ("resume",) else formed([0, 1]), there)
    cluster.failures = list(AWAY)
    assert ask(cluster, *command).exit_code == Exit.DONE
    assert not cluster.failures


@pytest.mark.parametrize(("status", "code"), [(401, Exit.REFUSED), (403, Exit.REFUSED), (404, Exit.NOT_FOUND)], ids=str)
def test_a_refusal_ends_a_wait(ask: Ask, status: int, code: Exit) -> None:
    cluster = Paper(formed([0, 1]), formed([0], number=5))
    cluster.failures = [RequestRefused(status, "no")]
    assert ask(cluster, "scale", "1").exit_code == code


def test_an_api_server_that_stays_away_is_waited_for_to_the_deadline(ask: Ask) -> None:
    cluster = Paper(formed([0, 1]))
    cluster.failures = AWAY[:1] * 1000
    done = ask(cluster, "scale", "1", *SHORT)
    assert done.exit_code == Exit.DEADLINE
    assert done.stderr.endswith("what was asked for stays. Why is not known: the API server does not answer\n")


def test_a_change_is_told_once_the_api_server_has_taken_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Paper, name: str, *_: object) -> Object:
        raise RequestRefused(403, "you may not")

    monkeypatch.setattr(Paper, "patch_job", refused)
    monkeypatch.setattr(Paper, "scale_job", refused)
    for command in (("scale", "3"), ("suspend",), ("restart",)):
        done = ask(Paper(formed([0, 1])), *command)
        assert (done.exit_code, done.stdout, done.stderr) == (Exit.REFUSED, "", "error: you may not\n")
    done = ask(Paper(suspended(replicas=0)), "resume")
    assert (done.exit_code, done.stdout) == (Exit.REFUSED, "")


def test_a_job_that_was_not_suspended_is_not_said_to_go_on(ask: Ask) -> None:
    cluster = Paper(formed([0, 1]))
    done = ask(cluster, "resume")
    assert (done.exit_code, cluster.changes) == (Exit.DONE, [])
    assert done.stdout == "digits was not suspended: nothing was changed.\nRound 4 (2 workers) stands, as before.\n"


def test_a_round_that_the_operator_has_not_looked_at_since_is_not_said_to_have_formed(ask: Ask) -> None:
    behind = formed([0, 1])
    behind.scene.job["metadata"]["generation"] = 2
    assert ask(Paper(suspended(replicas=0), behind), "resume", *SHORT).exit_code == Exit.DEADLINE


def test_a_job_that_was_suspended_already_is_not_said_to_have_been_told_to_stop(ask: Ask) -> None:
    cluster = Paper(suspended(replicas=0))
    done = ask(cluster, "suspend")
    assert (done.exit_code, cluster.changes) == (Exit.DONE, [])
    assert done.stdout == (
        "digits was suspended already: nothing was changed.\n"
        "None of its workers runs. `kubectl elasticjob resume digits` resumes it.\n"
    )


def test_a_size_that_the_job_has_is_no_change(ask: Ask) -> None:
    cluster = Paper(formed([0, 1]))
    done = ask(cluster, "scale", "2")
    assert (done.exit_code, cluster.changes) == (Exit.DONE, [])
    assert done.stdout == "digits has 2 workers already: nothing changes.\nRound 4 (2 workers) stands, as before.\n"


@pytest.mark.parametrize("size", ["9", "1"])
def test_a_size_out_of_the_jobs_bounds_is_a_wrong_command_line(ask: Ask, size: str) -> None:
    cluster = Paper(formed([0, 1], spec={"minReplicas": 2, "maxReplicas": 4}))
    done = ask(cluster, "scale", size)
    assert (done.exit_code, done.stdout, cluster.changes) == (Exit.WRONG_COMMAND_LINE, "", [])


def test_a_job_that_has_ended_is_not_scaled(ask: Ask) -> None:
    cluster = Paper(formed([0, 1], rendezvous={"phase": "Closed", "outcome": "Failed"}))
    done = ask(cluster, "scale", "3")
    assert (done.exit_code, cluster.changes) == (Exit.JOB_ENDED, [])
    assert done.stderr == "error: digits has ended: it cannot be scaled.\n"


CHANGES: list[tuple[tuple[str, ...], Look, Look, dict[str, object]]] = [
    (("scale", "1"), formed([0, 1]), formed([0], number=5), {"replicas": 1, "round": 5, "worldSize": 1}),
    (("suspend",), formed([0, 1]), suspended(replicas=0), {"suspended": True}),
    (("resume",), suspended(replicas=0), formed([0], number=5), {"suspended": False, "round": 5, "worldSize": 1}),
]


@pytest.mark.parametrize(("command", "before", "after", "told"), CHANGES, ids=["scale", "suspend", "resume"])
def test_a_change_is_one_document_for_programs(
    ask: Ask, command: tuple[str, ...], before: Look, after: Look, told: dict[str, object]
) -> None:
    made = json.loads(ask(Paper(before, after), *command, "-o", "json").stdout)
    assert made.pop("seconds") >= 0
    assert made == {
        "apiVersion": "cli.elasticjob.io/v1alpha1",
        "kind": "JobChange",
        "metadata": {"name": "digits", "namespace": "default"},
        "change": command[0],
        "changed": True,
        "waited": True,
        **dict.fromkeys(("replicas", "suspended", "restartedAt", "round", "worldSize")),
        **told,
    }
    assert yaml.safe_load(ask(Paper(before, after), *command, "-o", "yaml").stdout).keys() == {*made, "seconds"}
    assert ask(Paper(before, after), *command, "-o", "name").stdout == "elasticjob.elasticjob.io/digits\n"
