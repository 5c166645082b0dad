# SPDX-License-Identifier: Apache-2.0
"""What the lines of a large round cost rank 0's sidecar: processor time, memory, and how long they take to come up.

    python bench/lines.py [--workers 1024] [--seconds 30]

Rank 0's end is this process, and those of all other members are in another one, over real TLS. The API server is not in
it: lines need none. Writes build/bench-lines.json.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import random
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from elasticjob.api import Member, Members, RendezvousStatus
from elasticjob.certificates import der_of, fingerprint_of
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.links.link import Link
from elasticjob_sidecar.links.links import PeerLinks
from elasticjob_sidecar.membership.link_monitor import LinkTimes, times_of
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.metrics import Metrics
from elasticjob_sidecar.store.credentials import Credentials
from elasticjob_sidecar.store.transport import PeerTransport
from support.pod_life import new_credentials
from support.ports import free_port

BUILD, JOB_UID, ID = Path("build"), "bench-lines", "a.0"
UP_SECONDS, SETTLE_SECONDS = 120.0, 5.0


@dataclass(slots=True, kw_only=True)
class Row:
    workers: int
    seconds_until_up: float
    cores: float
    mib: float  # more than before the first line
    suspects: int


class Stands:
    """In the place of the driver: a worker of the round, to which nothing happens."""

    def __init__(self, index: int, workers: int, store: str) -> None:
        members = Members(Member(one, ID) for one in range(workers))
        job = {"phase": "Formed", "round": 1, "participants": str(members), "store": store, "ping": {}}
        status = RendezvousStatus.parse(job)
        self.standing = Standing(members[index], Mode.HANDED, status, 0, 0, None, None)
        self.next_change = asyncio.Event()


class Nothing:
    """There is no watch."""

    def again(self) -> None: ...

    def calm(self, calm: bool) -> None: ...


class Worker:
    """The lines of one member."""

    def __init__(self, index: int, workers: int, store: str, credentials: Credentials) -> None:
        self.transport, self.metrics = PeerTransport(credentials, JOB_UID), Metrics()
        driver: Driver = Stands(index, workers, store)  # type: ignore[assignment]
        self.lines = PeerLinks(driver, self.transport, self.metrics, lambda: None, lambda _: None, Nothing())

    @property
    def open(self) -> int:
        return int(self.metrics.links._value.get())


async def rank_0(workers: int, seconds: float) -> Row:
    port, mine = free_port(), new_credentials()
    store = f"127.0.0.1:{port}/{fingerprint_of(der_of(mine.certificate))}"
    worker = Worker(0, workers, store, mine)
    command = (__file__, "--workers", str(workers), "--others", store)
    others = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, limit=8 << 20
    )
    assert others.stdout is not None
    certificates = json.loads(await others.stdout.readline())
    await worker.transport.listen("127.0.0.1", port, None, None)  # type: ignore[arg-type]
    worker.transport.trust(1, {Member(index, ID): der_of(pem) for index, pem in enumerate(certificates, 1)})
    before, began = resident_mib(), time.monotonic()
    running = asyncio.create_task(worker.lines.run())
    try:
        async with asyncio.timeout(UP_SECONDS):
            while worker.open < workers - 1:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0.05)
        up = time.monotonic() - began
        await asyncio.sleep(SETTLE_SECONDS)
        used, began = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        cores = (time.process_time() - used) / (time.monotonic() - began)
        suspects = int(worker.metrics.suspicions._value.get())
        return Row(workers=workers, seconds_until_up=up, cores=cores, mib=resident_mib() - before, suspects=suspects)
    finally:
        running.cancel()
        others.kill()
        await others.wait()


async def others(workers: int, store: str) -> None:
    credentials = [new_credentials() for _ in range(1, workers)]
    times = times_of(workers, None)
    print(json.dumps([one.certificate for one in credentials]), flush=True)
    await asyncio.gather(*(member(PeerTransport(one, JOB_UID), store, times) for one in credentials))


async def member(transport: PeerTransport, store: str, times: LinkTimes) -> None:
    """Its line, without a look at who is silent: a thousand looks in one process would be most of what it does."""
    await asyncio.sleep(random.uniform(times.earliest, times.latest))
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            link = Link(await transport.connect_link(store, 1, UP_SECONDS), lambda: None)
            await link.keep_beating(times.heartbeat, sys.maxsize)


def resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--others", metavar="STORE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.basicConfig(level="ERROR")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if given.others:
        asyncio.run(others(given.workers, given.others))
        return
    row = asyncio.run(rank_0(given.workers, given.seconds))
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench-lines.json").write_text(json.dumps(asdict(row), indent=1))
    print(
        f"{row.workers} workers: lines up after {row.seconds_until_up:.1f} s; rank 0 then takes {row.cores:.3f} cores "
        f"and {row.mib:.0f} MiB more; suspects: {row.suspects}"
    )


if __name__ == "__main__":
    main()
