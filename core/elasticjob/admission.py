# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses of an ElasticJob by its schema: a malformed template, and changes at the wrong time."""

from typing import Any

from elasticjob.schema import FORBIDDEN, rule, validations

MADE_FROM = ("template", "nprocPerNode", "trainerContainer")  # the fields that running pods depend on


def _was(*types: str, status: str) -> str:
    """A CEL expression: whether the job had a condition of one of `types` with `status`."""
    kinds = ", ".join(f"'{type}'" for type in types)
    known = "has(oldSelf.status) && has(oldSelf.status.conditions)"
    return f"({known} && oldSelf.status.conditions.exists(one, one.type in [{kinds}] && one.status == '{status}'))"


ENDED = _was("Complete", "Failed", status="True")
NO_PODS = f"(oldSelf.spec.suspend || {_was('TemplateValid', status='False')})"


def _unchanged(field: str, unless: str, otherwise: str, *, optional: bool = False) -> dict[str, str]:
    """A CEL rule: `spec.field` may change only if `unless` (CEL) holds, and never after the job's end."""
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    same = f"(has({new}) ? has({old}) && {new} == {old} : !has({old}))" if optional else f"{new} == {old}"
    ended = f"the job has ended, and {field} changes nothing any more: make a new job"
    return {
        "rule": f"{same} || !{ENDED} && {unless}",
        "messageExpression": f"{ENDED} ? '{ended}' : '{otherwise}'",
        "reason": FORBIDDEN,
        "fieldPath": f".spec.{field}",
    }


def _while_without_pods(field: str, *, optional: bool = False) -> dict[str, str]:
    condition = f"{field} can be changed only while the job is suspended or its template invalid"
    return _unchanged(field, NO_PODS, f"{condition}: set spec.suspend to true first", optional=optional)


# rules of the schema's root, the only place that sees spec and status together
TRANSITIONS = (
    *map(_while_without_pods, (*MADE_FROM, "quotaAdmission")),
    _while_without_pods("hostNetwork", optional=True),
    _unchanged("replicas", "true", ""),
    _unchanged("managedBy", "false", "managedBy can never be changed: make a new job", optional=True),
    *(_unchanged(field, "true", "", optional=True) for field in ("restartedAt", "activeDeadlineSeconds")),
)

# In addition to Kubernetes' own schema of a pod template, which hack/crds.py adds. Values are checked by a dry run of
# the operator's.
CONTAINERS: dict[str, Any] = {"minItems": 1, "maxItems": 128}
POD = validations(
    rule(
        "!has(self.restartPolicy) || self.restartPolicy == 'OnFailure'",
        "restartPolicy must be OnFailure or left out: a failed trainer restarts in its pod",
        ".restartPolicy",
    )
)
HAS_TRAINER = rule(
    "!has(self.template.spec) || !has(self.template.spec.containers) || "
    "self.template.spec.containers.exists(one, has(one.name) && one.name == self.trainerContainer)",
    "'no container is named %s, as spec.trainerContainer says: name one so, or set that'"
    ".format([self.trainerContainer])",
    ".template.spec.containers",
)
