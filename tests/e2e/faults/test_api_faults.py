# SPDX-License-Identifier: Apache-2.0
"""The API server is away, slow, or has forgotten what it told. Training does not notice.

One training goes through all of it.
"""

import time
from collections.abc import Callable

import pytest

from e2e.disruption import forget_history, paused_api, slow_api
from e2e.faults.fault import SHORTENED, Fault
from e2e.job import IMAGE, TRAINER
from e2e.kube import run, wait_until

pytestmark = pytest.mark.disruptive
SHARED_JOB = SHORTENED

REQUEST = """
import ssl, time, urllib.request
began = time.monotonic()
urllib.request.urlopen("https://kubernetes.default/healthz", context=ssl._create_unverified_context()).read()
print(time.monotonic() - began)
"""


@pytest.mark.extended
@pytest.mark.fault("api-paused-2m")
def test_api_paused_for_two_minutes(shared_fault: Fault) -> None:
    fault = shared_fault
    fault.join()
    with paused_api():
        # 20 s: longer than the operators' Lease lasts, and than a worker may be silent
        end, steps = time.monotonic() + (120 if fault.whole else 20), [fault.job.saved_step()]
        while time.monotonic() < end:
            wait_until("the training to save", lambda: fault.job.saved_step() > steps[-1], 15)
            steps.append(fault.job.saved_step())
    fault.unbroken(fault.judged_steps)
    fault.row.detail = f"training went from step {steps[0]} to {steps[-1]}"


@pytest.mark.fault("etcd-compacted")
def test_etcd_compacted(shared_fault: Fault) -> None:
    """No watch can be taken up again where it ended: 410 Gone, for operators and sidecars alike."""
    fault = shared_fault
    fault.join()
    version = fault.job.namespace.get("configmap", "train")["metadata"]["resourceVersion"]
    forget_history()
    path = f"/api/v1/namespaces/{fault.job.namespace.name}/configmaps?watch=1&resourceVersion={version}"
    said = run("kubectl", "get", "--raw", f"{path}&timeoutSeconds=5")
    assert "too old resource version" in said.output + said.errors
    fault.unbroken(fault.judged_steps)


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.usefixtures("warm")
@pytest.mark.fault("api-slow", told=4.0, warm=True)
def test_api_slow(begin_with_two: Callable[..., Fault]) -> None:
    """Half a second more for each request of an operator, a sidecar or a kubelet."""
    fault = begin_with_two()
    pods = fault.pods
    with slow_api(IMAGE, round_trip=0.5):
        assert request_seconds(fault) > 0.5
        fault.unbroken(fault.judged_steps)
        fault.strike()
        fault.job.delete_pod(pods[1])
        fault.formed(2)
    assert fault.job.restarts == 0


def request_seconds(fault: Fault) -> float:
    """How long a request from a worker's pod to the API server takes."""
    name = fault.job.pod(0)["metadata"]["name"]
    return float(fault.job.namespace.kubectl("exec", name, "--container", TRAINER, "--", "python3", "-c", REQUEST))
