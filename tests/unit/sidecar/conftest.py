"""Two sidecars with real sockets, for all tests of the sidecar that name them."""

from collections.abc import AsyncIterator

import pytest

from support.sidecar_world import World, two_workers


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with two_workers() as world:
        yield world
