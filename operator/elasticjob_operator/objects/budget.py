# SPDX-License-Identifier: Apache-2.0
"""Renders a job's PodDisruptionBudget, which limits evictions. Pure."""

from elasticjob.api import JOB_LABEL, JOB_UID_LABEL
from elasticjob.kube.paths import BUDGETS
from elasticjob.objects import Object
from elasticjob_operator.objects.pods import access_name, owner_reference

BUDGET = "PodDisruptionBudget"


def render_budget(job: Object, *, min_available: int) -> tuple[str, Object]:
    """Collection path and body of a budget that keeps `min_available` of the job's ready pods from eviction; 0: none.

    It is a number of pods and not a percentage: the cluster would take a percentage of `replicas`, without the spares.
    It selects by the job's uid: otherwise each pod left by an earlier job of the name would allow the eviction of one
    of this job's. Pods that are not ready may be evicted at any time, because no training runs in them.
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
