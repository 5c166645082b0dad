# SPDX-License-Identifier: Apache-2.0
"""Set-up of the API tests: one control plane without nodes for the whole run, and a namespace for each test."""

import asyncio
import types
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from api.operators import Operators, Witness
from support import ControlPlane, started
from support.dynamic_torch import stand_in
from support.others import crds
from support.team import new_team

CRDS = Path(__file__).parents[2] / "crds"

torch = pytest.fixture(stand_in)
control_plane = pytest.fixture(started, scope="session")
team = pytest.fixture(new_team)


@pytest.fixture(scope="session", autouse=True)
def no_event_loop() -> None:
    """looptime asks for the loop before each test, and asyncio makes one, which nobody closes, where none was set."""
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def with_crds(control_plane: ControlPlane) -> ControlPlane:
    control_plane.install_crds(*sorted(CRDS.glob("*.yaml")))
    return control_plane


@pytest.fixture(scope="session")
def with_others_crds(with_crds: ControlPlane) -> ControlPlane:
    """Also those of the controllers that our examples use."""
    if with_crds.minor_version < 31:
        pytest.skip(f"Kubernetes 1.{with_crds.minor_version} refuses JobSet's CRD: a rule reads metadata.namespace")
    with_crds.install_crds(*crds("jobset"), *crds("trainer"))
    return with_crds


@pytest.fixture
async def operators(with_crds: ControlPlane) -> AsyncIterator[Operators]:
    configuration = Configuration()
    await config.load_kube_config(str(with_crds.kubeconfig), client_configuration=configuration)
    kube = Witness.of(configuration)
    kube.asked = []
    yield Operators(kube)
    await kube.close()


@pytest.fixture
def plane(with_crds: ControlPlane) -> ControlPlane:
    return with_crds


@pytest.fixture
def plugin(torch: types.ModuleType) -> types.ModuleType:
    """torch's rendezvous errors; the plug-in's modules are loaded over stand-ins of torch."""
    return torch
