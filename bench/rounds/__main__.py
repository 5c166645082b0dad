# SPDX-License-Identifier: Apache-2.0
"""`python -m rounds`: measures, prints the table, writes build/bench.json."""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from elasticjob.fields import MAX_REPLICAS
from rounds.api import Api
from rounds.c10d import C10d
from rounds.floor import Floor
from rounds.logs import forget_if_empty, kept, new_log
from rounds.ours import OurJob
from rounds.processes import BUILD, handler_processes, operator, sidecar_processes
from rounds.progress import Progress
from rounds.starter import EQUAL_SHARES, equal_shares

SIZES = (2, 8, 32, 64, 128, 256, 512, 1024)
C10D_TO = 128  # with 256 agents it never completes: they expire as fast as they join
# per kind: joins and status writes of one round, for the floor
FLOORS = {"first": (None, 1), "again": (None, 2), "below-max": (None, 1), "scale-up": (1, 2), "member-lost": (0, 1)}
OF_ONE_MORE = ("below-max", "scale-up")


@dataclass(slots=True)
class Row:
    n: int
    kind: str
    ours_seconds: list[float] = field(default_factory=list)
    c10d_seconds: list[float] = field(default_factory=list)
    floor_seconds: list[float] = field(default_factory=list)
    ours_api_writes: int = 0
    ours_api_bytes: int = 0
    ratio_median: float | None = None
    ours_after_last_join_seconds: list[float] = field(default_factory=list)  # when all others have joined before

    def finish(self) -> "Row":
        if self.c10d_seconds:
            self.ratio_median = round(statistics.median(self.c10d_seconds) / statistics.median(self.ours_seconds), 1)
        return self


class Bench:
    def __init__(self, api: Api, sizes: Sequence[int], runs: int, c10d_to: int) -> None:
        self._api, self._runs, self._c10d_to = api, runs, c10d_to
        self._progress = Progress(sum(1 + runs + self._runs_of_c10d(n) for n in sizes))
        self._rows: dict[tuple[int, str], Row] = {}

    @property
    def rows(self) -> list[Row]:
        return [row.finish() for row in self._rows.values()]

    def row(self, n: int, kind: str) -> Row:
        return self._rows.setdefault((n, kind), Row(n, kind))

    async def measure(self, n: int) -> None:
        with self._progress.step(f"{n} agents, the floor, {self._runs} runs"):
            await self._floor(n)
        for run in range(1, self._runs + 1):
            with self._progress.step(f"{n} agents, ElasticJob, run {run} of {self._runs}") as found:
                await self._ours(n)
                found += self._newest(n, "ours_seconds")
        for run in range(1, self._runs_of_c10d(n) + 1):
            with self._progress.step(f"{n} agents, c10d, run {run} of {self._runs}") as found:
                try:
                    await asyncio.to_thread(self._c10d, n)
                    found += self._newest(n, "c10d_seconds")
                except RuntimeError as error:  # what it did until then stays in the table
                    found.append(f"ended with {error}")

    def _runs_of_c10d(self, n: int) -> int:
        return self._runs if n <= self._c10d_to else 0

    def _newest(self, n: int, side: str) -> list[str]:
        rounds = {row.kind: getattr(row, side) for (size, _), row in self._rows.items() if size == n}
        return [f"{kind} {seconds[-1]:.3g} s" for kind, seconds in rounds.items() if seconds]

    async def _floor(self, n: int) -> None:
        async with Floor(self._api, n) as bare:
            for kind, (joins, writes) in FLOORS.items():
                if kind in OF_ONE_MORE and n == MAX_REPLICAS:
                    continue
                for _ in range(self._runs):
                    seconds = await bare.round(joins=n if joins is None else joins, writes=writes)
                    self.row(n, kind).floor_seconds.append(seconds)

    async def _ours(self, n: int) -> None:
        """One job: its first round, the same members again, again with one that comes late, one more, one less. The
        largest job that there may be has none more."""
        spare = min(1, MAX_REPLICAS - n)
        with handler_processes(n) as handlers, sidecar_processes(self._api, n) as sidecars:
            job = OurJob(self._api, handlers, sidecars)
            newest = (await job.start(n, spare))[-1]
            async with job.explained(), self._counted(self.row(n, "first")):
                first = await asyncio.to_thread(job.rendezvous)
            self.row(n, "first").ours_seconds.append(first)
            if spare:
                below = self.row(n, "below-max")  # the same round: the job may have one worker more
                below.ours_seconds.append(first)
                below.ours_api_writes = self.row(n, "first").ours_api_writes
                below.ours_api_bytes = self.row(n, "first").ours_api_bytes
            async with job.explained(), self._counted(self.row(n, "again")):
                self.row(n, "again").ours_seconds.append(await asyncio.to_thread(job.rendezvous))
            async with job.explained():
                self.row(n, "again").ours_after_last_join_seconds.append(await job.after_the_last_join())
            if spare:
                newest = await job.scale(n + 1)
                async with job.explained(), self._counted(self.row(n, "scale-up")):
                    self.row(n, "scale-up").ours_seconds.append(await asyncio.to_thread(job.grow, newest))
            async with job.explained(), self._counted(self.row(n, "member-lost")):
                self.row(n, "member-lost").ours_seconds.append(await asyncio.to_thread(job.lose, newest))
            await job.end()

    def _c10d(self, n: int) -> None:
        with handler_processes(n) as handlers, store_server() as store:
            group = C10d(handlers, store, n, spare=0)
            self.row(n, "first").c10d_seconds.append(group.rendezvous())
            self.row(n, "again").c10d_seconds.append(group.rendezvous())
        with handler_processes(n) as handlers, store_server() as store:
            group = C10d(handlers, store, n, spare=1)
            self.row(n, "below-max").c10d_seconds.append(group.rendezvous())
            group.add("newcomer")
            self.row(n, "scale-up").c10d_seconds.append(group.grow("newcomer"))

    @contextlib.asynccontextmanager
    async def _counted(self, row: Row) -> AsyncIterator[None]:
        before = await self._api.counted()
        yield
        after = await self._api.counted()
        row.ours_api_writes, row.ours_api_bytes = after.writes - before.writes, after.bytes - before.bytes


