# SPDX-License-Identifier: Apache-2.0
"""What Kueue's admission of a Workload adds to the pods that use its quota, as in Kueue's own integrations. Pure.

Flavors add node labels and tolerations; admission checks may add more. None may change what the template says. If they
contradict it, the pod cannot be made, and a message says so.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.objects import Object

# the names in a flavor or in a check's update, and the paths in the template
PLACES = (
    ("labels", "metadata.labels"),
    ("annotations", "metadata.annotations"),
    ("nodeSelector", "spec.nodeSelector"),
)


class Update(NamedTuple):
    """What one flavor or check adds. `whose`: its source, for example "the ResourceFlavor spot". `words`: labels,
    annotations and node selector, by these names."""

    whose: str
    words: Mapping[str, Mapping[str, str]]
    tolerations: tuple[Object, ...] = ()


class Admission(NamedTuple):
    """What is added to a pod that uses the quota of `workload`. `problem`: why no such pod can be made."""

    workload: str
    words: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    tolerations: tuple[Object, ...] = ()
    problem: str = ""


def of_flavor(name: str, spec: Object) -> Update:
    words = {"nodeSelector": dict(spec.get("nodeLabels") or {})}
    return Update(f"the ResourceFlavor {name}", words, tuple(spec.get("tolerations") or ()))


def of_check(name: str, update: Object) -> Update:
    words = {field: dict(update.get(field) or {}) for field, _ in PLACES}
    return Update(f"the admission check {name}", words, tuple(update.get("tolerations") or ()))


def admitted(workload: str, flavors: Iterable[Update], checks: Iterable[Update], template: Object) -> Admission:
    """What `flavors` and `checks` add to `template`. Where flavors contradict each other the first one counts, as in
    Kueue. A check must not contradict anything."""
    words: dict[str, dict[str, str]] = {field: {} for field, _ in PLACES}
    whose: dict[tuple[str, str], str] = {}
    tolerations: list[Object] = []
    given = {field: _given(template, path) for field, path in PLACES}
    for may_differ, updates in ((True, flavors), (False, checks)):
        for update in updates:
            for field, path in PLACES:
                for key, value in update.words.get(field, {}).items():
                    known = given[field].get(key, value)
                    if known != value:
                        return Admission(workload, problem=_differs(f"spec.template.{path}", update, key, value, known))
                    known = words[field].setdefault(key, value)
                    by = whose.setdefault((field, key), update.whose)
                    if known != value and not may_differ:
                        return Admission(workload, problem=_differs(f"the {field} of {by}", update, key, value, known))
            tolerations += [one for one in update.tolerations if one not in tolerations]
    return Admission(workload, words, tuple(tolerations))


def add(template: Object, given: Admission) -> None:
    """Adds `given` to the template of one pod, in place."""
    meta, pod = dict(template.get("metadata") or {}), template["spec"]
    template["metadata"] = meta
    for field, into in (("labels", meta), ("annotations", meta), ("nodeSelector", pod)):
        if added := given.words.get(field):
            into[field] = {**added, **(into.get(field) or {})}
    there = pod.get("tolerations") or []
    if added_tolerations := [one for one in given.tolerations if one not in there]:
        pod["tolerations"] = [*there, *added_tolerations]


def _given(template: Object, path: str) -> Mapping[str, str]:
    first, second = path.split(".")
    found: Mapping[str, str] = (template.get(first) or {}).get(second) or {}
    return found


def _differs(where: str, update: Update, key: str, value: str, known: str) -> str:
    return (
        f"{update.whose}, by which Kueue has admitted the job, wants {key}={value}, and {where} says {key}={known}: "
        "change the template, or the queue"
    )
