# SPDX-License-Identifier: Apache-2.0
"""The commands that change nothing, of a cluster on paper: lists, watches, and the forms of their output."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from elasticjob.kube.paths import CLAIMS, EVENTS, PODS, WORKERS, Resource
from elasticjob.objects import Object
from elasticjob_cli.app import cli
from elasticjob_cli.cluster import gather as gathering
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.gather import gather
from elasticjob_cli.cluster.logs import Choice, Line
from elasticjob_cli.cluster.transport import RequestRefused
from elasticjob_cli.commands import looking
from elasticjob_cli.output import console
from elasticjob_cli.reading.look import Look
from support.cli_jobs import NOW, formed
from support.scenes import as_json, from_json
from support.waiting import DEADLINE

LEASE = {
    "metadata": {"resourceVersion": "1"},
    "spec": {"holderIdentity": "operator-0", "renewTime": NOW.isoformat()},
}
OLD = {**LEASE, "spec": {**LEASE["spec"], "renewTime": "2026-11-22T11:00:00Z"}}


def renamed(seen: Look, name: str, namespace: str = "default") -> Look:
    """The same job with another name, as are its pods and records."""
    text = json.dumps(as_json(seen.scene)).replace("digits", name).replace('"uid"', f'"uid-of-{name}"')
    body = json.loads(text.replace('"default"', f'"{namespace}"').replace(f'"uid-of-{name}":', '"uid":'))
    for one in (*body["pods"], *body["records"]):
        one["metadata"]["namespace"] = namespace
        one["metadata"].setdefault("labels", {})["elasticjob.io/job"] = name
    return looking.look(from_json(body))


class Paper(Cluster):
    """What is there, for one job and for many. `lease`: one for each time that it is asked for, the last one again."""

    now = NOW

    def __init__(self, *looks: Look, leases: tuple[Object, ...] = (LEASE,)) -> None:
        self.namespace, self.looks, self.leases = "default", looks, list(leases)
        self.forbidden: set[str] = set()

    def job(self, name: str) -> Object:
        return self._named(name).scene.job

    def jobs(self, *, everywhere: bool = False, selector: str = "") -> list[Object]:
        found = [one for one in self.looks if everywhere or one.namespace == self.namespace]
        return [one.scene.job for one in found if selector in ("", f"name={one.name}")]

    def pods(self, job: str) -> list[Object]:
        return list(self._named(job).scene.pods)

    def records(self, job: str) -> list[Object]:
        return list(self._named(job).scene.records)

    def events(self) -> list[Object]:
        return []

    def of_all_jobs(self, kind: Resource, *, everywhere: bool) -> list[Object]:
        if kind.plural in self.forbidden:
            raise RequestRefused(403, "no")
        scenes = [one.scene for one in self.looks if everywhere or one.namespace == self.namespace]
        found = {PODS: "pods", WORKERS: "records", EVENTS: "events", CLAIMS: "claims"}
        return [body for scene in scenes for body in getattr(scene, found[kind])]

    def lease(self, namespace: str, name: str) -> Object:
        return self.leases.pop(0) if len(self.leases) > 1 else self.leases[0]

    def _named(self, name: str) -> Look:
        return next(one for one in self.looks if one.name == name)


TWO = (renamed(formed([0, 1], phase="Running"), "digits"), renamed(formed([0], phase="Running"), "words"))
AWAY = renamed(formed([0, 1, 2]), "pages", "other")
Ask = Callable[..., Result]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    def asked(cluster: Cluster, *words: str) -> Result:
        monkeypatch.setattr(Cluster, "connect", lambda place: cluster)
        return CliRunner().invoke(cli, words)

    return asked


def test_the_jobs_of_a_namespace_of_all_and_with_labels(ask: Ask) -> None:
    cluster = Paper(*TWO, AWAY)

    def names(*words: str) -> list[str]:
        return [line.split()[0] for line in ask(cluster, "status", "--no-headers", *words).stdout.splitlines()]

    assert names() == ["digits", "words"]
    assert names("-l", "name=words") == ["words"]
    assert names("-A") == ["default", "default", "other"]
    assert ask(cluster, "status").stdout.split()[:2] == ["NAME", "PHASE"]
    assert ask(cluster, "-A", "status", "-o", "name").stdout.split() == [
        *("elasticjob.elasticjob.io/digits", "elasticjob.elasticjob.io/words", "elasticjob.elasticjob.io/pages")
    ]
    nothing = ask(cluster, "status", "-l", "name=none")
    assert nothing.stderr.startswith("There is no ElasticJob with the labels name=none in the namespace default; ")


def test_wide_shows_more(ask: Ask) -> None:
    listed = ask(Paper(*TWO), "status", "-o", "wide").stdout.splitlines()
    assert listed[0].split()[-4:] == ["MIN", "MAX", "SPARES", "IMAGE"]
    assert "IP" in ask(Paper(*TWO), "status", "digits", "-o", "wide").stdout.split()
    assert "IP" not in ask(Paper(*TWO), "status", "digits").stdout.split()


def test_many_jobs_are_as_many_whole_reports(ask: Ask) -> None:
    cluster = Paper(*TWO, AWAY)
    many = json.loads(ask(cluster, "status", "-A", "-o", "json").stdout)
    assert many["kind"] == "JobReportList"
    for one, item in zip((*TWO, AWAY), many["items"], strict=True):
        cluster.namespace = one.namespace
        assert item == json.loads(ask(cluster, "status", one.name, "-o", "json").stdout)
    assert yaml.safe_load(ask(cluster, "status", "-A", "-o", "yaml").stdout) == many
    assert json.loads(ask(Paper(), "status", "-o", "json").stdout)["items"] == []


def test_what_may_not_be_seen_of_many_jobs_is_named(ask: Ask) -> None:
    cluster = Paper(*TWO)
    cluster.forbidden = {"pods", "events"}
    items = json.loads(ask(cluster, "status", "-o", "json").stdout)["items"]
    assert [one["hidden"] for one in items] == [["pods", "events"]] * 2


def test_all_commands_about_a_job_print_one_report(ask: Ask) -> None:
    cluster = Paper(*TWO)
    reports = [ask(cluster, command, "digits", "-o", "json").stdout for command in ("status", "why", "history")]
    assert len(set(reports)) == 1
    assert json.loads(reports[0])["kind"] == "JobReport"
    for command in ("status", "why", "history"):
        assert ask(cluster, command, "digits", "-o", "name").stdout == "elasticjob.elasticjob.io/digits\n"


@pytest.fixture
def thrice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A watch is interrupted after its third look."""
    left = [0.0, 0.0]

    def pause(seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()

    monkeypatch.setattr(looking.time, "sleep", pause)
    yield
    assert not left


class Changing(Paper):
    """The first job is there at the third look alone."""

    looked = 0

    def jobs(self, **given: Any) -> list[Object]:
        self.looked += 1
        return super().jobs(**given)[0 if self.looked > 2 else 1 :]


def test_all_jobs_may_be_watched(ask: Ask, thrice: None) -> None:
    done = ask(Changing(*TWO), "status", "-w", "-o", "name")
    assert done.exit_code == 130
    assert done.stdout.split("\n\n")[:2] == [
        "elasticjob.elasticjob.io/words",
        "elasticjob.elasticjob.io/digits\nelasticjob.elasticjob.io/words",
    ]


def test_a_watch_of_all_jobs_in_json_is_a_list_a_line(ask: Ask, thrice: None) -> None:
    lines = ask(Changing(*TWO), "status", "-w", "-o", "json").stdout.splitlines()
    assert [len(json.loads(line)["items"]) for line in lines] == [1, 2]


def test_a_watch_in_json_is_json_on_a_terminal(ask: Ask, thrice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "is_terminal", lambda: True)
    (line,) = ask(Paper(*TWO), "status", "digits", "-w", "-o", "json").stdout.splitlines()
    assert json.loads(line)["metadata"]["name"] == "digits"


def test_a_watch_on_a_terminal_is_shown_in_place_and_fits(
    ask: Ask, thrice: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "is_terminal", lambda: True)
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "6")
    _, first, second, third = ask(Paper(*TWO), "status", "digits", "-w").stdout.split(console.CLEAR_BELOW)
    assert first.count("\n") == second.count("\n") == third.count("\n") == 5
    assert first.endswith("\x1b[5F")
    assert "digits" in third


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        ([], Choice()),
        (["--tail", "-1"], Choice()),
        (["--tail=3", "--since=1m30s", "--rank", "1"], Choice(rank=1, tail=3, since=90.0)),
        (["-p", "-c", "other"], Choice(container="other", previous=True)),
    ],
    ids=["nothing", "all", "some", "before"],
)
def test_logs_are_chosen_as_kubectl_does(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, words: list[str], choice: Choice
) -> None:
    chosen: list[Choice] = []

    def past(cluster: Cluster, seen: Look, choice: Choice) -> list[Line]:
        chosen.append(choice)
        return [Line(1, "digits-0-0", 0, "a")]

    monkeypatch.setattr(looking.reading_logs, "past", past)
    assert ask(Paper(*TWO), "logs", "digits", *words).exit_code == 0
    assert chosen == [choice]


