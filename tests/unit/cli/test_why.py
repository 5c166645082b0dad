# SPDX-License-Identifier: Apache-2.0
"""`why` on paper: which workers are told together, what follows when, and what no test makes in a cluster."""

from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest

from elasticjob.api import JOB_LEFT
from elasticjob.blocker_reasons import Reason
from elasticjob.objects import Object
from elasticjob.pods import AVOIDED_NODES
from elasticjob_cli.errors import CliError
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.members import members_of
from elasticjob_cli.reading.scene import Leader
from elasticjob_cli.why.answer import answer
from elasticjob_cli.why.rows import LocalReason
from elasticjob_operator.actions.gang import NO_KUEUE, NO_RIGHT
from elasticjob_operator.actions.gang import REFUSED as KUEUE_REFUSED
from support.cli_jobs import NOW, ago, blocker, formed, forming, joins, pod, record, scene

LEASE = "elasticjob-system/elasticjob-operator"


def unscheduled(index: int, message: str = "0/3 nodes have 1 nvidia.com/gpu") -> Object:
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(index, since=None, phase="Pending", conditions=[told])


def event(of: Object, reason: str, message: str, seconds: float = 5) -> Object:
    about = {"kind": "Pod", "name": of["metadata"]["name"], "uid": of["metadata"]["uid"]}
    return {
        "metadata": {"name": "e"},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "lastTimestamp": ago(seconds),
    }


def causes(seen: Look) -> list[str]:
    return [one.reason for one in answer(seen).causes]


def test_a_full_group_has_no_cause() -> None:
    reply = answer(formed([0, 1], history=[{"round": 4, "size": 2, "cause": "a", "seconds": 1.0, "time": ago(200)}]))
    assert reply.full
    assert reply.paragraph == "Round 4 trains at full size, with 2 workers; it formed 3 min 20 s ago."


@pytest.mark.parametrize("finalizers", [["foregroundDeletion"], ["backup.example.com/hold", "b"], []])
def test_a_job_that_is_being_deleted_is_no_fault_of_the_operators(finalizers: list[str]) -> None:
    """It does nothing more for the job, and so has not answered to this generation, whatever else holds."""
    seen = formed([0], spec={"replicas": 2})
    meta = seen.scene.job["metadata"] | {"deletionTimestamp": ago(90), "generation": 2, "finalizers": finalizers}
    reply = answer(replace(seen, scene=replace(seen.scene, job=seen.scene.job | {"metadata": meta})))
    assert [one.reason for one in reply.causes] == [LocalReason.DELETED]
    assert not reply.full
    held = ", ".join(finalizers) or "nothing"
    assert reply.paragraph.startswith(f"It is being deleted: for 90 s, and held by {held}. The operator does nothing")


def test_a_job_that_another_controller_manages_is_none_of_the_operators() -> None:
    """Nobody answers to it here, whatever the operators' Lease says."""
    multikueue = "kueue.x-k8s.io/multikueue"
    seen = look(scene({"replicas": 2, "managedBy": multikueue}, {"observedGeneration": 0}, leader=Leader(LEASE)))
    reply = answer(seen)
    assert [one.reason for one in reply.causes] == [LocalReason.MANAGED]
    assert not reply.full
    assert reply.paragraph == (
        f"Another controller manages it: spec.managedBy is {multikueue}, so ElasticJob's operator makes no pods "
        "and writes no status for it. Ask that controller. spec.managedBy cannot be changed: create a new job for "
        "ElasticJob's operator to run it."
    )


@pytest.mark.parametrize("manager", [None, "elasticjob.io/elasticjob-controller"])
def test_a_job_that_names_the_operator_is_its_own(manager: str | None) -> None:
    seen = formed([0, 1], spec={"managedBy": manager} if manager else {})
    assert causes(seen) == []


@pytest.mark.parametrize(("passed", "told"), [(1800, True), (3601, False)])
def test_two_installations_that_run_one_job_are_told_for_as_long_as_it_lasts(passed: float, told: bool) -> None:
    about = {"kind": "ElasticJob", "name": "digits"}
    left = event({"metadata": {"name": "digits", "uid": "uid"}}, JOB_LEFT, "two installations look after it", passed)
    seen = formed([0, 1])
    seen = replace(seen, scene=replace(seen.scene, events=(left | {"involvedObject": about},)))
    assert (LocalReason.TWO_INSTALLATIONS in causes(seen)) is told
    assert answer(seen).paragraph.startswith("Round 4 trains at full size, with 2 workers")
    assert ("Two operators want to run it: two installations look after it." in answer(seen).paragraph) is told


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (
            joins(4) | {"cause": "WorkerFailed", "detail": "rank 1, SIGKILL"},
            "worker 1's processes failed (rank 1, SIGKILL)",
        ),
        ({"type": "Leave", "cause": "AgentLost"}, "worker 1 left: AgentLost"),
    ],
    ids=["its processes", "its torchrun"],
)
def test_a_round_that_a_failure_has_ended_does_not_train_until_the_operator_has_seen_it(
    request_: Object, why: str
) -> None:
    seen = formed([0, 1], records=[record(1, request_)])
    assert not answer(seen).full
    assert answer(seen).paragraph == f"Round 4 has just ended: {why}. The operator is about to open the next."
    assert {one.state for one in members_of(seen, {})} <= {"has joined", "its round has ended"}


