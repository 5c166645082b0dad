# SPDX-License-Identifier: Apache-2.0
"""What a job costs while nothing happens to it, as the kernel and the API server count it over a window."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rounds.api import CUSTOM, Api, Counted
from rounds.child import Child
from rounds.ours import NAMESPACE, size_in_bytes
from rounds.processes import cpu_seconds

SETTLE_SECONDS = 30.0  # all lines stand, and each sidecar has written its first heartbeat
SECONDS = 320.0  # as long as what comes back lasts at most: the pieces of a watch, and heartbeats in a small group


@dataclass(slots=True, kw_only=True)
class Cost:
    """Requests, writes and bytes are per worker and second, with no workers per second: those of this project's
    objects only, so neither the operator's Lease (one write a second, whatever there is) nor its watch of pods.

    Bytes are JSON: what is sent, watch events, answers to reads, and for each write a worker's record as its answer.
    """

    n: int
    seconds: float
    requests: float
    writes: float
    bytes: float
    operator_cores: float
    operator_mib: float
    api_server_cores: float
    sidecars_cores: float

    @property
    def sidecar_milliseconds(self) -> float:
        """Of CPU time that one sidecar takes in a second."""
        return 1000 * self.sidecars_cores / max(1, self.n)


class Sample(NamedTuple):
    at: float
    counted: Counted
    api_server: float
    operator: float
    sidecars: float


async def cost(api: Api, n: int, operator: int, sidecars: Sequence[Child], seconds: float) -> Cost:
    """What `n` workers cost from now on; `operator` is its process id."""
    await asyncio.sleep(SETTLE_SECONDS)
    before = await _sample(api, operator, sidecars)
    await asyncio.sleep(seconds)
    after = await _sample(api, operator, sidecars)
    took, counted = after.at - before.at, [new - old for new, old in zip(after.counted, before.counted, strict=True)]
    spent = Counted(*counted)
    answers = spent.writes * await _size_of_a_record(api)
    each = took * max(1, n)
    return Cost(
        n=n,
        seconds=round(took, 1),
        requests=spent.requests / each,
        writes=spent.writes / each,
        bytes=(spent.bytes + spent.read_bytes + answers) / each,
        operator_cores=(after.operator - before.operator) / took,
        operator_mib=resident_mib(operator),
        api_server_cores=(after.api_server - before.api_server) / took,
        sidecars_cores=(after.sidecars - before.sidecars) / took,
    )


async def _sample(api: Api, operator: int, sidecars: Sequence[Child]) -> Sample:
    at = time.monotonic()  # the API server counts at once; its answer takes a while, now more and now less
    counted = await api.counted()
    own = sum(cpu_seconds(sidecar.pid) for sidecar in sidecars)
    return Sample(at, counted, await api.cpu_seconds(), cpu_seconds(operator), own)


async def _size_of_a_record(api: Api) -> int:
    listed = await api.call("GET", f"{CUSTOM}/namespaces/{NAMESPACE}/elasticworkers?limit=1")
    return size_in_bytes(listed["items"][0]) if listed["items"] else 0


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024
