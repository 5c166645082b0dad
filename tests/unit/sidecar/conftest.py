# SPDX-License-Identifier: Apache-2.0
"""Two sidecars with real sockets, and patience, for all tests of the sidecar that name them."""

from collections.abc import AsyncIterator

import pytest

from elasticjob_sidecar.store import listener, transport
from support.two_sidecars import DEADLINE, TwoSidecars, two_workers


@pytest.fixture
async def pair() -> AsyncIterator[TwoSidecars]:
    async with two_workers() as pair:
        yield pair


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a caller would be sent away, or leave, before its turn."""
    for module, limit in ((listener, "HANDSHAKE_SECONDS"), (transport, "ADMISSION_SECONDS")):
        monkeypatch.setattr(module, limit, 6 * DEADLINE)
