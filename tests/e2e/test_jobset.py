# SPDX-License-Identifier: Apache-2.0
"""The kubernetes backend in jobs of other controllers, real ones: JobSet's and Kubeflow Trainer's, as the examples have
it. No pod is one on which the others depend, and the ConfigMaps go with the job."""

from collections.abc import Iterator

import pytest

from e2e.job import STARTED_SECONDS
from e2e.jobset import FixedJob, jobset
from e2e.kube import Namespace, wait_until
from e2e.trainjob import TrainJob, trainer

pytestmark = [pytest.mark.on_workers, pytest.mark.patient, pytest.mark.real, pytest.mark.extended]

PODS = 3
GONE_SECONDS = 60  # for the garbage collector, on a machine of two busy cores


@pytest.fixture(scope="module")
def controllers(module_namespace: Namespace) -> Iterator[None]:
    with jobset(module_namespace), trainer(module_namespace):
        yield


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize(
    ("kind", "container", "made"),
    [("jobset", "trainer", FixedJob), ("trainjob", "node", TrainJob)],
    ids=["jobset", "trainjob"],
)
def test_the_group_forms_anew_without_its_first_pod_and_leaves_nothing(
    namespace: Namespace, kind: str, container: str, made: type[FixedJob]
) -> None:
    job = made(namespace, container)
    job.apply()
    first = job.wait_for_group(PODS, STARTED_SECONDS)
    job.wait_for_checkpoint(STARTED_SECONDS)
    before = job.state()
    struck = job.delete_first()
    second = job.wait_for_group(PODS, STARTED_SECONDS, other_than=first)
    print(f"{kind}: {job.began(second) - struck:.1f} s from the deletion of pod 0 to the first step of the new group")
    after = job.state()
    assert after["runId"] == before["runId"]
    assert after["round"] > before["round"]
    assert min(step.step for step in job.last_steps().values()) > 1, "the training went on from its checkpoint"

    assert job.config_maps() >= {"digits", "digits-store"}
    job.finish()
    namespace.kubectl("wait", kind, "digits", f"--for=condition={job.done}", f"--timeout={STARTED_SECONDS}s")
    assert job.state()["closed"] is True
    namespace.kubectl("delete", kind, "digits")
    wait_until("the ConfigMaps to go with the job", lambda: not job.config_maps(), GONE_SECONDS, job.config_maps)
    job.forget_checkpoint(before["runId"])
