# SPDX-License-Identifier: Apache-2.0
"""What the operator reads from pods and records."""

from typing import Any

import pytest

from elasticjob.reading import Pod
from elasticjob.reading.waits import wait_of
from elasticjob.reading.workers import pod_state
from elasticjob.rendezvous import Member, PodState, Request, Worker
from elasticjob.terms import FailureKind, RequestType
from elasticjob_operator.job.observe import Observer, nodes_of_indices
from support.operator_objects import ID, OTHER_ID, Object, job, pod, record, trainer, view_of


def state(**status: Any) -> tuple[PodState, int, str]:
    return read(**status)[:3]


def read(**status: Any) -> tuple[PodState, int, str, FailureKind]:
    found = Pod.read(pod(**status))
    return pod_state(found, "trainer", wait_of(found, "trainer"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, PodState.PENDING),
        ({"containerStatuses": [trainer(waiting={"reason": "PodInitializing"})]}, PodState.PENDING),
        ({"containerStatuses": [trainer(running={})]}, PodState.RUNNING),
        ({"phase": "Running", "containerStatuses": [trainer(terminated={"exitCode": 0})]}, PodState.SUCCEEDED),
        (
            {"phase": "Succeeded", "containerStatuses": [trainer(terminated={"exitCode": 0, "reason": "OOMKilled"})]},
            PodState.OOM_KILLED,
        ),
        ({"containerStatuses": [trainer(terminated={"exitCode": 1})]}, PodState.RUNNING),
        ({"containerStatuses": [trainer(0, waiting={"reason": "CrashLoopBackOff"})]}, PodState.PENDING),
        ({"containerStatuses": [trainer(2, waiting={"reason": "CrashLoopBackOff"})]}, PodState.CRASH_LOOP),
        ({"phase": "Failed", "reason": "Evicted"}, PodState.FAILED),
        ({"phase": "Succeeded"}, PodState.SUCCEEDED),
    ],
)
def test_state_of_the_trainer_container(status: dict[str, Any], expected: PodState) -> None:
    assert state(**status)[0] is expected


CRASHED = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ({"containerStatuses": [trainer(terminated={"exitCode": 3, "message": "ValueError: no"})]}, "Message"),
        ({"containerStatuses": [trainer(terminated={"exitCode": 3})]}, "ExitCode"),
        ({"containerStatuses": [trainer(terminated={"exitCode": 137, "reason": "OOMKilled"})]}, "Signal"),
        ({"containerStatuses": [trainer(terminated={"exitCode": 0, "reason": "OOMKilled"})]}, "Signal"),
        ({"containerStatuses": [trainer(2, **CRASHED, last={"exitCode": 3})]}, "ExitCode"),
        ({"containerStatuses": [trainer(2, **CRASHED)]}, "Unknown"),
        ({"phase": "Failed", "reason": "DeadlineExceeded", "message": "too long"}, "Signal"),
        ({"phase": "Failed", "reason": "Evicted", "message": "the node had exit code 3"}, "Unknown"),
        ({"phase": "Failed", "containerStatuses": [trainer(terminated={"exitCode": 3})]}, "ExitCode"),
        ({"containerStatuses": [trainer(terminated={"exitCode": 0})]}, "Unknown"),
    ],
)
def test_what_a_containers_end_tells_of_the_cause(status: dict[str, Any], kind: str) -> None:
    assert read(**status)[3] == kind


def test_an_unschedulable_pod_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert state(conditions=[condition]) == (PodState.UNSCHEDULABLE, 0, "Unschedulable: 0/3 nodes")


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_missing_image_blocks_whichever_container_it_is_of(kind: str) -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such image: nowhere/x"}
    found = state(**{kind: [{"name": "any", "state": {"waiting": waiting}}]})
    assert found == (PodState.BLOCKED, 0, "ErrImagePull: no such image: nowhere/x")


def test_a_crash_loop_shows_the_last_line_that_the_trainer_said() -> None:
    last = {"exitCode": 2, "reason": "Error", "message": "Traceback\n  ...\nFileNotFoundError: train.py\n\n"}
    found = state(containerStatuses=[trainer(3, waiting={"reason": "CrashLoopBackOff"}, last=last)])
    assert found == (PodState.CRASH_LOOP, 3, "exit code 2: FileNotFoundError: train.py")


def seen(body: Object, said: Object | None) -> Worker:
    """The pod and its record as the only ones of the job."""
    name = body["metadata"]["name"]
    view = view_of(job(), {name: body}, {name: said} if said else {})
    (worker,) = Observer("trainer").observe(view)[0]
    return worker


