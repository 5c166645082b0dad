# SPDX-License-Identifier: Apache-2.0
"""A worker's record over the simulated API server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from elasticjob_sidecar.api_server.identity import Identity
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from support.faulty_kube import FaultyKube

ME = Identity(
    pod_name="job-0-0",
    pod_uid="pod-uid",
    job="job",
    index=0,
    id="0" * 32,
    certificate="PEM",
    address="10.0.0.7:27601",
    node="node-1",
)


@contextlib.asynccontextmanager
async def running(record: WorkerRecord) -> AsyncIterator[None]:
    task = asyncio.create_task(record.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def record_of(kube: FaultyKube) -> WorkerRecord:
    return WorkerRecord(kube, ME, lambda _operation, _failure: None)


@contextlib.asynccontextmanager
async def kept(
    made: Callable[[FaultyKube], WorkerRecord] = record_of,
) -> AsyncIterator[tuple[FaultyKube, WorkerRecord]]:
    """A record that is there, and its sidecar's run."""
    kube = FaultyKube()
    record = made(kube)
    async with running(record):
        await record.written()
        yield kube, record
