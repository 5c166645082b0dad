# SPDX-License-Identifier: Apache-2.0
"""One row of build/bench-fleet.json, and the table of all rows."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Row:
    """Memory is in MiB, resident, as the kernel counts it for the operator's process; time in seconds.

    Cores are seconds of processor time in a second, over the time at rest: sidecars go on writing heartbeats and rank
    0's step as often as real ones do.
    """

    jobs: int
    workers: int  # of all jobs together
    where: str  # "container" with the chart's memory limit, or "process" with that limit on its writable memory
    limit_mib: float
    mib_fresh: float  # the process stands by and has never led
    mib: float  # at rest in the first term
    mib_third: float  # at rest in the third term of the same process
    mib_peak: float  # the highest of all three terms
    mib_peak_first: float  # the highest until the first term is at rest
    mib_standby: float  # after the first term, standing by
    takeover_seconds: float  # from the free Lease until each job has had a step, the longest of three, to 0.5 s
    takeover_requests: float  # of the operator meanwhile, per job
    takeover_operator: float  # seconds of the processor that the operator takes for it
    takeover_api: float  # and the API server meanwhile, which has the sidecars as well
    longest_stall_seconds: float  # in which the operator's event loop ran nothing else
    leases_lost: int  # beside the two that the benchmark took away
    operator_cores: float
    api_cores: float
    api_floor_cores: float  # of the API server with all objects, without an operator and with sidecars that are silent
    etcd_cores: float
    writer_cores: float
    requests: float  # per worker and second, of everybody, as the API server counts them
    operator_requests: float  # per worker and second: of these the operator's, its Lease included
    rest_seconds: float  # how long it was measured

    @property
    def kib_per_worker(self) -> float:
        """Above the process that has never led."""
        return 1024 * (self.mib - self.mib_fresh) / self.workers


COLUMNS = {
    "jobs": "{0.jobs}",
    "workers": "{0.workers}",
    "in a": "{0.where}",
    "fresh MiB": "{0.mib_fresh:.0f}",
    "MiB": "{0.mib:.0f}",
    "third": "{0.mib_third:.0f}",
    "peak": "{0.mib_peak:.0f}",
    "standby": "{0.mib_standby:.0f}",
    "KiB/worker": "{0.kib_per_worker:.1f}",
    "take-over s": "{0.takeover_seconds:.1f}",
    "requests/job": "{0.takeover_requests:.2f}",
    "operator s": "{0.takeover_operator:.1f}",
    "API server s": "{0.takeover_api:.1f}",
    "stall s": "{0.longest_stall_seconds:.2f}",
    "lost": "{0.leases_lost}",
    "operator": "{0.operator_cores:.3f}",
    "API server": "{0.api_cores:.3f}",
    "floor": "{0.api_floor_cores:.3f}",
    "writers": "{0.writer_cores:.3f}",
    "requests": "{0.requests:.4f}",
    "operator's": "{0.operator_requests:.4f}",
}


def table(rows: Sequence[Row]) -> str:
    lines = [list(COLUMNS), *([form.format(row) for form in COLUMNS.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(["cores at rest; requests per worker and second", *text])
