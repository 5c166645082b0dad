# SPDX-License-Identifier: Apache-2.0
"""`python -m rounds.profile`: where the time of a round goes, step by step, in one job of each size."""

import argparse
import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from rounds.api import Api
from rounds.child import Child
from rounds.floor import Floor
from rounds.moments import Moment, table_of
from rounds.ours import OurJob
from rounds.processes import BUILD, cpu_seconds, handler_processes, operator, sidecar_processes

OPERATOR = BUILD / "bench-moments.jsonl"


async def profile(api: Api, operator: int, n: int) -> None:
    async with Floor(api, n) as bare:
        for kind, writes in (("first", 1), ("again", 2)):
            print(f"{n} agents, {kind}: floor {1000 * await bare.round(joins=n, writes=writes):.0f} ms", flush=True)
    with handler_processes(n) as handlers, sidecar_processes(api, n, "--moments") as sidecars:
        job = OurJob(api, handlers, sidecars)
        await job.start(n, spare=0)
        pids = {"handlers": [one.pid for one in handlers], "sidecars": [one.pid for one in sidecars]}
        for kind in ("first", "again"):
            before = await _cpu(api, {**pids, "operator": [operator]})
            async with job.explained():
                answer = await asyncio.to_thread(job.rendezvous_of_all)
            after = await _cpu(api, {**pids, "operator": [operator]})
            took = ", ".join(f"{name} {1000 * (after[name] - before[name]):.0f}" for name in after)
            print(f"{n} agents, {kind}: ms of processor time: {took}")
            noted = [*_noted(sidecars), *_of_operator(OPERATOR)]
            noted += [("returned", at) for at in answer["ended"].values()]
            print(f"{n} agents, {kind}\n{table_of(answer['began'], max(answer['ended'].values()), noted)}", flush=True)
        await job.end()


async def _cpu(api: Api, pids: dict[str, list[int]]) -> dict[str, float]:
    """Seconds of the processor that the processes have had, and the API server as it says itself."""
    used = {name: sum(cpu_seconds(pid) for pid in some) for name, some in pids.items()}
    return {**used, "API server": await api.cpu_seconds()}


def _noted(sidecars: list[Child]) -> Iterator[Moment]:
    for sidecar in sidecars:
        yield from (tuple(moment) for moment in sidecar.ask("moments")["noted"])


def _of_operator(file: Path) -> Iterator[Moment]:
    for line in file.read_text().splitlines():
        with contextlib.suppress(ValueError):  # the last may be half written
            yield tuple(json.loads(line))


async def run(sizes: list[int]) -> None:
    api = Api()
    try:
        async with operator(api, "rounds.moments", str(OPERATOR)) as pid:
            for n in sizes:
                await profile(api, pid, n)
    finally:
        await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rounds.profile", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=(8, 128, 1024), metavar="N")
    BUILD.mkdir(exist_ok=True)
    asyncio.run(run(list(parser.parse_args().sizes)))


if __name__ == "__main__":
    main()
