"""`python -m rounds.fleet`: one operator with many jobs: what it costs while nothing happens, and how it comes back.

Writes build/bench-fleet.json. Each job's workers are in round 1 before the operator is watched, and afterwards: an
operator that comes back must not make a new round. All restarts are measured from the signal to the old process:

- `ready`: the new process answers 200 at /readyz. A standby does so too.
- `leads`: the Lease tells a new term. That of a killed leader runs out first, 10 s after it was last renewed: the
  number holds this.
- `resumed`: the status of every job names the new term, which a leader writes when it has listed the job, its pods
  and workers anew and decided; nothing else changes in these statuses.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

from rounds.api import Api
from rounds.costs import SECONDS, Cost, cost, resident_mib
from rounds.operators import Operator, at_rest
from rounds.ours import JOBS, NAMESPACE, OurJob
from rounds.processes import BUILD, handler_processes, sidecar_processes
from support.api_client import Object

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
IDLE_SECONDS = 60.0
SETTLE_SECONDS = 5.0
RESUMED_SECONDS = 120.0


@dataclass(slots=True)
class Restart:
    """Seconds from the signal; memory when all is resumed."""

    kind: str
    ready: float
    leads: float
    resumed: float
    operator_mib: float


@dataclass(slots=True)
class Fleet:
    """`idle`: without any job, in the same run."""

    jobs: int
    idle: Cost
    steady: Cost
    restarts: list[Restart] = field(default_factory=list)


class Terms:
    """The term of the Lease and that in each job's status, as watches tell them: nobody asks the operator for it."""

    def __init__(self, api: Api, jobs: int) -> None:
        self._api, self._jobs = api, jobs
        self._lease = 0
        self._terms: dict[str, int] = {}
        self._rang = asyncio.Event()

    async def follow(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._follow_lease(), self._follow_jobs())

    async def _follow_lease(self) -> None:
        async for event in self._api.watch(LEASES):
            self._lease = event["object"]["spec"]["leaseTransitions"]
            self._rang.set()

    async def _follow_jobs(self) -> None:
        async for event in self._api.watch(JOBS):
            job: Object = event["object"]
            self._terms[job["metadata"]["name"]] = job.get("status", {}).get("term", 0)
            self._rang.set()

    def newest(self) -> int:
        return self._lease

    async def led_after(self, term: int) -> None:
        await self._until("a leader", lambda: self._lease > term)

    async def resumed_after(self, term: int) -> None:
        """Every job's status names a later one."""
        await self._until(
            "all jobs to be resumed", lambda: sum(one > term for one in self._terms.values()) == self._jobs
        )

    async def _until(self, what: str, reached: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(RESUMED_SECONDS):
                while not reached():
                    self._rang.clear()
                    await self._rang.wait()
        except TimeoutError:
            raise TimeoutError(f"waited {RESUMED_SECONDS:g} s for {what}; terms: {self._terms}") from None


class Restarts:
    """Of an operator that leads. Each way to lose it ends with another that does."""

    def __init__(self, terms: Terms, operator: Operator) -> None:
        self._terms, self.operator = terms, operator

    async def same_name(self) -> Restart:
        """As the kubelet does it in place: SIGKILL, and a process with the same identity."""
        return await self._replace("killed, starts again in place", self.operator.kill, Operator(identity="first"))

    async def other_name(self) -> Restart:
        """As a ReplicaSet does it: another pod."""
        return await self._replace("killed, another pod", self.operator.kill, Operator(identity="second"))

    async def stopped(self) -> Restart:
        """SIGTERM, as in an upgrade: it gives its Lease up."""
        return await self._replace("stopped, another pod", self.operator.stop, Operator(identity="third"))

    async def standby(self) -> Restart:
        """SIGKILL while a second one stands by, as the chart has it."""
        waiting = Operator(identity="standby")
        await waiting.start()
        await waiting.ready()
        return await self._replace("killed, a standby is there", self.operator.kill, waiting, started=True)

    async def _replace(
        self, kind: str, end: Callable[[], Awaitable[None]], new: Operator, started: bool = False
    ) -> Restart:
        await asyncio.sleep(SETTLE_SECONDS)  # no operator is lost while it still comes back
        term, began = self._terms.newest(), time.monotonic()
        await end()
        self.operator = new
        if not started:
            await new.start()
        seconds = []
        for reached in (new.ready(), self._terms.led_after(term), self._terms.resumed_after(term)):
            await reached
            seconds.append(time.monotonic() - began)
        return Restart(kind, *seconds, operator_mib=resident_mib(new.pid))


async def measure(api: Api, jobs: int, workers: int, seconds: float) -> Fleet:
    n, terms = jobs * workers, Terms(api, jobs)
    restarts = Restarts(terms, Operator(identity="first"))
    with handler_processes(n) as handlers, sidecar_processes(api, n) as sidecars:
        try:
            await restarts.operator.start()
            await restarts.operator.ready()
            idle = await cost(api, 0, restarts.operator.pid, (), IDLE_SECONDS)
            for number in range(jobs):
                job = OurJob(api, handlers, sidecars, addresses=number * workers)
                await job.start(workers, spare=0)
                await asyncio.to_thread(job.rendezvous)
            print(f"{jobs} jobs of {workers} formed", file=sys.stderr, flush=True)
            fleet = Fleet(jobs, idle, await cost(api, n, restarts.operator.pid, sidecars, seconds))
            async with following(terms):
                for lose in (restarts.same_name, restarts.other_name, restarts.stopped, restarts.standby):
                    fleet.restarts.append(await lose())
            await check(api, jobs, workers)
        finally:  # before the sidecars end: their workers are not to be replaced
            await restarts.operator.stop()
    return fleet


@asynccontextmanager
async def following(terms: Terms) -> AsyncIterator[None]:
    task = asyncio.create_task(terms.follow())
    try:
        await terms.resumed_after(0)
        await terms.led_after(0)
        yield
    finally:
        task.cancel()


async def check(api: Api, jobs: int, workers: int) -> None:
    """All of them are still in their first round."""
    listed = (await api.call("GET", JOBS))["items"]
    found = [(one["phase"], one["round"], one["worldSize"]) for one in (job["status"]["rendezvous"] for job in listed)]
    if found != [("Formed", 1, workers)] * jobs:
        raise RuntimeError(f"not all of {jobs} jobs are in round 1 with {workers} workers: {sorted(set(found))}")


def table(fleet: Fleet) -> str:
    spent = fleet.steady
    lines = [
        f"{spent.n} workers in {fleet.jobs} jobs, for {spent.seconds:.0f} s:",
        f"  operator      {spent.operator_cores:.3f} cores, {spent.operator_mib:.0f} MiB",
        f"  API server    {spent.api_server_cores:.3f} cores, {fleet.idle.api_server_cores:.3f} without any job",
        f"  sidecars      {spent.sidecars_cores:.3f} cores, {spent.sidecar_milliseconds:.2f} ms/s each",
        f"  per worker    {spent.requests:.3f} requests/s, {spent.writes:.3f} writes/s, {spent.bytes:.0f} bytes/s",
        f"{'operator':<32}{'ready s':>9}{'leads s':>9}{'resumed s':>11}{'MiB':>6}",
    ]
    for one in fleet.restarts:
        figures = f"{one.ready:>9.2f}{one.leads:>9.2f}{one.resumed:>11.2f}{one.operator_mib:>6.0f}"
        lines.append(f"  {one.kind:<30}{figures}")
    return "\n".join(lines)


async def run(jobs: int, workers: int, seconds: float) -> None:
    api = Api()
    try:
        async with at_rest(api):
            fleet = await measure(api, jobs, workers, seconds)
        (BUILD / "bench-fleet.json").write_text(json.dumps(asdict(fleet), indent=1))
        print(table(fleet))
    finally:
        await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rounds.fleet", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--workers", type=int, default=20, help="of each job")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the operator is watched")
    given = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    asyncio.run(run(given.jobs, given.workers, given.seconds))


if __name__ == "__main__":
    main()