def test_a_round_whose_processes_start_does_not_train_yet() -> None:
    history = [{"round": 4, "size": 2, "cause": "a", "seconds": 1.0, "time": ago(12)}]
    assert answer(formed([0, 1], history=history, starting=True)).paragraph == (
        "Round 4 starts at full size, with 2 workers; it formed 12 s ago, and its training processes start: not all "
        "are connected yet, and none has reported a step."
    )


def test_an_end_by_a_rule_for_failures_is_told_as_one() -> None:
    why = "worker 1's training process failed with exit code 42: spec.podFailurePolicy.rules[0] says FailJob"
    closed = {"phase": "Closed", "outcome": "Failed", "cause": "PodFailurePolicy", "reason": why}
    reply = answer(formed([0, 1], rendezvous=closed))
    assert [one.reason for one in reply.causes] == [LocalReason.POLICY]
    assert f"It has failed without another try: {why}. Fix the cause and create " in reply.paragraph


def test_the_issues_example() -> None:
    """Three have joined and the last call runs since five seconds; who is missing may yet come, as its pod is new."""
    seen = forming(joined=[0, 1, 2], last=[0, 1, 2, 3], spec={"minReplicas": 2}, pods=[unscheduled(3)])
    assert answer(seen).paragraph == (
        "Round 2 is forming for 12 s (worker 2 lost: its pod was deleted): 3 of 4 workers have joined. It waits for "
        "worker 3, whose pod is pending: 0/3 nodes have 1 nvidia.com/gpu. Make room or add nodes, or request less in "
        "the template. It goes on with 3 of 4 now, as nobody else is on the way."
    )


def test_what_keeps_off_nodes_is_told_which_and_what_helps() -> None:
    waits = unscheduled(1, "0/3 nodes are available")
    waits["metadata"]["annotations"] = {AVOIDED_NODES: "node-b,node-a"}
    seen = forming(joined=[0], last=[0, 1], pods=[waits])
    assert causes(seen) == [Reason.UNSCHEDULABLE]
    assert (
        "worker 1, whose pod is pending and excluded from nodes: 0/3 nodes are available: spec.avoidNodes.required "
        "rules out node-a, node-b. Make room on other nodes or add some, or unset `avoidNodes.required`."
    ) in answer(seen).paragraph


def test_a_last_call_is_told_though_nobody_knows_since_when_it_runs() -> None:
    known = forming(joined=[0, 1])
    seen = look(replace(known.scene, records=[unaccounted(one) for one in known.scene.records]))
    assert answer(seen).paragraph.endswith("It goes on with 2 of 3 at the latest 30 s after enough have joined.")


def test_a_group_of_which_a_pod_is_gone_is_not_full() -> None:
    """An operator that leads breaks the round within a second; without one it stays."""
    whole = formed([0, 1])
    seen = look(replace(whole.scene, pods=whole.scene.pods[:1]))
    reply = answer(seen)
    assert not reply.full
    assert reply.paragraph.startswith("Round 4 trains with 1 of 2 workers; it formed some time ago. It trains without ")
    assert (
        "worker 1, which has no pod yet: it is about to be made, if an operator leads: you may not" in reply.paragraph
    )


