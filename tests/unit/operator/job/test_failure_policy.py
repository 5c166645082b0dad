# SPDX-License-Identifier: Apache-2.0
"""Which rule of a job's podFailurePolicy matches what a pod and its record say."""

from typing import Any

import pytest

from elasticjob.api import PodFailurePolicy
from elasticjob.rendezvous import Matched
from elasticjob.terms import PolicyAction
from elasticjob_operator.job.observe import Observer
from support.operator_objects import Object, job, pod, record, trainer, view_of

JOIN: Object = {"type": "Join", "after": 0, "cause": "WorkerFailed"}
LEAVE: Object = {"type": "Leave", "cause": "TrainerLeft"}
CRASHED: Object = {"reason": "CrashLoopBackOff"}
RUNS: Object = {"containerStatuses": [trainer(running={})]}
DISRUPTED: Object = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def rule(action: str = "FailJob", operator: str = "In", values: tuple[int, ...] = (42,), **rest: Any) -> Object:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **rest}}


def on_condition(action: str, type: str, status: str | None = None) -> Object:
    return {"action": action, "onPodConditions": [{"type": type} | ({"status": status} if status else {})]}


def found(rules: list[Object], body: Object, request: Object | None = None) -> Matched | None:
    name = body["metadata"]["name"]
    said = record(0, 0, request=request)
    policy = PodFailurePolicy.parse({"rules": rules})
    observer = Observer("trainer", policy=policy)
    (worker,), _ = observer.observe(view_of(job(), {name: body}, {name: said}))
    return worker.matched


def rule_of(rules: list[Object], body: Object, request: Object | None = None) -> int | None:
    matched = found(rules, body, request)
    return matched.rule if matched else None


def test_a_training_process_by_the_exit_code_that_torchrun_told() -> None:
    request = {**JOIN, "exitCode": 42, "detail": "rank 3, exit code 42: ValueError: no data"}
    assert found([rule()], pod(**RUNS), request) == Matched(
        0,
        PolicyAction.FAIL_JOB,
        "worker 0's training process failed with exit code 42: rank 3, exit code 42: ValueError: no data: "
        "spec.podFailurePolicy.rules[0] says FailJob",
    )


@pytest.mark.parametrize(
    ("wanted", "code", "matches"),
    [
        (rule(values=(1, 42)), 42, True),
        (rule(values=(1, 42)), 3, False),
        (rule(operator="NotIn", values=(0, 42)), 3, True),
        (rule(operator="NotIn", values=(0, 42)), 42, False),
        (rule(containerName="trainer"), 42, True),
        (rule(containerName="other"), 42, False),
    ],
)
def test_in_and_not_in(wanted: Object, code: int, matches: bool) -> None:
    assert (rule_of([wanted], pod(**RUNS), {**JOIN, "exitCode": code}) == 0) is matches


def test_the_first_rule_that_matches_decides() -> None:
    rules = [rule(values=(1,)), rule("Ignore", "NotIn", (1,)), rule()]
    assert found(rules, pod(**RUNS), {**JOIN, "exitCode": 42}) == Matched(
        1,
        PolicyAction.IGNORE,
        "worker 0's training process failed with exit code 42: spec.podFailurePolicy.rules[1] says Ignore",
    )


@pytest.mark.parametrize(
    ("status", "request_", "code"),
    [
        # told by torchrun, whose own exit code is 1
        (trainer(terminated={"exitCode": 1}), {**LEAVE, "exitCode": 42}, 42),
        (trainer(1, running={}, last={"exitCode": 1}), {**LEAVE, "exitCode": 42}, 42),
        # torchrun itself was killed
        (trainer(terminated={"exitCode": 137}), {**LEAVE, "cause": "AgentLost"}, 137),
        (trainer(1, running={}, last={"exitCode": 137}), {**JOIN, "cause": "Started"}, 137),
        (trainer(2, waiting=CRASHED, last={"exitCode": 3}), None, 3),
        # the container's end is news of after the join
        (trainer(terminated={"exitCode": 3}), {**JOIN, "exitCode": 42}, 3),
        (trainer(2, waiting=CRASHED, last={"exitCode": 3}), {**JOIN, "exitCode": 42}, 3),
        ({"name": "trainer"}, {**JOIN, "exitCode": 42}, None),
        # what was before it joined again says nothing
        (trainer(1, running={}, last={"exitCode": 3}), {**JOIN, "exitCode": 42}, 42),
        (trainer(1, running={}, last={"exitCode": 3}), {**JOIN, "cause": "MembershipChanged"}, None),
        (trainer(running={}), {**JOIN, "cause": "MembershipChanged"}, None),
        # it may be about to end otherwise, or runs on
        (trainer(1, running={}, last={"exitCode": 137}), LEAVE, None),
        (trainer(1, running={}, last={"exitCode": 137}), {**LEAVE, "cause": "AgentLost"}, None),
        (trainer(1, running={}, last={"exitCode": 137}), {**LEAVE, "cause": "StoreNotReady"}, None),
        # the container never ran its command, and has been started since
        (trainer(1, running={}, last={"exitCode": 128, "reason": "StartError"}), None, None),
        (trainer(terminated={"exitCode": 0}), None, None),
    ],
)
def test_the_trainers_exit_code(status: Object, request_: Object | None, code: int | None) -> None:
    rules = [rule(values=(code or 1,)), rule(operator="NotIn", values=(0,))]
    assert rule_of(rules, pod(containerStatuses=[status]), request_) == (None if code is None else 0)


