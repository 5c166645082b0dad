# SPDX-License-Identifier: Apache-2.0
"""A record that the API server takes and that makes no sense: its worker is invalid, says why, and is replaced."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from e2e.identity import Caller, path
from e2e.job import Job
from e2e.kube import Namespace
from elasticjob.api import ElasticWorker
from support.record_strategies import STATUSES, specs

ELSEWHERE = "10.255.255.1:27601"


@pytest.mark.extended
def test_an_invalid_record_costs_its_own_pod_and_nobody_elses(job: Job) -> None:
    job.apply(replicas=2, minReplicas=1, maxReplicas=2)
    first = job.wait_for_round(2)
    zero = job.pod(0)["metadata"]["uid"]
    patch = json.dumps({"spec": {"address": ELSEWHERE}})
    job.namespace.kubectl("patch", "elasticworker", f"{job.name}-1-0", "--type=merge", f"--patch={patch}")

    message = job.wait_for_condition("WorkersValid", "False")["message"]
    assert message.startswith(f"worker 1: spec.address is {ELSEWHERE}, and the pod's own is ")
    job.wait_for_round(2, after=first)
    job.wait_for_condition("WorkersValid", "True")
    assert job.pod(0)["metadata"]["uid"] == zero
    job.wait_for_pod(f"{job.name}-1-1")
    assert job.restarts == 0

    job.wait_for_the_only_event("InvalidRecord", "worker 1's ElasticWorker: spec.address is ")


@pytest.fixture(scope="module")
def administrator(module_namespace: Namespace) -> Caller:
    """Whom no admission policy concerns, so that the schema alone judges."""
    module_namespace.apply(record("digits-1-0", SENSIBLE))
    return Caller.administrator()


SENSIBLE = {"job": "digits", "index": 1, "id": "0" * 32, "certificate": "PEM", "address": "10.0.0.1:27601"}
MANY = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def record(name: str, spec: Any) -> dict[str, Any]:
    meta = {"name": name, "labels": {"elasticjob.io/job": "digits"}}
    return {"apiVersion": "elasticjob.io/v1alpha1", "kind": "ElasticWorker", "metadata": meta, "spec": spec}


@MANY
@given(spec=specs(1))
def test_what_the_schema_lets_into_a_spec_the_operator_can_read(
    module_namespace: Namespace, administrator: Caller, spec: Any
) -> None:
    here = path("elasticworkers", module_namespace)
    if kept := administrator.try_out("POST", here, record("digits-1-1", spec)):
        ElasticWorker.parse(kept)


@MANY
@given(status=STATUSES)
def test_what_the_schema_lets_into_a_status_the_operator_can_read(
    module_namespace: Namespace, administrator: Caller, status: Any
) -> None:
    here = path("elasticworkers", module_namespace, "digits-1-0", "status")
    if kept := administrator.try_out("PATCH", here, {"status": status}):
        ElasticWorker.parse(kept)