def unaccounted(body: Object) -> Object:
    """A record of which the API server does not know who wrote what when, as sidecars write it."""
    return {**body, "metadata": {**body["metadata"], "managedFields": []}}


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        ((), "there is no PersistentVolumeClaim data"),
        (("persistentvolumeclaims",), "pod has unbound immediate PersistentVolumeClaims"),
    ],
)
def test_of_a_claim_that_may_not_be_read_the_scheduler_is_heard(hidden: tuple[str, ...], words: str) -> None:
    waits = unscheduled(1, "pod has unbound immediate PersistentVolumeClaims")
    waits["spec"]["volumes"] = [{"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}}]
    seen = look(replace(forming(joined=[0], last=[0, 1], pods=[waits]).scene, hidden=hidden))
    assert causes(seen) == [Reason.CLAIM_NOT_READY]
    assert f"worker 1, whose pod waits for a volume: {words}" in answer(seen).paragraph


@pytest.mark.parametrize(("spares", "told"), [(0, False), (1, True)])
def test_that_no_spare_is_ready_is_told_where_somebody_is_missing(spares: int, told: bool) -> None:
    seen = formed([0], spec={"replicas": 2, "spareReplicas": spares}, pods=[unscheduled(1)])
    assert ("No spare is ready to take a place." in answer(seen).paragraph) is told
    ready = formed([0], spec={"spareReplicas": spares}, pods=[pod(1)] * spares, records=[record(1, joins(4))] * spares)
    assert "spare" not in answer(ready).paragraph


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (
            [unscheduled(1)],
            "A spare is missing: worker 1, whose pod is pending: 0/3 nodes have 1 nvidia.com/gpu. Make room or add "
            "nodes, or request less in the template.",
        ),
        ([], "A spare is missing: worker 1, which has no pod yet: it is about to be made, if an operator leads"),
        (
            [pod(1)],
            "A spare is missing: worker 1, whose trainer has run for 100 s: no torchrun of worker 1 has spoken to its "
            "sidecar. If it lasts, see the log: ",
        ),
        (
            [pod(1, since=None, phase="Pending")],
            "A spare is missing: worker 1, whose pod is starting: it is being set up.",
        ),
    ],
    ids=["no node", "no pod", "runs", "starts"],
)
def test_a_spare_that_is_not_there_is_told_of_a_full_group(others: list[Object], told: str) -> None:
    reply = answer(formed([0], spec={"spareReplicas": 1}, pods=others))
    assert reply.full
    assert not reply.causes
    assert told in reply.paragraph


def test_a_sidecar_that_cannot_write_is_told_by_what_it_says_and_its_worker_is_no_slow_joiner() -> None:
    why = "its ElasticWorker cannot be written: exceeded quota: records; raise it"
    body = pod(1)
    status = {
        "name": "elasticjob-sidecar",
        "restartCount": 0,
        "ready": False,
        "state": {"running": {"startedAt": ago(60)}},
    }
    body["status"]["initContainerStatuses"] = [status]
    seen = forming(
        joined=[0],
        last=[0, 1],
        pods=[body],
        blockers=[blocker("SidecarNotReady", why, 1)],
    )
    assert causes(seen) == [Reason.SIDECAR_NOT_READY, Reason.SIDECAR_NOT_READY]
    told = answer(seen).paragraph
    assert f"Sidecars are refused or cut off by the API server: worker 1: {why}." in told
    assert "worker 1, whose sidecar has run for 60 s and is not ready" in told
    status["ready"] = True
    assert causes(look(seen.scene)) == [
        Reason.SIDECAR_NOT_READY,
        LocalReason.NO_TORCHRUN,
    ]  # the status is a little behind


def test_workers_with_one_cause_are_told_together_and_remedies_once() -> None:
    seen = formed([0], spec={"replicas": 5}, pods=[unscheduled(1), unscheduled(2), unscheduled(3, "no room"), pod(4)])
    reply = answer(seen)
    without = (
        "It trains without workers 1 and 2, whose pods are pending: 0/3 nodes have 1 nvidia.com/gpu; and without "
        "worker 3, whose pod is pending: no room; and without worker 4, whose trainer has run for 100 s: no torchrun "
        "of worker 4 has spoken to its sidecar."
    )
    assert without in reply.paragraph
    assert reply.paragraph.count("Make room or add nodes") == 1
    assert reply.paragraph.endswith("The others train on until more have joined.")


@pytest.mark.parametrize(
    ("seen", "follows"),
    [
        (forming(joined=[0], spec={"minReplicas": 2}), "It trains when at least 2 have joined."),
        (forming(joined=[0, 1]), "It goes on with 2 of 3 in 25 s at the latest."),
        (forming(joined=[0, 1], pods=[unscheduled(2)]), "It goes on with 2 of 3 now, as nobody else is on the way."),
        (
            forming(joined=[0, 1], pods=[pod(2)], records=[record(2, joins(0))]),
            "It goes on with 2 of 3 once the members of the last round have joined or count as lost.",
        ),
        (
            formed([0, 1], spec={"replicas": 4}, pods=[pod(2)], records=[record(2, joins(4), asked=10)]),
            "Worker 2 has joined and waits for the next round, which is opened in 20 s at the latest.",
        ),
        (
            formed(
                [0, 1],
                spec={"replicas": 4, "sizes": {"step": 2}},
                pods=[pod(2)],
                records=[record(2, joins(4), asked=10)],
            ),
            "Worker 2 has joined and waits for the next round, which needs 4 workers: spec.sizes allows none between.",
        ),
    ],
    ids=["too few", "last call", "all stuck", "members stop", "newcomer", "size"],
)
def test_what_follows(seen: Look, follows: str) -> None:
    assert answer(seen).paragraph.endswith(follows)


