"""Two sidecars with real sockets, for all tests of the sidecar that name them."""

from collections.abc import AsyncIterator

import pytest

from support.two_sidecars import TwoSidecars, two_workers


@pytest.fixture
async def pair() -> AsyncIterator[TwoSidecars]:
    async with two_workers() as pair:
        yield pair
