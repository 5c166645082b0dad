"""Renders what a job's workers may do: watch their own job, and keep their own records. Pure."""

from collections.abc import Iterator

from elasticjob.api import GROUP, JOBS, WORKERS, ElasticJobSpec
from elasticjob_operator.kube import CORE, RBAC, Object
from elasticjob_operator.pods import owner_reference, service_account


def render_access(job: Object, spec: ElasticJobSpec) -> Iterator[tuple[str, Object]]:
    """Collection path and body of the service account (unless the template names one), role and role binding."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    role = f"{name}-worker"
    account = service_account(name, spec)
    meta = {"name": role, "namespace": namespace, "ownerReferences": [owner_reference(job)]}
    if account == role:
        yield (
            f"{CORE}/namespaces/{namespace}/serviceaccounts",
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": meta,
                "automountServiceAccountToken": False,
            },
        )
    yield (
        f"{RBAC}/namespaces/{namespace}/roles",
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
        f"{RBAC}/namespaces/{namespace}/rolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    )


def _rule(resource: str, verbs: list[str], names: list[str] | None = None) -> Object:
    return {"apiGroups": [GROUP], "resources": [resource], "verbs": verbs} | ({"resourceNames": names} if names else {})