def test_a_node_that_is_about_to_go_is_told_of_a_full_group() -> None:
    """In the operator's words: this tool reads no nodes."""
    going = "worker 1: its node b is draining (node.kubernetes.io/unschedulable)"
    node = blocker("NodeDraining", going.removeprefix("worker 1: "), 1, object="Node/b", passes=True)
    reply = answer(formed([0, 1], blockers=[blocker("ImagePull", "no image", 7), node]))
    assert [(one.reason, one.message) for one in reply.causes] == [(Reason.NODE_DRAINING, going)]
    assert f"A node is draining: {going}. Another worker starts elsewhere " in reply.paragraph


def test_an_unhealthy_device_is_told_of_a_full_group() -> None:
    sick = "worker 1: its device nvidia.com/gpu GPU-7 on node b is unhealthy: ECC errors"
    device = blocker("DeviceUnhealthy", sick.removeprefix("worker 1: "), 1, object="Node/b", passes=True)
    reply = answer(formed([0, 1], blockers=[device]))
    assert [(one.reason, one.message) for one in reply.causes] == [(Reason.DEVICE_UNHEALTHY, sick)]
    assert f"A device is unhealthy: {sick}. Another worker starts with other devices " in reply.paragraph


def test_the_last_call_runs_from_the_worker_that_completed_the_minimum() -> None:
    said = [record(0, joins(1), asked=10), record(1, joins(1), asked=6), record(2, joins(1), asked=2)]
    pods = [pod(index) for index in range(3)]
    seen = forming(last=[0, 1, 2, 3], spec={"minReplicas": 2}, pods=pods, records=said)
    assert answer(seen).paragraph.endswith("It goes on with 3 of 4 in 24 s at the latest.")


def test_a_last_call_that_a_worker_has_named_counts() -> None:
    seen = forming(joined=[0], records=[record(1, joins(1) | {"lastCallSeconds": 100}, asked=5)], pods=[pod(1)])
    assert answer(seen).paragraph.endswith("It goes on with 2 of 3 in 95 s at the latest.")


def crash(index: int, name: str = "trainer", code: int = 1, **state: Any) -> Object:
    end = {"exitCode": code, "reason": "Error", "message": "a\nImportError: no torch\n"}
    status = {"name": name, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, **state}
    status["lastState"] = {"terminated": end}
    kind = "containerStatuses" if name == "trainer" else "initContainerStatuses"
    return pod(index, since=None, **{kind: [status]})


def never_started(index: int, **state: Any) -> Object:
    """Once, for want of what the node lacked then."""
    end = {"exitCode": 128, "reason": "StartError", "message": "unable to freeze"}
    status = {"name": "trainer", "restartCount": 1, "state": state, "lastState": {"terminated": end}}
    return pod(index, containerStatuses=[status])


HELD_BACK = [
    blocker("PodBackOff", "its pods failed 4 times in a row: its pod failed (OOMKilled)", 0, 1),
    blocker("PodBackOff", "its pods failed 2 times in a row: its node rejected the pod", 2),
]
STARTS = pod(2, since=None)
LEFT = {"type": "Leave", "cause": "AgentLost"}


