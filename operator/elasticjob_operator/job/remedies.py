# SPDX-License-Identifier: Apache-2.0
"""What to change where the cluster refuses a pod for what the operator has put into it, or for what is not there. Pure.

The API server names a container by its place or not at all, and who reads that has not written the sidecar.
"""

import re
from collections.abc import Iterator

from elasticjob.objects import Object
from elasticjob.pods import SIDECAR

RESOURCES = "the chart's value sidecar.resources"
SECURITY = "spec.sidecar.securityContext, or for all jobs the chart's value sidecar.securityContext"
MISSING = re.compile(r"must specify (.*)")
# of a LimitRange; of the amount nothing is said where the container has none
LIMIT = re.compile(
    r"(?:minimum|maximum) (?P<resource>\S+) usage per (?P<kind>Container|Pod) is [^,\s]+"
    r"(?:, but (?P<amount>limit|request) is (?P<given>[^\s,;\]]+)|\. +No (?P<absent>limit|request) is specified)"
)
CONTAINER = re.compile(r"spec\.(?:initC|c)ontainers\[")
RATIO = re.compile(r"\S+ max limit to request ratio per (?:Container|Pod)")
EXCEEDED = re.compile(r"exceeded quota: .*?requested: \S*(?:cpu|memory)")
# the words of security context constraints, of the policies that stand in for them, and of the API server's own check
USERS = re.compile(
    r"runAsUser|runAsGroup|runAsNonRoot|security context constraint|must be in the ranges", re.IGNORECASE
)
# what a template names and the cluster lacks, in the API server's words, by the field that names it
ABSENT = {
    "priorityClassName": re.compile(r"no (PriorityClass) with name (\S+) was found"),
    "runtimeClassName": re.compile(r'(RuntimeClass) "([^"]+)" not found'),
    "serviceAccountName": re.compile(r'(service ?account) "([^"]+)" not found', re.IGNORECASE),
}


def explained(refusal: str, pod: Object) -> str:
    """`refusal`, of the API server for `pod`, and what to change: what it names is not there, or it may be the sidecar
    that is at fault."""
    for field, words in ABSENT.items():
        if found := words.search(refusal):
            return f"{refusal}; make the {found[1]} {found[2]}, or name another in spec.template.spec.{field}"
    sidecar, place = _sidecar_of(pod)
    if place not in refusal and CONTAINER.search(refusal):  # it names others
        return refusal
    told = list(_remedies(refusal, sidecar))
    if place in refusal:
        told = [f"{place} is the container {SIDECAR}", *(told or [f"set {_where(refusal)}"])]
    return "; ".join([refusal, *told])


def _sidecar_of(pod: Object) -> tuple[Object, str]:
    """The container, and what the API server calls it."""
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
    """As a quota names a resource: of a request with or without the word."""
    return name if name.startswith(("limits.", "requests.")) else f"requests.{name}"
