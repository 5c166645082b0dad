# SPDX-License-Identifier: Apache-2.0
"""Renders a job's PodDisruptionBudget, which evictions ask first. Pure."""

from elasticjob.api import JOB_LABEL, JOB_UID_LABEL
from elasticjob.kube.paths import BUDGETS
from elasticjob.objects import Object
from elasticjob_operator.objects.pods import access_name, owner_reference

BUDGET = "PodDisruptionBudget"


def render_budget(job: Object, *, min_available: int) -> tuple[str, Object]:
    """Collection path and body of a budget that keeps `min_available` of the job's ready pods from eviction; 0: none.

    It counts pods and no share of them: the cluster would take the share of `replicas`, and spares beside that may go.
    Nor does it count pods that an earlier job of the name has left: as many of this job's might go instead.
    Pods that are not ready may go at any time: nothing of the training is in them.
    """
    namespace, name, uid = (job["metadata"][field] for field in ("namespace", "name", "uid"))
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
            "minAvailable": min_available,
            "selector": {"matchLabels": {JOB_LABEL: name, JOB_UID_LABEL: uid}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