@pytest.mark.parametrize(
    ("seen", "cause", "sentence"),
    [
        (forming(joined=[0, 1]), Reason.POD_MISSING, "worker 2, which has no pod yet"),
        (
            forming(joined=[0, 1], pods=[crash(2)]),
            Reason.TRAINER_CRASHES,
            "started again 2 times: exit code 1: ImportError: no torch",
        ),
        (
            forming(joined=[0, 1], pods=[never_started(2, waiting={"reason": "CrashLoopBackOff"})]),
            Reason.CONTAINER_ERROR,
            "cannot be started: StartError: unable to freeze",
        ),
        (
            forming(joined=[0, 1], pods=[never_started(2, running={"startedAt": ago(100)})]),
            LocalReason.NO_TORCHRUN,
            "worker 2, whose trainer has run for 100 s: no torchrun of worker 2 has spoken to its sidecar. ",
        ),
        (
            forming(joined=[0, 1], last=[0, 1], spec={"replicas": 3}, pods=[pod(2)], records=[record(2, LEFT)]),
            LocalReason.SLOW_JOINER,
            "worker 2, whose trainer has run for 100 s and not joined yet. ",
        ),
        (
            forming(joined=[0, 1], pods=[crash(2, "elasticjob-sidecar")]),
            Reason.SIDECAR_CRASHES,
            "whose sidecar crashes: started again 2 times: exit code 1",
        ),
        (
            forming(joined=[0, 1], pods=[pod(2)], records=[record(2, joins(0), asked=600, heard=460)]),
            LocalReason.SILENT,
            "worker 2, which has been silent for 7 min 40 s",
        ),
        (
            forming(
                joined=[0, 1],
                rendezvous={"ping": {"number": 3, "members": "1-2/ab.2"}},
                pods=[pod(2)],
                records=[record(2, joins(0), asked=60, heard=4)],
            ),
            LocalReason.SILENT,
            "worker 2, which has been silent for 4 s",
        ),
        (
            forming(
                joined=[0, 1],
                rendezvous={"ping": {"number": 3, "members": "1-2/ab.2"}},
                pods=[pod(2)],
                records=[unaccounted(record(2, joins(0)))],
            ),
            LocalReason.SILENT,
            "worker 2, which has been silent for some seconds",
        ),
        (
            forming(joined=[0, 1], pods=[pod(2)], records=[record(2, joins(0))]),
            LocalReason.STOPPING,
            "worker 2, which has been stopping the processes of the last round for 12 s",
        ),
        (
            forming(joined=[0, 1], pods=[pod(2)], records=[record(2, {"type": "Leave", "cause": "StoreNotReady"})]),
            LocalReason.STORELESS,
            "worker 2, which served no store as rank 0: storeReadySeconds is 20",
        ),
        (
            forming(joined=[0, 1], pods=[STARTS]),
            Reason.POD_STARTING,
            "worker 2, whose pod is starting: it is being set up",
        ),
    ],
    ids=lambda value: value if isinstance(value, StrEnum) else "",
)
def test_causes_that_no_test_makes_in_a_cluster(seen: Look, cause: str, sentence: str) -> None:
    assert causes(seen) == [cause]
    assert sentence in answer(seen).paragraph


def test_a_sidecar_of_the_templates_that_crashes_does_not_count_as_the_trainer_and_is_not_said_to() -> None:
    """As the operator reads it: a sidecar should stay, and its restarts do not count against maxRestarts."""
    proxy = crash(2, "proxy")
    proxy["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
    seen = forming(joined=[0, 1], pods=[proxy])
    assert causes(seen) == [Reason.SIDECAR_CRASHES]
    assert "whose pod cannot start: the sidecar proxy crashes: exit code 1: ImportError" in answer(seen).paragraph
    assert "its restarts do not count against maxRestarts" in answer(seen).paragraph
    fetch = crash(2, "fetch")
    assert causes(forming(joined=[0, 1], pods=[fetch])) == [Reason.INIT_CRASHES]


SILENT = "no torchrun of worker 0, 1 has spoken to its sidecar"
LIMITED = {"replicas": 2, "rendezvous": {"startTimeoutSeconds": 400}}


@pytest.mark.parametrize(
    ("beside", "left"),
    [
        ([], "spec.rendezvous.startTimeoutSeconds leaves 5 min"),
        ([unscheduled(2)], "spec.rendezvous.startTimeoutSeconds leaves 5 min"),
        ([pod(2, since=None)], "once all pods run spec.rendezvous.startTimeoutSeconds leaves 6 min 40 s"),
    ],
)
def test_that_nobody_has_spoken_is_told_with_the_time_left(beside: list[Object], left: str) -> None:
    """The time counts from the last pod's running; pods that wait for room or quota do not hold it up."""
    spec = {**LIMITED, "replicas": 2 + len(beside)}
    reply = answer(look(scene(spec, {}, [pod(0, since=160), pod(1, since=100), *beside], [record(0)])))
    assert f"workers 0 and 1, whose trainers have run for 100 s: {SILENT}; {left}" in reply.paragraph
    assert "mporting torch" not in reply.paragraph


@pytest.mark.parametrize(
    ("reason", "message", "cause", "sentence"),
    [
        (
            "FailedCreatePodSandBox",
            "no IP addresses left",
            LocalReason.SANDBOX,
            "the node cannot set up: no IP addresses left",
        ),
        ("FailedAttachVolume", "volume is attached to node-1", LocalReason.VOLUME, "volume is attached to node-1"),
        ("Pulling", 'Pulling image "train:1"', Reason.POD_STARTING, 'is starting: Pulling image "train:1" for 5 s'),
    ],
)
def test_causes_that_only_a_pods_events_tell(reason: str, message: str, cause: str, sentence: str) -> None:
    told = scene({"replicas": 1}, {}, [pod(0, since=None)], events=[event(pod(0), reason, message)])
    assert causes(look(told)) == [cause]
    assert sentence in answer(look(told)).paragraph
    other = {**pod(0, since=None), "metadata": {**pod(0)["metadata"], "uid": "another"}}
    assert causes(look(scene({"replicas": 1}, {}, [other], events=[event(pod(0), reason, message)]))) == [
        Reason.POD_STARTING
    ]


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("failed to authorize: unexpected status: 401 Unauthorized", LocalReason.PULL_SECRET),
        ("pull access denied, repository does not exist or may require authorization", LocalReason.PULL_SECRET),
        ("manifest unknown: sha256:40135", Reason.IMAGE_PULL),
    ],
)
def test_what_a_registry_says_of_credentials_is_the_pull_secrets(message: str, cause: str) -> None:
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": message}}}
    status = [{"name": "trainer", "restartCount": 0, **waiting}]
    seen = look(scene({"replicas": 1}, {}, [pod(0, since=None, containerStatuses=status)]))
    assert causes(seen) == [cause]
    assert message in answer(seen).paragraph