class Together(Paper):
    """Answers only once all five are asked."""

    def __init__(self, *looks: Look) -> None:
        super().__init__(*looks)
        self.barrier = threading.Barrier(5)

    def job(self, name: str) -> Object:
        self.barrier.wait(DEADLINE)
        return super().job(name)

    def pods(self, job: str) -> list[Object]:
        self.barrier.wait(DEADLINE)
        return super().pods(job)

    def records(self, job: str) -> list[Object]:
        self.barrier.wait(DEADLINE)
        return super().records(job)

    def events(self) -> list[Object]:
        self.barrier.wait(DEADLINE)
        return []

    def lease(self, namespace: str, name: str) -> Object:
        self.barrier.wait(DEADLINE)
        return super().lease(namespace, name)


def test_what_does_not_depend_on_other_answers_is_asked_at_once() -> None:
    seen = gather(Together(*TWO), "digits")
    assert (len(seen.pods), len(seen.records), seen.leader.beats) == (2, 2, True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a Lease was waited for, without the time."""
    found: list[float] = []
    monkeypatch.setattr(gathering.time, "sleep", found.append)
    monkeypatch.setattr(gathering.time, "monotonic", lambda: sum(found))
    return found


def test_a_lease_that_is_new_is_not_looked_at_again(pauses: list[float]) -> None:
    assert gather(Paper(*TWO), "digits").leader.beats
    assert pauses == []


def test_a_lease_of_a_clock_that_is_wrong_is_known_as_soon_as_it_is_renewed(pauses: list[float]) -> None:
    renewed = {**OLD, "metadata": {"resourceVersion": "2"}}
    assert gather(Paper(*TWO, leases=(OLD, OLD, renewed)), "digits").leader.beats
    assert pauses == [gathering.LOOK_SECONDS] * 2


def test_a_lease_that_is_not_renewed_is_looked_at_for_three_seconds(pauses: list[float]) -> None:
    assert not gather(Paper(*TWO, leases=(OLD,)), "digits").leader.beats
    assert sum(pauses) == gathering.LOOK_AGAIN_SECONDS


def test_a_job_that_has_ended_waits_for_no_lease(pauses: list[float]) -> None:
    ended = formed([0], rendezvous={"phase": "Closed", "outcome": "Failed", "reason": "so"})
    gather(Paper(ended, leases=(OLD,)), "digits")
    assert pauses == []
