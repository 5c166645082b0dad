# SPDX-License-Identifier: Apache-2.0
"""`spec.podFailurePolicy` and its CEL rules, in the shape of batch/v1's. The operator evaluates it."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from elasticjob.fields import ConditionType
from elasticjob.schema import Model, rule, validations
from elasticjob.terms import PolicyAction

MAX_RULES, MAX_CONDITION_PATTERNS, MAX_EXIT_CODES = 20, 20, 255  # as in batch/v1
MAX_EXIT_CODE = 255

ExitCode = Annotated[int, Field(ge=0, le=MAX_EXIT_CODE, description="The exit code of a container.")]
ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}


class OnExitCodes(Model):
    """Matches the exit code of a failed worker."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.operator != 'In' || !(0 in self.values)",
                "values must not have 0 with the operator In: exit code 0 is no failure",
                ".values",
            )
        )
    )

    container_name: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="The container whose exit code is read; without it, those of all containers. For the trainer "
        "container it is the exit code of the training process, if torchrun has reported it.",
    )
    operator: Literal["In", "NotIn"] = Field(
        description="In: the exit code is one of the values. NotIn: it is none of them. Exit code 0 never matches."
    )
    values: tuple[ExitCode, ...] = Field(
        min_length=1,
        max_length=MAX_EXIT_CODES,
        description="Exit codes in ascending order, each once. A signal's exit code is 128 plus its number.",
        json_schema_extra=SET | validations(rule("self.isSorted()", "values must be in ascending order")),
    )


class OnPodCondition(Model):
    """Matches a condition of a lost worker's pod."""

    type: ConditionType = Field(description="The type of the pod's condition, such as DisruptionTarget.")
    # no default in the schema: in a list, tools that compare it with a manifest would show a lasting difference
    status: Literal["True", "False", "Unknown"] | None = Field(
        None, description="The required status; by default True."
    )


class PolicyRule(Model):
    """An action, and the failures it applies to."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "has(self.onExitCodes) != has(self.onPodConditions)",
                "a rule has exactly one of onExitCodes and onPodConditions",
                ".onExitCodes",
            )
        )
    )

    action: PolicyAction = Field(
        description="FailJob: the job fails without another try. Ignore: the failure does not count against "
        "maxRestarts. Count: it counts, even if a lost pod would not."
    )
    on_exit_codes: OnExitCodes | None = Field(None, description="The exit codes that the rule matches.")
    on_pod_conditions: tuple[OnPodCondition, ...] | None = Field(
        None,
        min_length=1,
        max_length=MAX_CONDITION_PATTERNS,
        description="Conditions of a lost worker's pod; the rule matches if the pod has one of them.",
        json_schema_extra=ATOMIC,
    )


class PodFailurePolicy(Model):
    """Which failures end the job, and which do not count."""

    rules: tuple[PolicyRule, ...] = Field(
        max_length=MAX_RULES,
        description="The rules are tried in this order on all failures of a round, in any worker; the first that "
        "matches decides. A failure that no rule matches is treated as without a policy.",
        json_schema_extra=ATOMIC,
    )
