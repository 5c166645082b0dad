# SPDX-License-Identifier: Apache-2.0
"""`python -m rounds.silence`: seconds until all others are told that a worker's sidecar stands still, by the size of
the group; writes build/bench-silence.json.

Its process is stopped, as with its node, when the round's lines stand and all workers have written their ranks. Real
operator, API server, sidecars and handlers, as in the benchmark of rounds; the others are told by torch's poll, ten
times a second.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from elasticjob.heartbeats import default_worker_lost
from elasticjob_sidecar.membership.link_monitor import times_of
from rounds.api import Api
from rounds.ours import OurJob
from rounds.processes import BUILD, handler_processes, operator, sidecar_processes

SIZES = (8, 1024)
RUNS = 3
SETTLE_SECONDS = 10.0  # after the last line and the last write


@dataclass(slots=True)
class Row:
    n: int
    rank: int  # whose sidecar stands still: 0 is heard by all, the others by rank 0 alone
    worker_lost: float  # the default's seconds for suspicion and proof
    told_seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        told = ", ".join(f"{seconds:.2f}" for seconds in self.told_seconds)
        middle = statistics.median(self.told_seconds)
        who = f"{self.n} workers, workerLostSeconds {self.worker_lost:g}, rank {self.rank} stands still"
        return f"{who}: told after {middle:.2f} s ({told})"


async def measure(api: Api, n: int, rank: int) -> float:
    """One job: its round is formed, then the sidecar with a process of its own is stopped: the first or the last."""
    with (
        handler_processes(n) as handlers,
        sidecar_processes(api, n - 1) as sidecars,
        sidecar_processes(api, 1) as [lone],
    ):
        first, rest = ([lone], sidecars) if rank == 0 else (sidecars, [lone])
        job = OurJob(api, handlers, first)
        agents = await job.start(1 if rank == 0 else n - 1, spare=n)
        newest = await job.scale(n, rest)
        victim = agents[0] if rank == 0 else newest
        await asyncio.to_thread(job.rendezvous)
        await asyncio.sleep(times_of(n, None).latest)
        await job.settled()
        await asyncio.sleep(SETTLE_SECONDS)
        os.kill(lone.pid, signal.SIGSTOP)
        try:
            return await asyncio.to_thread(job.told_without, victim)
        finally:
            os.kill(lone.pid, signal.SIGCONT)
            await job.end()


async def run(sizes: Sequence[int], runs: int) -> None:
    api, rows = Api(), [Row(n, rank, default_worker_lost(n)) for n in sizes for rank in (n - 1, 0)]
    try:
        async with operator(api):
            for row in rows:
                for _ in range(runs):
                    row.told_seconds.append(await measure(api, row.n, row.rank))
                    print(row, file=sys.stderr, flush=True)
                (BUILD / "bench-silence.json").write_text(json.dumps([asdict(one) for one in rows], indent=1))
            print("\n".join(map(str, rows)))
    finally:
        await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rounds.silence", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    asyncio.run(run(given.sizes, given.runs))


if __name__ == "__main__":
    main()