@pytest.mark.parametrize(
    ("leader", "behind", "sentence"),
    [
        (Leader(LEASE), 60, f"nobody has answered to the job for 60 s; you may not read the Lease {LEASE}"),
        (Leader(LEASE, readable=True), 60, f"there is no Lease {LEASE}, and nobody has answered to the job for 60 s"),
        (
            Leader(LEASE, readable=True, lease={"spec": {"holderIdentity": "a"}}, beats=True),
            60,
            "it leads, and has not ",
        ),
        (Leader(LEASE), 5, ""),
        (Leader(LEASE, readable=True), 5, ""),
    ],
)
def test_an_operator_that_does_not_answer(leader: Leader, behind: float, sentence: str) -> None:
    told = scene({"replicas": 1}, {"observedGeneration": 0}, leader=leader)
    told.job["metadata"]["managedFields"] = [{"time": ago(behind)}]
    reply = answer(look(told))
    assert sentence in reply.paragraph
    assert bool(sentence) is any(
        one.reason in (LocalReason.NO_OPERATOR, Reason.OPERATOR_WITHOUT_RIGHTS) for one in reply.causes
    )


def test_a_pod_that_took_a_members_place_is_no_member() -> None:
    """It has joined nothing yet, and stops no processes of the last round."""
    new = {**record(2), "spec": {**record(2)["spec"], "id": "cd.0"}}
    seen = forming(joined=[0, 1], pods=[pod(2)], records=[new])
    assert causes(seen) == [LocalReason.NO_TORCHRUN]
    assert [worker.index for worker in seen.members] == [0, 1]
    without_record = pod(2)
    variables = [{"name": "ELASTICJOB_BATCH", "value": "cd"}]
    without_record["spec"]["initContainers"] = [{"name": "elasticjob-sidecar", "env": variables}]
    assert [worker.index for worker in forming(joined=[0, 1], pods=[without_record]).members] == [0, 1]


@pytest.mark.parametrize("cause", ["FirstFormation", "StoreNotReady"])
def test_workers_whose_pods_failed_in_different_ways_are_told_with_each_its_own(cause: str) -> None:
    seen = forming(blockers=HELD_BACK, rendezvous={"cause": cause})
    without = [one for one in answer(seen).causes if one.workers]
    told = [(one.reason, one.workers, one.message.rpartition(": ")[2]) for one in without]
    if cause == "StoreNotReady":  # the round has ended by its rank 0
        assert told == [
            (LocalReason.STORELESS, (0,), "its pod failed (OOMKilled)"),
            (Reason.POD_BACK_OFF, (1,), "its pod failed (OOMKilled)"),
            (Reason.POD_BACK_OFF, (2,), "its node rejected the pod"),
        ]
        assert "As rank 0 it served no store: see its log." in answer(seen).paragraph
        return
    assert told == [
        (Reason.POD_BACK_OFF, (0, 1), "its pod failed (OOMKilled)"),
        (Reason.POD_BACK_OFF, (2,), "its node rejected the pod"),
    ]
    assert "workers 0 and 1, which have no pod: its pods failed 4 times in a row" in answer(seen).paragraph


def test_a_worker_whose_pods_did_not_fail_is_not_said_to_be_held_back() -> None:
    assert causes(forming(joined=[0], blockers=HELD_BACK[:1])) == [Reason.POD_BACK_OFF, Reason.POD_MISSING]


def test_a_round_whose_members_do_not_reach_each_other_is_not_said_to_train() -> None:
    said = "pod digits-1-0 does not reach pod digits-0-0 at 10.0.0.1:27601, and both live: a NetworkPolicy"
    cut_off = blocker("NetworkFault", said, 1, object="Pod/digits-0-0")
    seen = formed([0, 1], blockers=[cut_off])
    reply = answer(seen)
    assert (causes(seen), reply.full) == ([Reason.NETWORK_FAULT], False)
    assert reply.paragraph.startswith(
        "Round 4 stands with 2 of 2 workers; it formed some time ago, and may take no steps."
    )
    assert f"Its pods cannot reach each other: {said}. Let the job's pods reach" in reply.paragraph
    assert [member.state for member in members_of(seen, {})] == ["trains", "does not reach rank 0"]