def test_a_worker_is_its_pod_and_its_record() -> None:
    asked = record(3, 1, request={"type": "Join", "after": 0, "cause": "Started"})
    worker = seen(pod(3, 1, containerStatuses=[trainer(running={})]), asked)
    assert (worker.index, worker.replacement, worker.id, worker.heartbeat) == (3, 1, ID, 4)
    assert worker.request == Request(type=RequestType.JOIN, after=0, cause="Started")


@pytest.mark.parametrize(
    ("said", "stage", "script"),
    [({"stage": 2, "script": "train.py\n"}, 2, "train.py"), ({}, 1, "")],
    ids=["of its own", "of a sidecar that knows none"],
)
def test_a_request_is_of_a_stage(said: Object, stage: int, script: str) -> None:
    request = seen(pod(0), record(0, request={"type": "Join", "after": 0, **said})).request
    assert request == Request(type=RequestType.JOIN, stage=stage, script=script)


def test_a_join_with_limits_of_its_own() -> None:
    asked = record(0, request={"type": "Join", "after": 0, "lastCallSeconds": 5, "workerLostSeconds": 20})
    assert seen(pod(0), asked).request == Request(type=RequestType.JOIN, last_call=5, worker_lost=20)


def test_a_record_says_whom_it_suspicion_and_what_it_has_answered() -> None:
    said = record(0) | {"status": {"heartbeat": 4, "suspects": f"1/{OTHER_ID}", "ack": 2}}
    asked = job() | {"status": {"rendezvous": {"ping": {"number": 2, "members": ""}}}}
    view = view_of(asked, {"digits-0-0": pod(0)}, {"digits-0-0": said})
    (worker,) = Observer("trainer").observe(view)[0]
    assert (worker.suspects, worker.ack) == ((Member(1, OTHER_ID),), 2)


@pytest.mark.parametrize(
    ("ready", "containers", "unready"),
    [("True", "True", False), ("False", "False", False), ("False", "True", True), ("Unknown", "True", False)],
)
def test_a_pod_whose_node_is_not_heard_of_is_called_unready_by_the_cluster_alone(
    ready: str, containers: str, unready: bool
) -> None:
    conditions = [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": containers}]
    assert seen(pod(0, conditions=conditions), None).unready is unready


def test_a_pod_that_waits_for_a_readiness_gate_is_heard_of() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
    assert not seen(pod(0, conditions=[ready, {"type": "ContainersReady", "status": "True"}]), None).unready


def test_what_failed_is_told_with_its_node_on_one_line() -> None:
    failed = {"type": "Join", "after": 0, "cause": "WorkerFailed", "detail": "rank 3, exit code 1:\n\x1b[31mValueError"}
    request = seen(pod(0), record(0, node="node-b", request=failed)).request
    assert request is not None
    assert request.detail == "on node-b: rank 3, exit code 1: ValueError"


@pytest.mark.parametrize(
    ("cause", "detail", "told"),
    [
        ("MembershipChanged", "rank 3, exit code 1: ValueError", "on node-b: rank 3, exit code 1: ValueError"),
        ("MembershipChanged", None, ""),
        ("Renewed", "rank 3, exit code 1: ValueError", ""),
        ("WorkerFailed", None, "on node-b"),
    ],
)
def test_what_failed_counts_also_of_one_that_was_told_of_the_rounds_end_first(
    cause: str, detail: str | None, told: str
) -> None:
    asked = {"type": "Join", "after": 0, "cause": cause} | ({"detail": detail} if detail else {})
    request = seen(pod(0), record(0, node="node-b", request=asked)).request
    assert request is not None
    assert request.detail == told


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"type": "Join", "after": 0, "cause": "Started"}, "exit code 137, OOMKilled"),
        ({"type": "Join", "after": 0, "cause": "WorkerFailed"}, ""),
        ({"type": "Finish", "round": 0}, "exit code 137, OOMKilled"),
    ],
    ids=["started", "failed", "finished"],
)
def test_how_the_container_ended_before_is_told_of_one_that_was_started_again(asked: Object, told: str) -> None:
    """A later request has a reason of its own, and a success none."""
    again = trainer(1, running={}, last={"exitCode": 137, "reason": "OOMKilled"})
    assert seen(pod(0, containerStatuses=[again]), record(0, request=asked)).detail == told