@contextlib.contextmanager
def store_server() -> Iterator[str]:
    """The address of a TCPStore in a process of its own."""
    command = [sys.executable, "-m", "rounds.store_server"]
    path = new_log("rounds.store_server")
    with path.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
            forget_if_empty(path)


def _median(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.3f}" if seconds else ""


def table(rows: list[Row]) -> str:
    titles = (
        "N",
        "kind",
        "floor s",
        "ours s",
        "(range)",
        "last join",
        "c10d s",
        "c10d/ours",
        "ours/floor",
        "writes",
        "KB",
    )
    form = "{:>5} {:<12} {:>9} {:>9} {:>17} {:>9} {:>9} {:>10} {:>10} {:>7} {:>8}"
    lines = [form.format(*titles)]
    for row in rows:
        ours, least = statistics.median(row.ours_seconds), statistics.median(row.floor_seconds)
        lines.append(
            form.format(
                row.n,
                row.kind,
                f"{least:.3f}",
                f"{ours:.3f}",
                f"({min(row.ours_seconds):.3f}-{max(row.ours_seconds):.3f})",
                _median(row.ours_after_last_join_seconds),
                _median(row.c10d_seconds),
                row.ratio_median or "",
                f"{ours / least:.1f}",
                row.ours_api_writes,
                f"{row.ours_api_bytes / 1000:.0f}",
            )
        )
    return "\n".join(lines)


async def run(sizes: list[int], runs: int, c10d_to: int) -> None:
    api = Api()
    try:
        async with operator(api):
            bench = Bench(api, sizes, runs, c10d_to)
            for n in sizes:
                try:
                    await bench.measure(n)
                finally:  # the largest size takes minutes, and may fail in its last round
                    (BUILD / "bench.json").write_text(json.dumps([asdict(row) for row in bench.rows], indent=1))
            print(table(bench.rows))
            if said := kept():
                print(said, file=sys.stderr)
    finally:
        await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rounds", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--c10d-to", type=int, default=C10D_TO, metavar="N", help="sizes beyond it are ours alone")
    parser.add_argument(EQUAL_SHARES, action="store_true", help="all in this container: no process gives way")
    given = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    with equal_shares() if given.equal_shares else contextlib.nullcontext():
        asyncio.run(run(list(given.sizes), given.runs, given.c10d_to))


if __name__ == "__main__":
    main()