def test_what_a_user_may_not_see_is_not_concluded_from() -> None:
    status = {"rendezvous": {"round": 1, "phase": "Forming"}}
    reply = answer(look(scene({"replicas": 2}, status, hidden=("pods", "events", "elasticworkers"))))
    assert reply.paragraph == (
        "Round 1 is forming for 16 min 40 s. You may not see its pods, events and elasticworkers, so nothing can be "
        "said of its workers."
    )


@pytest.mark.parametrize(
    ("reason", "cause", "told"),
    [
        ("DrainGraceOver", Reason.DRAIN_GRACE_OVER, "The grace period of a drain is over: it is so. If "),
        ("BudgetRefused", Reason.BUDGET_REFUSED, "Its PodDisruptionBudget cannot be made: it is so."),
    ],
)
def test_what_a_drain_meets_is_told_of_a_full_group(reason: str, cause: str, told: str) -> None:
    seen = formed([0, 1], blockers=[blocker(reason, "it is so")])
    assert (causes(seen), answer(seen).full) == ([cause], True)
    assert told in answer(seen).paragraph


def test_each_member_that_does_not_reach_rank_0_is_marked_however_many_are_named() -> None:
    said = "pods digits-1-0, digits-2-0, digits-3-0 and 1 more do not reach pod digits-0-0 at 10.0.0.1:27601"
    cut_off = blocker("NetworkFault", said, 1, 2, 3, 4)
    seen = formed(range(6), blockers=[cut_off])
    assert states(seen) == ["trains", *["does not reach rank 0"] * 4, "trains"]


def test_a_job_of_another_api_is_told() -> None:
    with pytest.raises(CliError, match=r"is not of the API that this tool knows \(replicas: "):
        look(scene({"replicas": "many"}, {}))


def test_now_is_the_api_servers() -> None:
    assert answer(look(scene({"replicas": 1}, {}, now=NOW))).now.startswith("Round 1 is forming for 16 min 40 s: ")


def test_a_training_that_hangs_is_told_though_the_group_is_full() -> None:
    said = "no member has reported for 60 s: worker 1's training process is stopped; all at step 7"
    hung = [blocker("ProgressDeadlineExceeded", said)]
    seen = formed([0, 1], blockers=hung)
    assert causes(seen) == [Reason.HUNG]
    assert answer(seen).full
    assert f"The training hangs: {said}. The trainers' logs have the Python stacks" in answer(seen).paragraph
    assert causes(formed([0, 1])) == []
    assert causes(forming(blockers=hung)) == [Reason.POD_MISSING]


NO_QUOTA = "4 workers wait for quota (at least 2 must have it): in the queue gpus: insufficient unused quota"


def gang(message: str, replicas: int = 0, *, passes: bool = True) -> dict[str, Any]:
    """`replicas`: how many have quota."""
    told = blocker("QuotaPending", message, passes=passes)
    spec = {"replicas": 4, "quotaAdmission": "Gang"}
    return {"blockers": [told], "admitted": {"replicas": replicas}, "reason": "QuotaPending", "spec": spec}


def test_a_gang_without_quota_waits_for_no_worker() -> None:
    reply = answer(forming(last=(), rendezvous={"round": 1, "reason": ""}, **gang(NO_QUOTA)))
    assert [one.reason for one in reply.causes] == [LocalReason.GANG]
    assert f"Kueue has not admitted all of it: {NO_QUOTA}. It continues by itself when" in reply.paragraph


@pytest.mark.parametrize(
    "why",
    [
        NO_KUEUE,
        NO_RIGHT,
        f"{KUEUE_REFUSED}Admission check(s): machines, were rejected; it asks again within 160 s",
        "Kueue's Workloads: there is no WorkloadPriorityClass high: make it, or change the job's label",
        "Kueue's Workloads: there is a Workload digits-0 that is not this job's: delete it, or wait until it is gone",
        "in the queue gpus: LocalQueue gpus doesn't exist",
        "in the queue gpus: ClusterQueue gpus is inactive",
    ],
)
def test_a_gang_that_somebody_has_to_help_is_no_gang_that_waits(why: str) -> None:
    told = f"4 workers wait for quota (at least 2 must have it): {why}"
    reply = answer(forming(last=(), rendezvous={"round": 1, "reason": ""}, **gang(told, passes=False)))
    assert [one.reason for one in reply.causes] == [LocalReason.GANG_REFUSED]
    assert f"Kueue does not admit all of it: {told}. Fix what is named" in reply.paragraph