def test_a_record_written_by_an_earlier_pod_of_the_name_is_none() -> None:
    worker = seen(pod(0), record(0, 0, "another-pod", id="not hex"))
    assert (worker.id, worker.invalid) == (None, "")


def test_pods_of_an_earlier_job_of_the_name_do_not_count() -> None:
    view = view_of(job(), {"digits-0-0": pod(0, owner="an-earlier-job"), "digits-1-0": pod(1)}, {})
    assert [worker.index for worker in Observer("trainer").observe(view)[0]] == [1]


@pytest.mark.parametrize(
    "lacks",
    [{"labels": {"elasticjob.io/index": "0"}}, {"ownerReferences": []}, {"initContainers": []}],
    ids=["label", "owner", "sidecar"],
)
def test_a_pod_that_lacks_what_the_operator_gives_is_no_worker(lacks: Object) -> None:
    claimed = pod(0)
    claimed = {
        part: {**claimed[part], **{name: lacks[name] for name in lacks if name in claimed[part]}} for part in claimed
    }
    assert (
        Observer("trainer").observe(view_of(job(), {"digits-0-0": claimed, "digits-1-0": pod(1)}, {}))[0][0].index == 1
    )


def test_a_pod_is_known_by_its_name_whatever_its_labels_say() -> None:
    relabelled, stranger = pod(2, 1), pod(0)
    relabelled["metadata"]["labels"]["elasticjob.io/index"] = "many"
    view = view_of(job(), {"digits-2-1": relabelled}, {})
    for name in ("digits", "digits-0", "digits-00-0", "digits-a-0", "other-0-0", "digits-0-0-0", "digits-\u0661-0"):
        view.pods[name] = Pod.read({**stranger, "metadata": {**stranger["metadata"], "name": name}})
    assert [(worker.index, worker.replacement) for worker in Observer("trainer").observe(view)[0]] == [(2, 1)]


def test_what_the_script_imports_is_told_by_the_worker_that_knows_most_of_it() -> None:
    bodies = [pod(index) for index in range(6)]
    bodies[1]["metadata"]["annotations"] = {"elasticjob.io/template-hash": "an older one"}
    said = {0: "", 1: "an,outdated,one", 2: "not a name", 3: "torch", 4: "torch,sklearn", 5: "torch,numpy"}
    records = [{**record(index), "status": {"imports": imports}} for index, imports in said.items()]
    bodies.append(pod(6))
    stranger = {**record(6, 0, "another-pod"), "status": {"imports": "an,earlier,pod"}}
    by_name = {body["metadata"]["name"]: body for body in (stranger, *reversed(records))}
    observer = Observer("trainer", "ab")
    assert observer.imports == ""
    view = view_of(job(), {body["metadata"]["name"]: body for body in reversed(bodies)}, by_name)
    workers, _ = observer.observe(view)
    assert observer.imports == "torch,sklearn"
    assert [one.invalid.partition(":")[0] for one in workers if one.invalid] == ["status.imports"]


def test_ready_is_the_pods_own_condition() -> None:
    assert Pod.read(pod(conditions=[{"type": "Ready", "status": "True"}])).is_ready
    assert not Pod.read(pod()).is_ready


@pytest.mark.parametrize(
    ("conditions", "disrupted"),
    [
        ([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}], True),
        ([{"type": "DisruptionTarget", "status": "False"}], False),
        ([{"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvictedDueToPreempted"}], True),
        ([{"type": "Ready", "status": "True"}], False),
    ],
)
def test_a_pod_that_the_cluster_ends_is_known_by_its_condition(conditions: list[Object], disrupted: bool) -> None:
    worker = seen(pod(phase="Failed", reason="Evicted", conditions=conditions), None)
    assert (worker.pod, worker.disrupted) == (PodState.FAILED, disrupted)


@pytest.mark.parametrize(
    ("message", "disrupted"),
    [
        ("The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 0.", True),
        ('Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ', False),
        ("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", False),
        ('Container trainer exceeded its local ephemeral storage limit "1Gi". ', False),
    ],
)
def test_a_pod_that_is_evicted_for_its_own_use_of_the_disk_is_no_victim(message: str, disrupted: bool) -> None:
    """The next one would fill it as well, and nothing would ever count."""
    told = {"reason": "Evicted", "message": message}
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message}
    ran = [trainer(terminated={"exitCode": 137})]
    worker = seen(pod(0, phase="Failed", conditions=[condition], containerStatuses=ran, **told), None)
    assert (worker.disrupted, worker.rejected, worker.pod) == (disrupted, False, PodState.FAILED)
    assert worker.detail.startswith(f"Evicted: {message.strip()}")