def test_a_container_is_told_by_its_last_words() -> None:
    end = {"exitCode": 3, "reason": "Error", "message": "Traceback\nKeyError: 'lr'\n"}
    matched = found([rule(values=(3,))], pod(containerStatuses=[trainer(2, waiting=CRASHED, last=end)]))
    assert matched is not None
    assert matched.why.startswith("worker 0's container trainer failed: exit code 3: KeyError: 'lr': spec.")


@pytest.mark.parametrize(
    ("name", "kind", "state", "matches"),
    [
        ("data", "initContainerStatuses", {"state": {"terminated": {"exitCode": 42}}}, True),
        (
            "data",
            "initContainerStatuses",
            {"state": {"waiting": CRASHED}, "lastState": {"terminated": {"exitCode": 42}}},
            True,
        ),
        ("logs", "containerStatuses", {"state": {"terminated": {"exitCode": 42}}}, True),
        (
            "logs",
            "containerStatuses",
            {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 42}}},
            False,
        ),
        ("elasticjob-sidecar", "initContainerStatuses", {"state": {"terminated": {"exitCode": 42}}}, False),
    ],
)
def test_other_containers(name: str, kind: str, state: Object, matches: bool) -> None:
    body = pod(**{kind: [{"name": name, "restartCount": 1, **state}]})
    assert (rule_of([rule()], body) == 0) is matches
    assert rule_of([rule(containerName="trainer")], body) is None
    assert (rule_of([rule(containerName=name)], body) == 0) is matches
    body["status"].setdefault("containerStatuses", []).append(trainer(running={}))
    assert rule_of([rule()], body) is None, "the kubelet starts it again beside the trainer"


def test_the_exit_code_of_a_pods_stop_says_nothing() -> None:
    status = {"containerStatuses": [trainer(terminated={"exitCode": 42})]}
    deleted = pod(**status)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert rule_of([rule()], pod(**status)) == 0
    assert rule_of([rule()], deleted) is None
    assert rule_of([rule()], pod(phase="Failed", conditions=[DISRUPTED], **status)) is None


@pytest.mark.parametrize(
    ("wanted", "conditions", "matches"),
    [
        (on_condition("Count", "DisruptionTarget"), [DISRUPTED], True),
        (on_condition("Count", "DisruptionTarget", "False"), [DISRUPTED], False),
        (on_condition("Count", "DisruptionTarget"), [{"type": "Ready", "status": "True"}], False),
        (on_condition("Count", "Bad", "Unknown"), [{"type": "Bad", "status": "Unknown"}], True),
    ],
)
def test_a_condition_of_a_lost_pod(wanted: Object, conditions: list[Object], matches: bool) -> None:
    lost, running = pod(phase="Failed", conditions=conditions), pod(**RUNS, conditions=conditions)
    assert (rule_of([wanted], lost) == 0) is matches
    assert rule_of([wanted], running) is None
    running["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (rule_of([wanted], running) == 0) is matches


def test_why_a_condition_is_there_is_told() -> None:
    matched = found([on_condition("Count", "DisruptionTarget")], pod(phase="Failed", conditions=[DISRUPTED]))
    assert matched is not None
    assert matched.why == (
        "worker 0's pod has the condition DisruptionTarget=True (EvictionByEvictionAPI): "
        "spec.podFailurePolicy.rules[0] says Count"
    )


def test_without_a_policy_nothing_matches() -> None:
    name = "digits-0-0"
    view = view_of(job(), {name: pod(**RUNS)}, {name: record(0, 0, request={**JOIN, "exitCode": 42})})
    (worker,), _ = Observer("trainer").observe(view)
    assert worker.matched is None