def test_of_a_gangs_pod_that_kueue_holds_back_it_is_told_that_it_should_not() -> None:
    held = pod(0, since=None, phase="Pending")
    held["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    held["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "default"}
    spec = {"replicas": 2, "quotaAdmission": "Gang"}
    reply = answer(forming(joined=[1], last=(0, 1), pods=[held], spec=spec))
    assert LocalReason.QUEUED_TWICE in [one.reason for one in reply.causes]
    assert "which Kueue holds back though the gang has quota: in the queue default. Rename that" in reply.paragraph


def test_a_gang_that_trains_with_a_part_says_what_it_waits_for() -> None:
    rest = "2 of 4 workers wait for quota: in the queue gpus: insufficient unused quota"
    reply = answer(formed([0, 1], rendezvous={"reason": "worker 1 joined"}, **gang(rest, 2)))
    assert [one.reason for one in reply.causes] == [LocalReason.GANG]
    assert f"Kueue has not admitted all of it: {rest}. " in reply.paragraph


def test_of_a_gang_with_pods_that_have_yet_to_join_these_are_told() -> None:
    told = gang("2 of 4 workers wait for quota", 2)
    assert LocalReason.GANG not in causes(forming(joined=[0], last=(0, 1), **told))
    told["blockers"] = [blocker("ImagePull", "ErrImagePull", 1), *told["blockers"]]
    assert LocalReason.GANG not in causes(formed([0, 1], **told))


def finishes(number: int = 4, stage: int = 1) -> Object:
    return {"type": "Finish", "round": number, "stage": stage}


def states(seen: Look) -> list[str]:
    return [one.state for one in members_of(seen, {})]


def test_containers_that_go_on_after_success_are_told_with_the_time_left() -> None:
    both = {"finishing": "0/ab.0 1/ab.1"}
    told = (
        "torchrun has ended in success in all 2 workers, and the containers of workers 0, 1 go on, until then at most"
    )
    gone_on = [blocker("Finishing", told, since=ago(200))]
    seen = formed([0, 1], rendezvous=both, blockers=gone_on, spec={"finishSeconds": 500})
    reply = answer(seen)
    assert not reply.full
    assert reply.paragraph.startswith(
        f"Round 4 (2 workers) has ended in success. It waits for containers: {told}; 5 min of it are left. The "
        "containers' logs "
    )
    assert states(seen) == ["finishing", "finishing"]
    late = formed([0, 1], rendezvous=both, blockers=gone_on, spec={"finishSeconds": 100})
    assert "; that is over. " in answer(late).paragraph


def test_a_worker_whose_container_goes_on_while_others_train_is_finishing() -> None:
    seen = formed([0, 1], rendezvous={"finishing": "0/ab.0"})
    reply = answer(seen)
    assert reply.paragraph.startswith("Round 4 trains at full size, with 2 workers, of which 1 has finished; ")
    assert reply.full
    assert states(seen) == ["finishing", "trains"]


def test_a_container_that_fails_after_success_is_told_while_others_train() -> None:
    told = "worker 0's container failed after its torchrun had ended in success (exit code 3) and is started again"
    failed = [blocker("ContainerFailed", told)]
    seen = formed([0, 1], rendezvous={"finishing": "0/ab.0"}, blockers=failed)
    assert causes(seen) == [Reason.CONTAINER_FAILED]
    assert f"A container fails after success: {told}. See what " in answer(seen).paragraph


def test_between_two_stages_who_has_come_to_the_next_one_has_joined() -> None:
    """A request is of a stage: one that joins the next one has not joined this one."""
    told = (
        "stage 2 waits for the next torchrun of each worker, and the container of worker 1 goes on without one, until"
    )
    seen = forming(
        last=[0, 1],
        rendezvous={"stage": 2, "cause": "NextStage", "reason": "stage 1 is finished"},
        pods=[pod(0), pod(1)],
        records=[record(0, joins(1) | {"stage": 2}), record(1, finishes())],
        blockers=[blocker("Finishing", told)],
    )
    assert [one.index for one in seen.joined] == [0]
    assert causes(seen) == [Reason.FINISHING, Reason.FINISHING]
    assert (
        "It waits for worker 1, whose next torchrun has not begun: that of stage 1 has ended" in answer(seen).paragraph
    )
    assert answer(seen).paragraph.endswith(
        "It goes on with 1 of 2 once each container that goes on has come to its next torchrun, or has ended."
    )
    assert states(seen) == ["has joined", "finishing"]


def test_who_has_come_to_the_next_stage_before_the_others_waits_for_it() -> None:
    early = record(0, joins(4) | {"stage": 2})
    seen = formed([0, 1], rendezvous={"finishing": "0/ab.0"})
    seen = look(replace(seen.scene, records=[early, seen.scene.records[1]]))
    assert states(seen) == ["waits for stage 2", "trains"]
