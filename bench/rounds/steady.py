# SPDX-License-Identifier: Apache-2.0
"""`python -m rounds.steady`: what a job costs while nothing happens to it, by its size; writes build/bench-steady.json.

Real operator process, API server, sidecars and handlers, as in the benchmark of rounds; the row of 0 workers is what
the cluster and an idle operator cost. Requests of a poll are those that Python itself sees: its audit hooks tell of
each connection and each HTTP request, whatever thread makes it.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rounds.api import Api
from rounds.costs import SECONDS, Cost, cost
from rounds.ours import OurJob, size_in_bytes
from rounds.processes import BUILD, handler_processes, operator, sidecar_processes

SIZES = (8, 128, 1024)
COLUMNS = {
    "N": "{0.n}",
    "requests": "{0.requests:.3f}",
    "writes": "{0.writes:.3f}",
    "bytes": "{0.bytes:.0f}",
    "operator cores": "{0.operator_cores:.3f}",
    "API server cores": "{0.api_server_cores:.3f}",
    "sidecars cores": "{0.sidecars_cores:.3f}",
    "ms/s a sidecar": "{0.sidecar_milliseconds:.2f}",
    "operator MiB": "{0.operator_mib:.0f}",
    "poll us": "{0.poll_microseconds:.2f}",
    "its requests": "{0.poll_requests:g}",
    "status bytes": "{0.status_bytes}",
}


@dataclass(slots=True, kw_only=True)
class Row(Cost):
    """Also of one num_nodes_waiting(), and the job's status as JSON."""

    poll_microseconds: float = 0.0
    poll_requests: float = 0.0
    status_bytes: int = 0


async def measure(api: Api, n: int, operator: int, seconds: float) -> Row:
    """The row of one job of `n` workers, in round 1; of no job, if `n` is 0."""
    if n == 0:
        return Row(**asdict(await cost(api, 0, operator, (), seconds)))
    with handler_processes(n) as handlers, sidecar_processes(api, n) as sidecars:
        job = OurJob(api, handlers, sidecars)
        await job.start(n, spare=0)
        await asyncio.to_thread(job.rendezvous)
        spent = await cost(api, n, operator, sidecars, seconds)
        poll = handlers[0].ask("poll_cost")
        status = await job.status()
        agreed = status["rendezvous"]
        if (agreed["phase"], agreed["round"], agreed["worldSize"]) != ("Formed", 1, n):
            raise RuntimeError(f"the job of {n} was not left alone: it is at {agreed['phase']} {agreed['round']}")
        await job.end()
    return Row(
        **asdict(spent),
        poll_microseconds=1e6 * poll["seconds"],
        poll_requests=poll["requests"],
        status_bytes=size_in_bytes(status),
    )


async def rows_of(api: Api, sizes: Sequence[int], operator: int, seconds: float = SECONDS) -> list[Row]:
    """Also written to the file, after each size."""
    rows: list[Row] = []
    for n in (0, *sizes):
        began = time.monotonic()
        rows.append(await measure(api, n, operator, seconds))
        print(f"{n} workers watched in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        (BUILD / "bench-steady.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return rows


def table(rows: Sequence[Row]) -> str:
    lines = [list(COLUMNS), *([form.format(row) for form in COLUMNS.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(["requests, writes and bytes: per worker and second; of 0 workers: per second", *text])


async def run(sizes: Sequence[int], seconds: float) -> None:
    api = Api()
    try:
        async with operator(api) as pid:
            print(table(await rows_of(api, sizes, pid, seconds)))
    finally:
        await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rounds.steady", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each size is watched")
    given = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    asyncio.run(run(given.sizes, given.seconds))


if __name__ == "__main__":
    main()
