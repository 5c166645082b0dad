# SPDX-License-Identifier: Apache-2.0
"""Logs over rounds and pods, of a cluster on paper: tests/e2e/test_cli.py has them of a real one."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from elasticjob.objects import Object
from elasticjob_cli.cluster import logs
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.logs import Choice, Line, follow, past, see
from elasticjob_cli.cluster.transport import NoAnswer, RequestRefused
from elasticjob_cli.errors import CliError
from elasticjob_cli.reading.times import nanoseconds
from support.cli_jobs import NOW, ago, pod, scene
from support.waiting import happened


class Paper(Cluster):
    """`written`: by pod and life, the lines of its log; a stream ends where they do. `stages`: what is there, one after
    the other, one for each look. `late`: what a pod writes in the last of them."""

    now = NOW

    def __init__(self, stages: list[tuple[Object, list[Object]]], written: dict[tuple[str, int], list[str]]) -> None:
        self.namespace = "default"
        self._stages, self._written = stages, written
        self._lock = threading.Lock()
        self._last_stage = threading.Event()
        self.late: dict[str, list[str]] = {}

    def job(self, name: str) -> Object:
        with self._lock:
            job = self._stages[0][0]
            if len(self._stages) > 1:
                self._stages.pop(0)
            else:
                self._last_stage.set()
        return job

    def pods(self, job: str) -> list[Object]:
        return self._stages[0][1]

    def log(self, pod: str, container: str, *, previous: bool = False, **options: Any) -> str:
        lines = self._written.get((pod, self._life(pod) - previous))
        if lines is None:
            raise RequestRefused(400, "no log")
        tail = options.get("tailLines")
        return "".join(f"{line}\n" for line in (lines if tail is None else lines[-tail:]))

    def follow_log(self, pod: str, container: str, **options: Any) -> Iterator[str]:
        yield from self._written.get((pod, self._life(pod)), [])
        if pod in self.late:
            happened(self._last_stage, "the job's last state to be asked for")
            yield from self.late[pod]

    def _life(self, name: str) -> int:
        found = next((one for one in self._stages[0][1] if one["metadata"]["name"] == name), None)
        if found is None:
            raise RequestRefused(404, f"no pod {name}")
        return int(found["status"]["containerStatuses"][0]["restartCount"])


def trainer(index: int, *, life: int = 0, replacement: int = 0, runs: bool = False) -> Object:
    made = pod(index, replacement=replacement)
    status = {"name": "trainer", "restartCount": life, "containerID": "a", "state": {"terminated": {"exitCode": 1}}}
    made["status"]["containerStatuses"] = [status | ({"state": {"running": {"startedAt": ago(9)}}} if runs else {})]
    return made


def job(members: str, *, ended: bool = False, replacements: str = "", formed: float = 50) -> Object:
    agreed = {"round": 1, "phase": "Closed" if ended else "Formed", "participants": members}
    history = [{"round": 1, "size": 2, "cause": "a", "seconds": 1.0, "time": ago(formed)}]
    status = {"rendezvous": agreed | ({"outcome": "Complete"} if ended else {}), "history": history}
    return scene({"replicas": 2}, status | {"replacements": replacements}).job


def line(second: int, text: str) -> str:
    return f"2026-11-22T11:59:{second:02d}.000000000Z {text}"


TWO = "0/ab.0 1/ab.1"


def texts(lines: list[Line]) -> list[tuple[int | None, str]]:
    return [(one.rank, one.text) for one in lines]


def test_times_have_an_order_whatever_their_digits() -> None:
    """The kubelet leaves out the zeros at the end of a fraction."""
    times = ["2026-11-22T11:59:01Z", "2026-11-22T11:59:01.1Z", "2026-11-22T12:59:01.12+01:00", "2026-11-22T11:59:02Z"]
    found = [nanoseconds(one) for one in times]
    assert found == sorted(found, key=lambda one: one or 0)
    assert found[2] == (found[0] or 0) + 120_000_000
    assert nanoseconds("Traceback") is None


def test_all_ranks_in_the_order_of_time() -> None:
    written = {
        ("digits-0-0", 0): [line(1, "a"), line(3, "c")],
        ("digits-1-0", 0): [line(2, "b"), line(4, "d")],
    }
    cluster = Paper([(job(TWO), [trainer(0), trainer(1)])], written)
    assert texts(past(cluster, see(cluster, "digits"), Choice())) == [(0, "a"), (1, "b"), (0, "c"), (1, "d")]
    assert texts(past(cluster, see(cluster, "digits"), Choice(rank=1))) == [(1, "b"), (1, "d")]
    assert texts(past(cluster, see(cluster, "digits"), Choice(tail=1))) == [(0, "c"), (1, "d")]


def test_the_life_before_is_shown_as_well_or_alone() -> None:
    written = {("digits-0-0", 0): [line(1, "first")], ("digits-0-0", 1): [line(2, "second")]}
    cluster = Paper([(job("0/ab.0"), [trainer(0, life=1)])], written)
    assert texts(past(cluster, see(cluster, "digits"), Choice())) == [(0, "first"), (0, "second")]
    assert texts(past(cluster, see(cluster, "digits"), Choice(previous=True))) == [(0, "first")]


def test_a_rank_that_is_not_there_is_told() -> None:
    cluster = Paper([(job(TWO), [])], {})
    with pytest.raises(CliError, match="there is no rank 2 in round 1: it has 2 workers"):
        past(cluster, see(cluster, "digits"), Choice(rank=2))


def test_a_pod_without_a_log_is_left_out() -> None:
    cluster = Paper([(job(TWO), [trainer(0), trainer(1)])], {("digits-1-0", 0): [line(2, "b")]})
    assert texts(past(cluster, see(cluster, "digits"), Choice())) == [(1, "b")]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.1)


def test_following_shows_each_line_once_over_lives_and_pods_to_the_end(quick: None) -> None:
    written = {
        ("digits-0-0", 0): [line(1, "a"), line(2, "b")],
        ("digits-0-0", 1): [line(5, "again")],
        ("digits-0-1", 0): [line(8, "elsewhere")],
    }
    first, second = (job("0/ab.0"), [trainer(0, runs=True)]), (job("0/ab.0"), [trainer(0, life=1)])
    third = (job("0/cd.0", replacements="0/1"), [trainer(0, replacement=1)])
    last = (job("0/cd.0", replacements="0/1", ended=True), third[1])
    for choice in (Choice(), Choice(rank=0)):
        cluster = Paper([first, first, first, second, second, third, third, last, last], written)
        assert [one.text for one in follow(cluster, "digits", choice)] == ["a", "b", "again", "elsewhere"]


@pytest.mark.parametrize(("tail", "expected"), [(0, ["new", "other"]), (1, ["b", "new", "other"])])
def test_following_from_the_tail_shows_nothing_older(quick: None, tail: int, expected: list[str]) -> None:
    """Of a pod that appears later all is shown."""
    written = {("digits-0-0", 0): [line(1, "a"), line(2, "b")], ("digits-1-0", 0): [line(1, "other")]}
    first = [trainer(0, runs=True)]
    both, members = [*first, trainer(1, runs=True)], job(TWO)
    cluster = Paper([(members, first)] * 2 + [(members, both)] * 2 + [(job(TWO, ended=True), both)], written)
    cluster.late = {"digits-0-0": [line(3, "new")]}
    assert sorted(one.text for one in follow(cluster, "digits", Choice(tail=tail))) == sorted(expected)


def test_a_rank_that_is_away_for_a_while_is_waited_for(quick: None) -> None:
    written = {("digits-0-0", 0): [line(1, "a")], ("digits-1-0", 0): [line(2, "b")]}
    pods = [trainer(0, runs=True), trainer(1, runs=True)]
    both, one, last = (job(TWO), pods), (job("0/ab.0"), pods), (job("0/ab.0", ended=True), pods)
    cluster = Paper([both, both, one, one, last, last], written)
    assert [each.text for each in follow(cluster, "digits", Choice(rank=1))] == ["b"]


def test_a_rank_that_moves_is_followed_from_its_round_on(quick: None) -> None:
    """The pod that takes the rank over was another rank before: that part is not shown."""
    written = {
        ("digits-0-0", 0): [line(1, "rank 0")],
        ("digits-1-0", 0): [line(2, "as rank 1"), line(30, "as rank 0")],
    }
    pods = [trainer(0, runs=True), trainer(1, runs=True)]
    before, after = (job(TWO), pods), (job("1/ab.1 0/ab.0", formed=40), pods)
    last = (job("1/ab.1 0/ab.0", formed=40, ended=True), pods)
    cluster = Paper([before, before, after, after, last], written)
    cluster.late = {"digits-0-0": [line(31, "now rank 1")]}
    assert [one.text for one in follow(cluster, "digits", Choice(rank=0))] == ["rank 0", "as rank 0"]


def test_a_job_that_is_deleted_ends_it(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Paper([(job("0/ab.0"), [trainer(0)])] * 2, {("digits-0-0", 0): [line(1, "a")]})
    found = follow(cluster, "digits", Choice())
    assert next(found).text == "a"

    def gone(name: str) -> Object:
        raise RequestRefused(404, "not found")

    monkeypatch.setattr(cluster, "job", gone)
    assert list(found) == []


def failing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *errors: CliError) -> None:
    """The next looks at the job meet these."""
    asks, left = cluster.job, list(errors)

    def job(name: str) -> Object:
        if left:
            raise left.pop(0)
        return asks(name)

    monkeypatch.setattr(cluster, "job", job)


def test_following_outlasts_an_api_server_that_is_away(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {("digits-0-0", 0): [line(1, "a")], ("digits-0-1", 0): [line(8, "elsewhere")]}
    first = (job("0/ab.0"), [trainer(0, runs=True)])
    last = (job("0/cd.0", replacements="0/1", ended=True), [trainer(0, replacement=1)])
    cluster = Paper([first, first, last], written)
    found = follow(cluster, "digits", Choice())
    assert next(found).text == "a"
    failing(cluster, monkeypatch, NoAnswer("away"), RequestRefused(429, "busy"), RequestRefused(503, "away"))
    assert [one.text for one in found] == ["elsewhere"]


@pytest.mark.parametrize(
    ("patience", "error"), [(0.3, NoAnswer("away")), (1000.0, RequestRefused(403, "no"))], ids=["away", "refused"]
)
def test_following_ends_when_it_will_not_pass(
    quick: None, monkeypatch: pytest.MonkeyPatch, patience: float, error: CliError
) -> None:
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", patience)
    cluster = Paper([(job("0/ab.0"), [trainer(0, runs=True)])] * 2, {("digits-0-0", 0): [line(1, "a")]})
    found = follow(cluster, "digits", Choice())
    assert next(found).text == "a"
    failing(cluster, monkeypatch, *[error] * 1000)
    with pytest.raises(CliError, match=str(error)):
        list(found)


def test_the_last_words_of_a_life_are_asked_for_again(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {("digits-0-0", 0): [line(1, "a")], ("digits-0-0", 1): [line(5, "again")]}
    first, second = (job("0/ab.0"), [trainer(0, runs=True)]), (job("0/ab.0"), [trainer(0, life=1, runs=True)])
    last = (job("0/ab.0", ended=True), [trainer(0, life=1)])
    cluster = Paper([first, first, second, second, last], written)
    asks, left = cluster.log, [RequestRefused(502, "no kubelet")]

    def log(pod: str, container: str, *, previous: bool = False, **options: Any) -> str:
        if previous and left:
            raise left.pop()
        return asks(pod, container, previous=previous, **options)

    monkeypatch.setattr(cluster, "log", log)
    monkeypatch.setattr(cluster, "follow_log", lambda pod, container, **options: iter(()))
    found = follow(cluster, "digits", Choice())
    assert next(found).text == "a"
    written["digits-0-0", 0].append(line(2, "last words"))
    assert [one.text for one in found] == ["last words"]
    assert not left


def test_nothing_older_than_asked_for_is_shown(quick: None) -> None:
    """The API counts whole seconds from its own now on; what was written before is shown by no later look, either."""
    written = {("digits-0-0", 0): [line(1, "old"), line(58, "new")], ("digits-1-0", 0): [line(2, "old")]}
    pods = [trainer(0, runs=True), trainer(1, runs=True)]
    cluster = Paper([(job(TWO), pods), (job(TWO), pods), (job(TWO, ended=True), pods)], written)
    asked: list[Any] = []
    log = cluster.log

    def since(pod: str, container: str, **options: Any) -> str:
        asked.append(options.pop("sinceSeconds"))
        kept = [one for one in log(pod, container, **options).splitlines() if "new" in one]
        return "".join(f"{one}\n" for one in kept)

    cluster.log = since  # type: ignore[method-assign]
    choice = Choice(since=4.5)
    assert texts(past(cluster, see(cluster, "digits"), choice)) == [(0, "new")]
    assert asked == [5, 5]
    assert [one.text for one in follow(cluster, "digits", choice)] == ["new"]
