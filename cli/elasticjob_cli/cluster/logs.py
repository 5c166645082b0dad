# SPDX-License-Identifier: Apache-2.0
"""The logs of a job's trainers: the existing lines ordered by time, then new ones, across rounds and pods.

A pod's log is requested again, from the last shown line on, when its container is restarted or the connection breaks.
Each line comes with a time, by which it is shown only once.
"""

import math
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from elasticjob.reading import Container
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.transport import RequestRefused, may_pass
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.scene import Leader, Scene
from elasticjob_cli.reading.times import nanoseconds
from elasticjob_cli.reading.words import plural
from elasticjob_cli.reading.worker import WorkerView

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 60.0  # how long to wait for an API server that does not answer
MORE_SECONDS = 2  # clocks differ; lines already shown are dropped by their times


class Line(NamedTuple):
    at: int  # nanoseconds, by the node's clock
    pod: str
    rank: int | None
    text: str


class Choice(NamedTuple):
    """Which logs to show. `rank`: one rank, None for all. `previous`: those of the container's previous life. `tail`:
    the number of last lines of each pod, None for all. `since`: the greatest age of a line in seconds, None for any."""

    rank: int | None = None
    container: str = ""
    previous: bool = False
    tail: int | None = None
    since: float | None = None

    def begins(self, now: datetime) -> int:
        """The earliest time of a line to show, in nanoseconds since 1970."""
        return 0 if self.since is None else int((now.timestamp() - self.since) * 1e9)


@dataclass(slots=True)
class FollowedLog:
    """One pod's log while it is followed. `last`: the time of the last shown line. `life`: the container's restarts
    when the stream was opened. `wanted`: False once the pod has another rank than the chosen one."""

    pod: str
    last: int = 0
    life: int = -1
    thread: threading.Thread | None = None
    wanted: bool = True

    @property
    def is_open(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


@dataclass(slots=True)
class Followed:
    """The state of following. `others`: pods that have had another rank than the chosen one; their earlier lines are
    not the chosen rank's. `begins`: the earliest time of a line to show, in nanoseconds."""

    begins: int = 0
    lines: "queue.SimpleQueue[tuple[FollowedLog, int, str]]" = field(default_factory=queue.SimpleQueue)
    streams: dict[str, FollowedLog] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)


def see(cluster: Cluster, name: str) -> Look:
    """The job with its pods."""
    pods = tuple(cluster.pods(name))
    return look(Scene(job=cluster.job(name), pods=pods, leader=Leader(""), now=cluster.now))


def past(cluster: Cluster, seen: Look, choice: Choice) -> list[Line]:
    """The existing lines of all chosen pods, ordered by time. Raises CliError if the rank does not exist."""
    found, size = [], len(seen.status.rendezvous.participants)
    if choice.rank is not None and choice.rank >= size and seen.status.history:
        sentence = f"there is no rank {choice.rank} in round {seen.round}: it has {plural(size, 'worker')}"
        raise CliError(sentence, Exit.WRONG_COMMAND_LINE)
    for worker in chosen(seen, choice):
        both = _lives(worker, seen, choice) > 0 and choice.tail is None and not choice.previous
        for previous in (True, False) if both else (choice.previous,):
            found += _read(cluster, worker, _container(seen, choice), previous=previous, choice=choice)
    return sorted(found)


def follow(cluster: Cluster, name: str, choice: Choice) -> Iterator[Line]:
    """The existing lines and then new ones, until the job has ended or is deleted."""
    seen = see(cluster, name)
    followed = Followed(begins=choice.begins(cluster.now))
    begin = choice._replace(tail=1) if choice.tail == 0 else choice  # the last line gives the time to start from
    for line in past(cluster, seen, begin):
        followed.streams.setdefault(line.pod, FollowedLog(line.pod)).last = line.at
        if choice.tail != 0:
            yield line
    ranks: dict[str, int | None] = {}
    failing_since: float | None = None
    while True:
        _open(cluster, seen, choice, followed)
        ranks |= {worker.name: worker.rank for worker in seen.workers.values() if worker.is_member}
        yield from _come(followed, ranks)
        if seen.has_ended and not any(stream.is_open for stream in followed.streams.values()):
            yield from _come(followed, ranks)
            return
        try:
            seen, failing_since = see(cluster, name), None
        except CliError as error:
            if isinstance(error, RequestRefused) and error.status == 404:
                return
            failing_since = failing_since or time.monotonic()
            if not may_pass(error) or time.monotonic() - failing_since >= PATIENCE_SECONDS:
                raise


