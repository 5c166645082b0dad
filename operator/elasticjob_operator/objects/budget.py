# SPDX-License-Identifier: Apache-2.0
"""Renders a job's PodDisruptionBudget, which evictions ask first. Pure."""

from elasticjob.api import JOB_LABEL
from elasticjob.fields import MAX_REPLICAS
from elasticjob.kube.paths import BUDGETS
from elasticjob.objects import Object
from elasticjob_operator.objects.pods import access_name, owner_reference

BUDGET = "PodDisruptionBudget"


def render_budget(job: Object, *, is_open: bool) -> tuple[str, Object]:
    """Collection path and body of a budget that lets all of the job's pods be evicted, or none.

    It counts pods and no share of them: the cluster would take the share of `replicas`, and spares beside that may go.
    Pods that are not ready may go at any time: nothing of the training is in them.
    """
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    return BUDGETS.all(namespace), {
        "apiVersion": "policy/v1",
        "kind": BUDGET,
        "metadata": {
            "name": access_name(name),
            "namespace": namespace,
            "labels": {JOB_LABEL: name},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "minAvailable": 0 if is_open else 2 * MAX_REPLICAS,
            "selector": {"matchLabels": {JOB_LABEL: name}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
