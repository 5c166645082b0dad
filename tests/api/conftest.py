"""Set-up of the API tests: one control plane without nodes for the whole run."""

from collections.abc import Iterator

import pytest

from elasticjob.testing import ControlPlane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane
