# SPDX-License-Identifier: Apache-2.0
"""The benchmark's own hold on the operators' Lease: while it has it, the operator stands by."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from support.api_client import ApiClient, ApiError, Object

NAMESPACE, NAME = "elasticjob-system", "elasticjob-operator"
PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
RENEW_SECONDS = 2.0
TRIES = 100


class Lease:
    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def create(self) -> None:
        """Nobody's."""
        metadata = {"name": NAME, "namespace": NAMESPACE}
        await self._api.call("POST", PATH, {"metadata": metadata, "spec": {"holderIdentity": ""}})

    async def terms(self) -> int:
        """How often an operator has taken it."""
        found = await self._api.call("GET", f"{PATH}/{NAME}")
        return int(found["spec"].get("leaseTransitions") or 0)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Taken from whoever has it; free at the end."""
        await self._write("benchmark")
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})
            await self._write("")

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await self._write("benchmark")

    async def _write(self, holder: str) -> None:
        """Over a renewal of the operator's that comes between."""
        for _ in range(TRIES):
            lease: Object = await self._api.call("GET", f"{PATH}/{NAME}")
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            lease["spec"] |= {"holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": 10}
            with contextlib.suppress(ApiError):
                await self._api.call("PUT", f"{PATH}/{NAME}", lease)
                return
        raise RuntimeError(f"the Lease {NAMESPACE}/{NAME} could not be written in {TRIES} tries")
