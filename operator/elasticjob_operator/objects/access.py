# SPDX-License-Identifier: Apache-2.0
"""Renders the access of a job's workers, which watch their own job, keep records, and reach each other's stores; and
the PodDisruptionBudget that limits their evictions. Pure.

A role cannot restrict a worker to its own record. The chart's admission policy does that.
"""

from collections.abc import Iterator, Sequence

from elasticjob.api import GROUP, JOB_LABEL, JOB_UID_LABEL, JOBS, TUNNEL_PORT, WORKERS, ElasticJobSpec
from elasticjob.kube.paths import BUDGETS, NETWORK_POLICIES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from elasticjob.objects import Object
from elasticjob_operator.objects.pods import access_name, owner_reference, service_account

BUDGET = "PodDisruptionBudget"


def render_access(
    job: Object, spec: ElasticJobSpec, *, pull_secrets: Sequence[Object] = (), network_policy: bool = False
) -> Iterator[tuple[str, Object]]:
    """Yields collection path and body of the service account (unless the template names one), role, role binding and
    network policy. `pull_secrets`: those of the namespace's default account, which pods without an account would
    use."""
    namespace, name, meta = job["metadata"]["namespace"], job["metadata"]["name"], _metadata(job)
    role = access_name(name)
    account = service_account(name, spec)
    if account == role:
        yield (
            SERVICE_ACCOUNTS.all(namespace),
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": meta,
                "automountServiceAccountToken": False,
            }
            | ({"imagePullSecrets": list(pull_secrets)} if pull_secrets else {}),
        )
    yield (
        ROLES.all(namespace),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                _rule(JOBS, ["get", "list", "watch"], names=[name]),
                _rule(WORKERS, ["get", "list", "create", "update", "patch"]),
                _rule(f"{WORKERS}/status", ["update", "patch"]),
            ],
        },
    )
    yield (
        ROLE_BINDINGS.all(namespace),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    )
    if network_policy:
        yield NETWORK_POLICIES.all(namespace), _network_policy(meta, name)


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
        "metadata": _metadata(job),
        "spec": {
            "minAvailable": min_available,
            "selector": {"matchLabels": {JOB_LABEL: name, JOB_UID_LABEL: uid}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def change_of(found: Object, wanted: Object) -> Object | None:
    """What `found` has to become to grant what `wanted` grants, with its labels. None if it already does."""
    content = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind", "metadata")}
    if "imagePullSecrets" in content:  # others add their own, as OpenShift does
        secrets = found.get("imagePullSecrets") or []
        content["imagePullSecrets"] = secrets + [one for one in content["imagePullSecrets"] if one not in secrets]
    there = found["metadata"].get("labels") or {}
    labels = there | wanted["metadata"]["labels"]
    if labels == there and all(found.get(key) == value for key, value in content.items()):
        return None
    return {**found, **content, "metadata": {**found["metadata"], "labels": labels}}


def _metadata(job: Object) -> Object:
    name = job["metadata"]["name"]
    return {
        "name": access_name(name),
        "namespace": job["metadata"]["namespace"],
        "labels": {JOB_LABEL: name},
        "ownerReferences": [owner_reference(job)],
    }


def _network_policy(meta: Object, job: str) -> Object:
    """Restricts port 27601 to the job's own pods. A policy that selects pods closes all other ports, so they are opened
    again.

    That includes 27602: the kubelet's probes come from the node, which no selector matches, and Prometheus may be in
    any namespace. The server at that port limits what others can obtain there.
    """
    workers = {"matchLabels": {JOB_LABEL: job}}
    ranges = [("TCP", 1, TUNNEL_PORT - 1), ("TCP", TUNNEL_PORT + 1, 65535), ("UDP", 1, 65535), ("SCTP", 1, 65535)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta,
        "spec": {
            "podSelector": workers,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": workers}], "ports": [{"protocol": "TCP", "port": TUNNEL_PORT}]},
                {"ports": [{"protocol": kind, "port": first, "endPort": last} for kind, first, last in ranges]},
            ],
        },
    }


def _rule(resource: str, verbs: list[str], names: list[str] | None = None) -> Object:
    return {"apiGroups": [GROUP], "resources": [resource], "verbs": verbs} | ({"resourceNames": names} if names else {})
