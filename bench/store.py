# SPDX-License-Identifier: Apache-2.0
"""The round's store through the tunnel beside a direct TCPStore: how long a call takes, and how many a second.

`make bench-store` runs it. The server is a process, as rank 0's agent is one, and so are both sidecars together, which
have a processor each in a cluster. Direct and tunnel take turns. What is measured:

    set, set 1 MiB    the call alone: torch's server answers no write. Calls per second count what has arrived.
    get, get 1 MiB    of a key that is there: two questions to the server, as torch's client does it
    add               one question
    wait              from one client's `set` to the return of another's `wait` for that key, by pairs of clients
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import torch
from torch.distributed import TCPStore

from contract.sidecar_pair import SidecarPair
from elasticjob_torch.agent.store import serve_store

TURNS = 5
CLIENTS = (1, 16)
LIMIT = timedelta(seconds=60)
SMALL, LARGE = b"x" * 64, b"x" * (1 << 20)

Client = Callable[[TCPStore, str, int], list[float]]  # connection, key, calls -> seconds of each call


def timed(call: Callable[[TCPStore, str], object]) -> Client:
    def client(store: TCPStore, key: str, calls: int) -> list[float]:
        seconds = []
        for _ in range(calls):
            began = time.perf_counter()
            call(store, key)
            seconds.append(time.perf_counter() - began)
        store.num_keys()  # answered when all writes have arrived
        return seconds

    return client


def asks(store: TCPStore, key: str, calls: int) -> list[float]:
    """Hand over to `answers` and wait for its answer: two waits."""
    seconds = []
    for call in range(calls):
        began = time.perf_counter()
        store.set(f"{key}/{call}/asked", "")
        store.wait([f"{key}/{call}/answered"])
        seconds.append((time.perf_counter() - began) / 2)
    return seconds


def answers(store: TCPStore, key: str, calls: int) -> list[float]:
    for call in range(calls):
        store.wait([f"{key}/{call}/asked"])
        store.set(f"{key}/{call}/answered", "")
    return []


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    calls: int  # in a turn, by all clients
    clients: tuple[Client, ...]  # that share a key
    counts: int = 1  # of each time taken


KINDS = (
    Kind("set", 16000, (timed(lambda store, key: store.set(key, SMALL)),)),
    Kind("get", 480, (timed(lambda store, _: store.get("small")),)),
    Kind("add", 800, (timed(lambda store, _: store.add("sum", 1)),)),
    Kind("wait", 480, (asks, answers), counts=2),
    Kind("set 1 MiB", 32, (timed(lambda store, key: store.set(key, LARGE)),)),
    Kind("get 1 MiB", 32, (timed(lambda store, _: store.get("large")),)),
)


@dataclass(frozen=True, slots=True)
class JobGauges:
    median_us: float
    p99_us: float
    calls_per_second: float


@dataclass(frozen=True, slots=True)
class Row:
    call: str
    clients: int
    direct: JobGauges
    tunnel: JobGauges

    def line(self) -> str:
        sides = (self.direct, self.tunnel)
        cells = [
            *(f"{side.median_us:,.0f}" for side in sides),
            f"{self.tunnel.median_us / self.direct.median_us:.1f}",
            *(f"{side.p99_us:,.0f}" for side in sides),
            *(f"{side.calls_per_second:,.0f}" for side in sides),
            f"{self.tunnel.calls_per_second / self.direct.calls_per_second:.2f}",
        ]
        return f"| {self.call} | {self.clients} | {' | '.join(cells)} |"


COLUMNS = ("call", "clients", "median us: direct", "tunnel", "ratio", "p99 us: direct", "tunnel", "calls/s: direct")
COLUMNS += ("tunnel", "ratio")


def measure(kind: Kind, clients: int, ports: tuple[int, int]) -> Row:
    """All turns of one row; `ports` are where the store is direct, and through the tunnel."""
    seconds: tuple[list[float], list[float]] = ([], [])
    took = [0.0, 0.0]
    for turn in range(TURNS):
        for way, port in enumerate(ports):
            began, ended, times = take_turn(kind, clients, port, f"{kind.name}/{clients}/{turn}/{way}")
            seconds[way].extend(times)
            took[way] += ended - began
    return Row(kind.name, clients, *(figures(kind, seconds[way], took[way]) for way in (0, 1)))


def take_turn(kind: Kind, clients: int, port: int, key: str) -> tuple[float, float, list[float]]:
    """Returns when it began and ended, and the seconds of each call."""
    groups = max(1, clients // len(kind.clients))
    begin = Barrier(groups * len(kind.clients) + 1)

    def work(client: Client, group: int) -> list[float]:
        store = TCPStore("127.0.0.1", port, None, False, LIMIT)
        begin.wait()
        return client(store, f"{key}/{group}", kind.calls // kind.counts // groups)

    with ThreadPoolExecutor(max_workers=begin.parties) as threads:
        running = [threads.submit(work, client, group) for group in range(groups) for client in kind.clients]
        begin.wait()
        began = time.perf_counter()
        seconds = [one.result() for one in running]
        return began, time.perf_counter(), list(itertools.chain.from_iterable(seconds))


def figures(kind: Kind, seconds: list[float], took: float) -> JobGauges:
    p99 = statistics.quantiles(seconds, n=100)[98]
    return JobGauges(statistics.median(seconds) * 1e6, p99 * 1e6, len(seconds) * kind.counts / took)


@contextmanager
def server() -> Iterator[int]:
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


def serve() -> None:
    store = serve_store()
    print(store.port, flush=True)
    sys.stdin.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="be the server, until standard input ends")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    if options.serve:
        return serve()
    with server() as direct:
        pair = SidecarPair()
        try:
            ports = direct, pair.form(direct)[1]
            values = TCPStore("127.0.0.1", direct, None, False, LIMIT)
            values.multi_set(["small", "large"], [SMALL, LARGE])
            rows = [measure(kind, clients, ports) for kind in KINDS for clients in CLIENTS]
        finally:
            pair.close()
    print(f"| {' | '.join(COLUMNS)} |", f"{'|---' * len(COLUMNS)}|", *(row.line() for row in rows), sep="\n")
    if options.json:
        about = {"torch": torch.__version__, "processors": os.cpu_count(), "turns": TURNS}
        options.json.write_text(json.dumps(about | {"rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