def chosen(seen: Look, choice: Choice) -> list[WorkerView]:
    """The workers whose trainer has run, in rank order, then those without a rank."""
    others = [worker for worker in seen.workers.values() if not worker.is_member]
    workers = [*seen.members, *others]
    if choice.rank is not None:
        workers = [one for one in seen.members if one.rank == choice.rank]
    return [one for one in workers if _has_a_log(_status(one, seen, choice))]


def _open(cluster: Cluster, seen: Look, choice: Choice, followed: Followed) -> None:
    """Opens missing streams: of new pods, of restarted containers, and after lost connections."""
    workers = {worker.name: worker for worker in chosen(seen, choice)}
    others = {worker.name for worker in seen.members} - workers.keys()
    followed.others |= others
    for stream in followed.streams.values():
        stream.wanted = stream.pod not in others  # the last lines of a replaced pod are the rank's own
    for name, worker in workers.items():
        if name not in followed.streams:
            formed = seen.status.history[-1].time if seen.status.history and name in followed.others else ""
            followed.streams[name] = FollowedLog(name, max(nanoseconds(formed) or 0, followed.begins))
        stream = followed.streams[name]
        lives = _lives(worker, seen, choice)
        runs = _status(worker, seen, choice).runs
        if stream.is_open or (lives == stream.life and not runs):
            continue
        if 0 <= stream.life < lives:  # its last lines, in case the stream ended before them
            try:
                before = _read(cluster, worker, _container(seen, choice), previous=True)
            except CliError as error:
                if may_pass(error):
                    continue  # the next look requests them again
                raise
            for line in before:
                followed.lines.put((stream, line.at, line.text))
        stream.life = lives
        arguments = (cluster, stream, _container(seen, choice), followed, cluster.now)
        stream.thread = threading.Thread(target=_pump, args=arguments, name=name, daemon=True)
        stream.thread.start()


def _pump(cluster: Cluster, stream: FollowedLog, container: str, followed: Followed, now: datetime) -> None:
    options = (
        {"sinceSeconds": max(1, math.ceil(now.timestamp() - stream.last / 1e9) + MORE_SECONDS)} if stream.last else {}
    )
    try:
        for line in cluster.follow_log(stream.pod, container, **options):
            at, _, text = line.partition(" ")
            followed.lines.put((stream, nanoseconds(at) or 0, text))
    except CliError:
        return  # the next look opens it again, or finds that the pod is gone


def _come(followed: Followed, ranks: Mapping[str, int | None]) -> Iterator[Line]:
    """The lines that arrive within a second, each once."""
    wait = LOOK_SECONDS
    while True:
        try:
            stream, at, text = followed.lines.get(timeout=wait)
        except queue.Empty:
            return
        wait = min(wait, 0.05) if followed.lines.empty() else 0.0
        if stream.wanted and at > stream.last:
            stream.last = at
            yield Line(at, stream.pod, ranks.get(stream.pod), text)


def _read(
    cluster: Cluster, worker: WorkerView, container: str, *, previous: bool, choice: Choice | None = None
) -> list[Line]:
    options = {"previous": previous} | ({} if choice is None or choice.tail is None else {"tailLines": choice.tail})
    if choice is not None and choice.since is not None:
        options["sinceSeconds"] = max(1, math.ceil(choice.since))
    try:
        text = cluster.log(worker.name, container, **options)
    except RequestRefused as error:
        if error.status in (400, 404):  # it has no log yet, or no longer
            return []
        raise
    parts = (line.partition(" ") for line in text.split("\n"))
    return [
        Line(when, worker.name, worker.rank, rest) for at, _, rest in parts if (when := nanoseconds(at)) is not None
    ]


def _container(seen: Look, choice: Choice) -> str:
    return choice.container or seen.spec.trainer_container


def _has_a_log(container: Container) -> bool:
    return container.has_started or container.ended_before is not None


def _status(worker: WorkerView, seen: Look, choice: Choice) -> Container:
    return worker.container(_container(seen, choice))


def _lives(worker: WorkerView, seen: Look, choice: Choice) -> int:
    return _status(worker, seen, choice).restarts
