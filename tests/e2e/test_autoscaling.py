# SPDX-License-Identifier: Apache-2.0
"""The example of an autoscaler: as many workers as there is work for, by what the script reports."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.adapter import adapter
from e2e.job import TRAINER, Job
from e2e.kube import Namespace
from e2e.prometheus import prometheus

pytestmark = [pytest.mark.real, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE, ALERTS = ROOT / "examples" / "autoscaling", ROOT / "charts" / "elasticjob" / "files" / "alerts.yaml"
SCALED_SECONDS = 90  # the autoscaler looks each 15 s


@pytest.fixture
def scraped(operator: Namespace, job: Job, tmp_path: Path) -> Iterator[None]:
    """Prometheus reads the operators, and the adapter reads it by the example's rules."""
    with (
        prometheus(tmp_path, ALERTS, job.namespace.name) as found,
        adapter(job.namespace, tmp_path, EXAMPLE / "adapter-rules.yml", found.url),
    ):
        yield


@pytest.mark.torchrun
def test_a_job_has_as_many_workers_as_there_is_work_for(scraped: None, job: Job) -> None:
    job.apply(replicas=1, maxReplicas=4)
    first, before = job.wait_for_round(1), job.wait_for_training(1)
    queue(job, 300)
    scaler = yaml.safe_load((EXAMPLE / "hpa.yaml").read_text())
    for direction in scaler["spec"]["behavior"].values():
        direction["stabilizationWindowSeconds"] = 0  # for want of ten minutes
    job.namespace.apply(scaler)
    grown = job.wait_for_round(3, after=first, seconds=SCALED_SECONDS)
    job.wait_for_training(3, other_than=before)
    queue(job, 90)
    job.wait_for_round(1, after=grown, seconds=SCALED_SECONDS)
    assert job.restarts == 0


def queue(job: Job, items: int) -> None:
    """Let the script say that so much work is queued."""
    pod = job.member_pods()[0]["metadata"]["name"]
    job.namespace.kubectl("exec", pod, "--container", TRAINER, "--", "sh", "-c", f"echo {items} > /tmp/queued")