ADMISSION = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}


@pytest.mark.parametrize(
    ("status", "rejected"),
    [
        (ADMISSION, True),
        ({**ADMISSION, "containerStatuses": [trainer(waiting={"reason": "PodInitializing"})]}, True),
        ({**ADMISSION, "containerStatuses": [trainer(terminated={"exitCode": 1})]}, False),
        ({**ADMISSION, "containerStatuses": [trainer(waiting={}, last={"exitCode": 1})]}, False),
        ({**ADMISSION, "initContainerStatuses": [trainer(running={})]}, False),
        ({**ADMISSION, "conditions": [{"type": "DisruptionTarget", "status": "True"}]}, False),
        ({"phase": "Pending"}, False),
    ],
)
def test_a_pod_that_ends_before_any_of_its_containers_began_was_rejected_by_its_node(
    status: Object, rejected: bool
) -> None:
    worker = seen(pod(**status), None)
    assert worker.rejected is rejected
    if rejected:
        assert worker.detail == "UnexpectedAdmissionError: no healthy devices"


def test_what_ends_a_pod_that_ran_well_says_why() -> None:
    preempted = {"type": "TerminationTarget", "status": "True", "message": "Preempted to accommodate a workload"}
    assert seen(pod(conditions=[preempted]), None).detail == "Preempted to accommodate a workload"


def test_where_the_older_pods_of_an_index_linger() -> None:
    old, unscheduled, other = pod(1, 0), pod(1, 1), pod(0, 0)
    old["spec"], unscheduled["spec"], other["spec"] = {"nodeName": "node-b"}, {}, {"nodeName": "node-a"}
    view = view_of(job(), {body["metadata"]["name"]: body for body in (old, unscheduled, other)})
    assert nodes_of_indices(view) == {"0": {"node-a"}, "1": {"node-b"}}
    assert nodes_of_indices(view, {1: {"node-c"}})["1"] == {"node-b", "node-c"}


def test_a_pod_of_another_template_is_outdated() -> None:
    older, current, other = pod(0), pod(1), pod(2)
    current["metadata"]["annotations"] = {"elasticjob.io/template-hash": "ab"}
    other["metadata"]["annotations"] = {"elasticjob.io/template-hash": "cd"}
    view = view_of(job(), {body["metadata"]["name"]: body for body in (older, current, other)})
    workers = Observer("trainer", "ab").observe(view)[0]
    assert [worker.index for worker in workers if worker.outdated] == [2]


def test_since_when_trainers_run() -> None:
    since = "2026-01-02T03:04:05Z"
    running = pod(0, containerStatuses=[trainer(running={"startedAt": since})])
    observer = Observer("trainer")
    observer.observe(view_of(job(), {one["metadata"]["name"]: one for one in (running, pod(1))}))
    assert observer.started == {(0, 0): since}


CRASHES = "CrashLoopBackOff"
BAD = "\x1b]0;mine\x07\x1b[2Jbroken\n2026-01-01 INFO all is well"


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": BAD, "message": BAD},
        {"containerStatuses": [trainer(terminated={"exitCode": 1, "reason": "Error", "message": BAD})]},
        {"containerStatuses": [trainer(terminated={"exitCode": 1, "reason": BAD})]},
        {"containerStatuses": [trainer(waiting={"reason": "ErrImagePull", "message": BAD})]},
        {
            "containerStatuses": [
                trainer(3, waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1, "message": BAD})
            ]
        },
        {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": BAD}]},
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Evicted", "message": BAD}]},
    ],
)
def test_what_a_pod_says_is_printable_wherever_it_goes(status: Object) -> None:
    observer, one = Observer("trainer"), pod(0, **status)
    ((worker,), _) = observer.observe(view_of(job(), {"digits-0-0": one}, {}))
    said = [worker.detail, *(wait.sentence for wait in observer.waits.values())]
    assert any("well" in text for text in said)
    assert all(text.isprintable() for text in said)


@pytest.mark.parametrize("field", ["job", "id", "address", "certificate", "node"])
def test_what_a_record_says_is_printable_wherever_it_goes(field: str) -> None:
    asked = {"type": "Join", "after": 0, "cause": "WorkerFailed", "detail": BAD}
    worker = seen(pod(0), record(0, request=asked, **{field: BAD}))
    said = [worker.invalid, worker.detail, worker.request.detail if worker.request else ""]
    assert any(said)
    assert all(text.isprintable() for text in said)
