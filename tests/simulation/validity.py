# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses: by the rules of its own kinds and of our CRDs, by quota, and by webhooks.

Only what the operator and the sidecars can meet. The CRDs' rules are CEL in the product; here they are written once
more, so that the people of the simulation are refused what real ones are.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from simulation.store import Object, Store

SCALABLE = ("template", "nprocPerNode", "trainerContainer")
POD_MUTABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
WORKER_ID = re.compile(r"^[0-9a-f.]{1,32}$")


class Refusal(Exception):
    """The request's answer: its code, word and sentence. `after`: seconds that it takes; `field`: the one at fault."""

    def __init__(self, status: int, reason: str, message: str, after: float = 0.0, field: str = "") -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.after, self.field = status, reason, message, after, field


@dataclass(slots=True)
class Admission:
    """What is asked beyond an object's form. `quota`: pods of a namespace; `denies`: by a webhook."""

    quota: int | None = None
    denies: bool = False
    hangs: bool = False
    denied: dict[str, int] = field(default_factory=dict)

    def check(self, store: Store, plural: str, body: Object) -> None:
        if plural != "pods":
            return
        meta = body["metadata"]
        account = body["spec"].get("serviceAccountName", "default")
        forbidden = f'pods "{meta["name"]}" is forbidden: '
        if account != "default" and store.find("serviceaccounts", (meta["namespace"], account)) is None:
            why = (
                f'error looking up service account {meta["namespace"]}/{account}: serviceaccount "{account}" not found'
            )
            raise self._count("account", Refusal(403, "Forbidden", forbidden + why))
        if self.denies:
            why = 'admission webhook "pods.example.com" denied the request: not today'
            raise self._count("webhook denies", Refusal(403, "Forbidden", why))
        if self.hangs:
            why = 'Internal error occurred: failed calling webhook "pods.example.com": context deadline exceeded'
            raise self._count("webhook hangs", Refusal(500, "InternalError", why, after=10.0))
        if self.quota is not None:
            used = sum(counts_in_quota(one.body) for one in store.all("pods", meta["namespace"]))
            if used >= self.quota:
                why = f"exceeded quota: pods, requested: pods=1, used: pods={used}, limited: pods={self.quota}"
                raise self._count("quota", Refusal(403, "Forbidden", forbidden + why))

    def _count(self, what: str, refusal: Refusal) -> Refusal:
        self.denied[what] = self.denied.get(what, 0) + 1
        return refusal


def counts_in_quota(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def check_new(plural: str, body: Object) -> None:
    """Raises Refusal."""
    if plural == "elasticjobs":
        _check_sizes(body)
    elif plural == "podtemplates":
        _check_template(body["template"])
    elif plural == "pods":
        _check_template(body, "Pod")
    elif plural == "elasticworkers":
        _check_worker(body)


def check_change(plural: str, old: Object, new: Object) -> None:
    """Raises Refusal."""
    if plural == "elasticjobs":
        _check_sizes(new)
        _check_transition(old, new)
    elif plural == "elasticworkers":
        _check_worker(new)
        was, now = old["spec"], new["spec"]
        if was.get("id") == now.get("id") and was.get("certificate") != now.get("certificate"):
            raise _invalid(new, "spec.certificate: an incarnation has one certificate")
    elif plural == "rolebindings" and old.get("roleRef") != new.get("roleRef"):
        raise _invalid(new, "roleRef: Invalid value: cannot change roleRef")
    elif plural == "pods":
        _check_pod_change(old, new)
    elif plural == "workloads":
        told = (old.get("status") or {}).get("conditions") or ()
        reserved = any(one["type"] == "QuotaReserved" and one["status"] == "True" for one in told)
        if reserved and old["spec"] != new["spec"]:
            raise _invalid(new, "spec.podSets: field is immutable while quota is reserved")


def _check_sizes(job: Object) -> None:
    spec = job["spec"]
    replicas, least = spec["replicas"], spec.get("minReplicas", 1)
    most = spec.get("maxReplicas", replicas)
    if not 1 <= least <= replicas <= most:
        raise _invalid(job, f"spec.replicas: {least} <= {replicas} <= {most} does not hold")
    step = (spec.get("sizes") or {}).get("step", 1)
    if replicas % step or (least > 1 and least % step):
        raise _invalid(job, f"spec.replicas: {replicas} or minReplicas {least} is no multiple of {step}")
    if not (spec.get("template") or {}).get("spec"):
        raise _invalid(job, "spec.template.spec: Required value")


def _check_transition(old: Object, new: Object) -> None:
    conditions = (old.get("status") or {}).get("conditions") or []
    ended = any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)
    invalid = any(one["type"] == "TemplateValid" and one["status"] == "False" for one in conditions)
    was, now = old["spec"], new["spec"]
    if ended and was["replicas"] != now["replicas"]:
        raise _invalid(new, "spec.replicas: the job has ended")
    for part in SCALABLE:
        if was.get(part) != now.get(part) and (ended or not (was.get("suspend") or invalid)):
            raise _invalid(new, f"spec.{part}: can be changed only while the job is suspended")


def _check_template(template: Any, kind: str = "PodTemplate") -> None:
    pod = template["spec"]
    if "unknownField" in json.dumps(pod):
        why = (
            f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: unknown field "unknownField"'
        )
        raise Refusal(400, "BadRequest", why)
    for container in pod.get("containers") or [{}]:
        if not container.get("image"):
            raise Refusal(422, "Invalid", f'{kind} "tried" is invalid: spec.containers[0].image: Required value')


def _check_worker(worker: Object) -> None:
    spec = worker["spec"]
    for needed in ("job", "index", "id", "certificate", "address"):
        if needed not in spec:
            raise _invalid(worker, f"spec.{needed}: Required value")
    if not WORKER_ID.match(spec["id"]):
        raise _invalid(worker, "spec.id: should match ^[0-9a-f.]{1,32}$")


def _check_pod_change(old: Object, new: Object) -> None:
    def fixed(pod: Object) -> Object:
        return {key: value for key, value in pod["spec"].items() if key not in (*POD_MUTABLE, "nodeName")}

    if fixed(old) != fixed(new):
        raise _invalid(new, "spec: Forbidden: pod updates may not change fields other than some")
    was, now = (pod["spec"].get("activeDeadlineSeconds") for pod in (old, new))
    if was is not None and (now is None or now > was):
        raise _invalid(new, "spec.activeDeadlineSeconds: must be less than or equal to previous value")


def _invalid(body: Object, why: str) -> Refusal:
    return Refusal(422, "Invalid", f'{body.get("kind", "object")} "{body["metadata"]["name"]}" is invalid: {why}')
