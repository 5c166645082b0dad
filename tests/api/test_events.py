# SPDX-License-Identifier: Apache-2.0
"""The events of a job as kubectl shows them."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from api.operators import JOBS, new_job
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from support import ControlPlane
from support.waiting import run, within

TOLD = 40  # a sort that keeps no order shows with so many
SECONDS = 90.0


@pytest.fixture
async def kube(with_crds: ControlPlane) -> AsyncIterator[Kube]:
    configuration = Configuration()
    await config.load_kube_config(str(with_crds.kubeconfig), client_configuration=configuration)
    made = Kube.of(configuration)
    yield made
    await made.close()


def numbers(plane: ControlPlane, *command: str) -> list[int]:
    """Those of the events' messages, in the order in which kubectl prints them."""
    done = run(["kubectl", "--kubeconfig", str(plane.kubeconfig), *command], SECONDS, check=True)
    return [int(number) for number in re.findall(r"the (\d+)th", done.stdout)]


async def test_kubectl_shows_those_of_one_second_in_their_order(kube: Kube, with_crds: ControlPlane) -> None:
    name = new_job(with_crds)
    job = with_crds.request("GET", f"{JOBS}/{name}")
    announcer = Announcer(kube, "operator-0")
    for number in range(TOLD):
        announcer.announce(job, f"Reason{number % 4}", f"the {number}th")
    here, wanted = ("--namespace", "default"), list(range(TOLD))
    listed = ("get", "events", *here, f"--field-selector=involvedObject.name={name}")
    async with within("all events", SECONDS):
        while len(numbers(with_crds, *listed)) < TOLD:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.1)
    assert numbers(with_crds, *listed) == wanted
    assert numbers(with_crds, "events", *here, f"--for=elasticjob/{name}") == wanted
    assert numbers(with_crds, "describe", "elasticjob", name, *here) == wanted
    assert numbers(with_crds, *listed, "--sort-by=.lastTimestamp") == wanted
    assert numbers(with_crds, *listed, "--sort-by=.metadata.creationTimestamp") == wanted


async def test_a_list_by_the_last_time_has_those_of_others_in_their_places(kube: Kube, with_crds: ControlPlane) -> None:
    """Others' events have the older fields alone."""
    name = new_job(with_crds)
    job = with_crds.request("GET", f"{JOBS}/{name}")
    about = {"kind": "Pod", "namespace": "default", "name": name}
    for number, time in ((0, "2020-01-01T00:00:00Z"), (2, "2120-01-01T00:00:00Z")):
        event = {"metadata": {"name": f"{name}.{number}"}, "involvedObject": about, "type": "Normal", "reason": "Any"}
        with_crds.request(
            "POST",
            "/api/v1/namespaces/default/events",
            {**event, "message": f"the {number}th", "firstTimestamp": time, "lastTimestamp": time, "count": 1},
        )
    Announcer(kube, "operator-0").announce(job, "Any", "the 1th")
    listed = ("get", "events", "--namespace=default", f"--field-selector=involvedObject.name={name}")
    async with within("the event", SECONDS):
        while len(numbers(with_crds, *listed)) < 3:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.1)
    assert numbers(with_crds, *listed, "--sort-by=.lastTimestamp") == [0, 1, 2]
