# SPDX-License-Identifier: Apache-2.0
"""The message and the reason of a pod that the cluster refuses: by a quota, a LimitRange, a policy, a webhook. Pure.

To the API server's sentence it adds what to change. The API server names a container by its position or not at all, and
the reader has not written the sidecar.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from elasticjob.blocker_reasons import Reason
from elasticjob.objects import Object
from elasticjob.pods import SIDECAR

# refusals by the API server's authorization and by its quotas, which share the status 403
NO_RIGHT = re.compile(r'User "[^"]+" cannot \w+ resource "')
QUOTA = re.compile(r"(?:exceeded|failed|status unknown for) quota: ([^,:\s]+)")
RESOURCES = "the chart's value sidecar.resources"
SECURITY = "spec.sidecar.securityContext, or for all jobs the chart's value sidecar.securityContext"
MISSING = re.compile(r"must specify (.*)")
# by a LimitRange, which names no amount if the container has none
LIMIT = re.compile(
    r"(?:minimum|maximum) (?P<resource>\S+) usage per (?P<kind>Container|Pod) is [^,\s]+"
    r"(?:, but (?P<amount>limit|request) is (?P<given>[^\s,;\]]+)|\. +No (?P<absent>limit|request) is specified)"
)
CONTAINER = re.compile(r"spec\.(?:initC|c)ontainers\[")
RATIO = re.compile(r"\S+ max limit to request ratio per (?:Container|Pod)")
EXCEEDED = re.compile(r"exceeded quota: .*?requested: \S*(?:cpu|memory)")
# the words of security context constraints, of policies with the same purpose, and of the API server's own check
USERS = re.compile(
    r"runAsUser|runAsGroup|runAsNonRoot|security context constraint|must be in the ranges", re.IGNORECASE
)
# objects that the template names and the cluster lacks, in the API server's words, by field
ABSENT = {
    "priorityClassName": re.compile(r"no (PriorityClass) with name (\S+) was found"),
    "runtimeClassName": re.compile(r'(RuntimeClass) "([^"]+)" not found'),
    "serviceAccountName": re.compile(r'(service ?account) "([^"]+)" not found', re.IGNORECASE),
}


class PodRefusal(NamedTuple):
    """Why no pod is made: a sentence, a reason in one word, and the object at fault as Kind/name if it is known."""

    why: str
    reason: Reason = Reason.ADMISSION_REFUSED
    object: str = ""


def refused(why: str) -> PodRefusal:
    """The refusal that the API server's message describes."""
    if NO_RIGHT.search(why):
        return PodRefusal(why, Reason.OPERATOR_WITHOUT_RIGHTS)
    if found := QUOTA.search(why):
        return PodRefusal(why, Reason.QUOTA_EXCEEDED, f"ResourceQuota/{found[1]}")
    return PodRefusal(why)


def without_access(why: str, object: str) -> PodRefusal:
    """The refusal for workers that cannot be given their access. `object`: the part of it that failed."""
    by = refused(why)
    return by if by.reason is Reason.OPERATOR_WITHOUT_RIGHTS else PodRefusal(why, Reason.ACCESS_REFUSED, object)


def explained(refusal: str, pod: Object) -> str:
    """`refusal`, with what to change. `refusal`: the API server's message for `pod`. Either an object that the pod
    names is missing, or the sidecar may be at fault."""
    for field, words in ABSENT.items():
        if found := words.search(refusal):
            return f"{refusal}; make the {found[1]} {found[2]}, or name another in spec.template.spec.{field}"
    sidecar, place = _sidecar_of(pod)
    if place not in refusal and CONTAINER.search(refusal):  # it names only other containers
        return refusal
    remedies = list(_remedies(refusal, sidecar))
    if place in refusal:
        remedies = [f"{place} is the container {SIDECAR}", *(remedies or [f"set {_where(refusal)}"])]
    return "; ".join([refusal, *remedies])


def _sidecar_of(pod: Object) -> tuple[Object, str]:
    """The sidecar's container, and its position as the API server names it."""
    containers = pod["spec"]["initContainers"]
    place = next(place for place, one in enumerate(containers) if one["name"] == SIDECAR)
    return containers[place], f"spec.initContainers[{place}]"


def _where(refusal: str) -> str:
    return RESOURCES if "resources" in refusal else SECURITY


def _remedies(refusal: str, sidecar: Object) -> Iterator[str]:
    resources: Object = sidecar["resources"]
    if (missing := MISSING.search(refusal)) and SIDECAR in missing[1]:
        names = [one.partition(" for: ")[0].strip() for one in missing[1].split(";") if SIDECAR in one]
        yield f"set {', '.join(map(_as_field, names))} of the container {SIDECAR} by {RESOURCES}"
    for found in LIMIT.finditer(refusal):
        kind, resource = f"{found['amount'] or found['absent']}s", found["resource"]
        own = (resources.get(kind) or {}).get(resource)
        if found["kind"] == "Container" and str(own) == str(found["given"]):
            yield f"that is {kind}.{resource} of the container {SIDECAR}: set it by {RESOURCES}"
        elif found["kind"] == "Pod":
            yield f"the container {SIDECAR} has a part in that: {RESOURCES}"
    if RATIO.search(refusal):
        yield f"change limits and requests in spec.template, or of the container {SIDECAR} by {RESOURCES}"
    if EXCEEDED.search(refusal):
        yield f"the container {SIDECAR} of each pod has a part in that: {RESOURCES}"
    if USERS.search(refusal) and "violates PodSecurity" not in refusal:
        context = sidecar["securityContext"]
        user, group = context.get("runAsUser", "that of its image"), context.get("runAsGroup", "that of its image")
        yield f"the container {SIDECAR} has the user id {user} and the group id {group}: set {SECURITY}"


def _as_field(name: str) -> str:
    """The resource as a field. For a request, a quota may leave out the word."""
    return name if name.startswith(("limits.", "requests.")) else f"requests.{name}"
