# SPDX-License-Identifier: Apache-2.0
"""`python -m fleet`: one operator with many jobs; writes build/bench-fleet.json (the figures: `fleet.figures`).

The API server and etcd are real, and so is the operator's process; jobs, pods and records are objects that processes of
the benchmark write. An operator without a limit first forms the rounds. Then
the measured one stands by, while the benchmark holds the Lease, and leads three times: the Lease is taken away twice.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from rounds.child import Child
from rounds.processes import cpu_seconds
from rounds.starter import local_starter

from fleet import objects, parts, plane
from fleet.figures import Row, table
from fleet.lease import Lease
from fleet.operators import AWAITING, Operator, build_image, chart_limit, has_docker, running
from fleet.plane import Spent, spent
from support import ControlPlane
from support.api_client import ApiClient

BUILD = Path("build")
SIZES = ("50x20", "250x20", "1000x20")
WRITERS = 2
JOBS_AT_ONCE = 10  # that a writer makes before it answers
NODES_AT_ONCE = 64
TERMS = 3
FLOOR_SECONDS = 15.0
PREPARE_SECONDS, TAKE_OVER_SECONDS, STANDBY_SECONDS = 1800.0, 300.0, 60.0
STANDS_BY_SECONDS = 10.0  # what is freed is free by then


@dataclass(frozen=True, slots=True)
class Size:
    jobs: int
    each: int

    @property
    def workers(self) -> int:
        return self.jobs * self.each


class TakeOver(NamedTuple):
    """From the free Lease until each job has had a step; `requests`: of the operator; `operator` and `api`: seconds of
    the processor."""

    seconds: float
    requests: float
    operator: float
    api: float


class Fleet:
    """Of one size, over one API server."""

    def __init__(self, size: Size, server: ControlPlane, api: ApiClient, writers: list[Child]) -> None:
        self._size, self._server, self._api, self._writers = size, server, api, writers
        self._lease = Lease(api)

    async def fill(self) -> None:
        """The jobs with their pods and records, which all ask to join."""
        calls = [self._api.call("POST", "/api/v1/nodes", body) for body in self._nodes()]
        for first in range(0, len(calls), NODES_AT_ONCE):
            await asyncio.gather(*calls[first : first + NODES_AT_ONCE])
        shares = [list(range(number, self._size.jobs, WRITERS)) for number in range(WRITERS)]
        for first in range(0, len(shares[0]), JOBS_AT_ONCE):
            for writer, share in zip(self._writers, shares, strict=True):
                writer.tell("fill", jobs=share[first : first + JOBS_AT_ONCE], workers=self._size.each)
            for writer in self._writers:
                await asyncio.to_thread(writer.answer)

    def _nodes(self) -> list[objects.Object]:
        return objects.node_bodies(self._size.jobs, self._size.each)

    async def prepare(self) -> None:
        """All jobs train in their first round, and have what the operator makes for them."""
        await self._lease.create()
        async with running(self._server, limit=None, container=False) as operator:
            await operator.until("all jobs to have had a step", self._all_had_a_step, PREPARE_SECONDS)
            await self._until_formed()
            await self._ask("train")

    async def _until_formed(self) -> None:
        async with asyncio.timeout(PREPARE_SECONDS):
            while (left := self._size.jobs - await self._formed()) > 0:
                said(f"{left} jobs form their round")
                await asyncio.sleep(5)

    async def _formed(self) -> int:
        found = (await self._api.call("GET", "/apis/elasticjob.io/v1alpha1/elasticjobs"))["items"]
        agreed = [job.get("status", {}).get("rendezvous", {}) for job in found]
        return sum((one.get("round"), one.get("worldSize")) == (1, self._size.each) for one in agreed)

    async def measure(self, *, container: bool, settle: float, rest: float, samples: Path | None) -> Row:
        limit = chart_limit()
        floor = await self._spent_over(FLOOR_SECONDS)
        terms_before, takeovers, rests = await self._lease.terms(), list[TakeOver](), list[float]()
        peaks, stalls = list[float](), list[float]()  # the program is executed anew for each term
        async with contextlib.AsyncExitStack() as operators:
            async with self._lease.held():
                operator = await operators.enter_async_context(
                    running(self._server, limit=limit, container=container, samples=samples)
                )
                await operator.until("it to stand by", lambda seen: seen["elasticjob_leader"] == 0, STANDBY_SECONDS)
                await asyncio.sleep(STANDS_BY_SECONDS)
                fresh = operator.mib()
                await self._ask("beat", workers=self._size.each)
            takeovers.append(await self._take_over(operator))
            await asyncio.sleep(settle)
            rests.append(operator.mib())
            peaks.append(operator.peak_mib())
            steps, wrote, wrote_cpu = await self._steps(operator), await self._written(), self._writers_cpu()
            async with operator.sampled() as stacks:
                own = cpu_seconds(operator.pid)
                at_rest = await self._spent_over(rest)
                own = cpu_seconds(operator.pid) - own
            wrote, wrote_cpu = await self._written() - wrote, self._writers_cpu() - wrote_cpu
            if stacks:
                steps, seconds = await self._steps(operator) - steps, at_rest.at
                said(parts.table(stacks, own / seconds, {"records": wrote / seconds, "steps": steps / seconds}))
            stalls.append(await self._stall(operator))
            standby = 0.0
            for _ in range(1, TERMS):
                async with self._lease.held():
                    await operator.until("it to stand by", lambda seen: seen["elasticjob_leader"] == 0, STANDBY_SECONDS)
                    await asyncio.sleep(STANDS_BY_SECONDS)
                    standby = standby or operator.mib()
                takeovers.append(await self._take_over(operator))
                await asyncio.sleep(settle)
                rests.append(operator.mib())
                peaks.append(operator.peak_mib())
                stalls.append(await self._stall(operator))
            await self._left_alone()
        taken = await self._lease.terms() - terms_before
        everybody = (at_rest.requests / at_rest.at - floor.requests / floor.at) / self._size.workers
        return Row(
            jobs=self._size.jobs,
            workers=self._size.workers,
            where="container" if container else "process",
            limit_mib=limit / 2**20,
            mib_fresh=fresh,
            mib=rests[0],
            mib_third=rests[-1],
            mib_peak=max(peaks),
            mib_peak_first=peaks[0],
            mib_standby=standby,
            takeover_seconds=max(one.seconds for one in takeovers),
            takeover_requests=max(one.requests for one in takeovers) / self._size.jobs,
            takeover_operator=max(one.operator for one in takeovers),
            takeover_api=max(one.api for one in takeovers),
            longest_stall_seconds=max(stalls),
            leases_lost=taken - TERMS,
            operator_cores=own / at_rest.at,
            api_cores=at_rest.api / at_rest.at,
            api_floor_cores=floor.api / floor.at,
            etcd_cores=at_rest.etcd / at_rest.at,
            writer_cores=wrote_cpu / at_rest.at,
            requests=everybody,
            operator_requests=everybody - wrote / at_rest.at / self._size.workers,
            rest_seconds=at_rest.at,
        )

    async def _take_over(self, operator: Operator) -> TakeOver:
        began, wrote, own = await spent(self._server, self._api), await self._written(), cpu_seconds(operator.pid)
        await operator.until("each job to have had a step", self._all_had_a_step, TAKE_OVER_SECONDS)
        ended, wrote = await spent(self._server, self._api), await self._written() - wrote
        took = TakeOver(
            seconds=ended.at - began.at,
            requests=ended.requests - began.requests - wrote,
            operator=cpu_seconds(operator.pid) - own,
            api=ended.api - began.api,
        )
        what = f"{took.seconds:.1f} s, by {took.requests:.0f} requests"
        said(f"taken over in {what}, {operator.mib():.0f} MiB, at most {operator.peak_mib():.0f}")
        return took

    async def _steps(self, operator: Operator) -> float:
        return (await operator.metrics())["elasticjob_reconcile_seconds_count"]

    async def _stall(self, operator: Operator) -> float:
        return (await operator.metrics())["elasticjob_event_loop_stall_seconds"]

    def _all_had_a_step(self, seen: dict[str, float]) -> bool:
        known = seen.get("elasticjob_jobs", 0.0) == self._size.jobs
        return seen["elasticjob_leader"] == 1 and known and seen[AWAITING] == 0

    async def _left_alone(self) -> None:
        """An operator that comes back must not make new rounds."""
        if await self._formed() != self._size.jobs:
            raise RuntimeError("not all jobs are in their first round any more: the benchmark's objects are at fault")

    async def _spent_over(self, seconds: float) -> Spent:
        """What is spent from now on; `at` is how long it took."""
        before = await spent(self._server, self._api)
        await asyncio.sleep(seconds)
        after = await spent(self._server, self._api)
        return Spent(*(new - old for new, old in zip(after, before, strict=True)))

    async def _ask(self, do: str, **arguments: object) -> None:
        for writer in self._writers:
            await asyncio.to_thread(lambda writer=writer: writer.ask(do, **arguments))

    async def _written(self) -> int:
        return sum([(await asyncio.to_thread(writer.ask, "counted"))["requests"] for writer in self._writers])

    def _writers_cpu(self) -> float:
        return sum(cpu_seconds(writer.pid) for writer in self._writers)


@contextmanager
def writers(server: ControlPlane) -> Iterator[list[Child]]:
    arguments = server.server, str(server.authority), str(plane.token_file(server))
    with local_starter() as starter:
        started = [Child("fleet.writer", *arguments, by=starter) for _ in range(WRITERS)]
        try:
            yield started
        finally:
            for child in started:
                child.kill()


@contextlib.asynccontextmanager
async def fleet(size: Size) -> AsyncIterator[Fleet]:
    server = await asyncio.to_thread(plane.started)
    api = plane.client(server)
    try:
        with writers(server) as children:
            yield Fleet(size, server, api, children)
    finally:
        await api.close()
        await asyncio.to_thread(server.stop)


async def run(
    sizes: list[Size], *, settle: float, rest: float, samples: Path | None, done: Callable[[list[Row]], None]
) -> None:
    container = samples is None and has_docker()
    if samples is not None:
        parts.check()
        said(f"the operator is a process that writes its stacks to {samples}")
    elif container:
        build_image()
    else:
        said("no Docker daemon answers: the operator is a process, whose writable memory has the chart's limit")
    rows: list[Row] = []
    for size in sizes:
        said(f"{size.jobs} jobs of {size.each}")
        async with fleet(size) as one:
            await one.fill()
            said("the objects are written")
            await one.prepare()
            said("the rounds are formed")
            rows.append(await one.measure(container=container, settle=settle, rest=rest, samples=samples))
        done(rows)


def said(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {what}", file=sys.stderr, flush=True)


def size_of(text: str) -> Size:
    jobs, _, each = text.partition("x")
    try:
        size = Size(int(jobs), int(each))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not JOBSxWORKERS, such as 50x20") from None
    if not (size.jobs >= WRITERS and size.each >= 1):
        raise argparse.ArgumentTypeError(f"{text!r}: at least {WRITERS} jobs of a worker")
    return size


def main() -> None:
    parser = argparse.ArgumentParser(prog="fleet", description=__doc__.splitlines()[0])
    sizes = [size_of(one) for one in SIZES]
    parser.add_argument("--sizes", type=size_of, nargs="+", default=sizes, metavar="JOBSxWORKERS")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds after a take-over until the operator rests")
    parser.add_argument("--seconds", type=float, default=45.0, help="how long it is watched at rest")
    parser.add_argument("--samples", action="store_true", help="what the operator has the processor for at rest")
    given = parser.parse_args()
    samples = (BUILD / "bench-fleet-samples.json").absolute() if given.samples else None
    BUILD.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or what was started would be left

    def done(rows: list[Row]) -> None:
        (BUILD / "bench-fleet.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
        print(table(rows), flush=True)

    asyncio.run(run(given.sizes, settle=given.settle, rest=given.seconds, samples=samples, done=done))


if __name__ == "__main__":
    main()
