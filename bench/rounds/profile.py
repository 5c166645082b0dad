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
from rounds.processes import BUILD, children, operator, sidecar_processes

OPERATOR = BUILD / "bench-moments.jsonl"


async def profile(api: Api, n: int) -> None:
    async with Floor(api, n) as bare:
        for kind, writes in (("first", 1), ("again", 2)):
            print(f"{n} agents, {kind}: floor {1000 * await bare.round(joins=n, writes=writes):.0f} ms", flush=True)
    with children("rounds.handlers", n) as handlers, sidecar_processes(api, n, "--moments") as sidecars:
        job = OurJob(api, handlers, sidecars)
        await job.start(n, spare=0)
        for kind in ("first", "again"):
            answer = await asyncio.to_thread(job.rendezvous_of_all)
            noted = [*_noted(sidecars), *_of_operator(OPERATOR)]
            noted += [("returned", at) for at in answer["ended"].values()]
            print(f"{n} agents, {kind}\n{table_of(answer['began'], max(answer['ended'].values()), noted)}", flush=True)
        await job.end()


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
        async with operator(api, "rounds.moments", str(OPERATOR)):
            for n in sizes:
                await profile(api, n)
    finally:
        await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rounds.profile", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=(8, 128, 1024), metavar="N")
    BUILD.mkdir(exist_ok=True)
    asyncio.run(run(list(parser.parse_args().sizes)))


if __name__ == "__main__":
    main()
