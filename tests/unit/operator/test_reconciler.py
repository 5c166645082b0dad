# SPDX-License-Identifier: Apache-2.0
"""In which order the work on a job is done, and what is not done at all before the status is written."""

from copy import deepcopy
from datetime import UTC, datetime
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from elasticjob.api import ElasticJobStatus
from elasticjob.kube.errors import Conflict, Forbidden, NotFound
from elasticjob.reading import Node
from elasticjob_operator import memory
from elasticjob_operator.actions import status_writer
from elasticjob_operator.actions.access import SOON_SECONDS
from elasticjob_operator.actions.leftovers import LOOK_SECONDS
from elasticjob_operator.actions.sidecar_questions import SidecarQuestions
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.job.outcome import Deferred, Outcome, Retry
from support.operator_objects import CERTIFICATES, ID, JOB_UID, OTHER_ID, Object, job, pod, record, trainer
from support.recorded_job import KEY, RecordedJob, reconciler

ENDED = {"type": "Complete", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-02T03:04:05Z"}

FOLLOWS = ["ServiceAccount", "Role", "RoleBinding", "pod", "pod"]


async def test_the_status_is_written_before_all_that_follows_from_it() -> None:
    recorded = RecordedJob(job())
    recorded.conflicts = 2
    made = reconciler(recorded)
    for _ in range(2):
        assert await made.reconcile(KEY) == 0.0
    assert recorded.done == []
    await made.reconcile(KEY)
    assert recorded.done == ["status", *FOLLOWS]


async def test_a_round_awaits_the_joins_of_running_workers() -> None:
    recorded = RecordedJob(job(replicas=3, minReplicas=3, maxReplicas=3))
    running = {"phase": "Running", "containerStatuses": [trainer(running={})]}
    join = {"type": "Join", "after": 0, "cause": "Started"}
    made = reconciler(recorded)
    view = made._cache.view(KEY)
    for pods, requests, awaited in (
        ([running, running, {"phase": "Pending"}], [None, None, None], 2),
        ([running, running, running], [join, None, None], 2),
        ([running, running, running], [join, join, join], 0),
    ):
        recorded.there = [pod(index, **status) for index, status in enumerate(pods)]
        recorded.records = [record(index, request=request) for index, request in enumerate(requests)]
        view.pods.clear()
        view.workers.clear()
        await made._memories._reflector.list_all(anew=True)
        await made.reconcile(KEY)
        assert view.awaited == awaited
    assert recorded.body["status"]["rendezvous"]["phase"] == "Formed"


async def test_nothing_is_done_for_a_job_that_another_controller_manages() -> None:
    recorded = RecordedJob(job(managedBy="kueue.x-k8s.io/multikueue"))
    assert await reconciler(recorded).reconcile(KEY) is None
    assert recorded.done == []


@pytest.mark.parametrize("taken_over", [False, True])
async def test_the_budget_is_made_once_there_are_pods(taken_over: bool) -> None:
    """The cluster tells of a budget that finds none; a pod that is not ready yet may be evicted in any case."""
    recorded = RecordedJob(job())
    made = reconciler(recorded)
    await made.reconcile(KEY)
    made._memories._known[KEY].access.due_at = inf if taken_over else 0.0
    assert recorded.budget is None
    await made.reconcile(KEY)
    assert recorded.done.index("PodDisruptionBudget") > recorded.done.index("pod")


@pytest.mark.parametrize(("pace", "done"), [(Retry(0.5), []), (Deferred(0.5), FOLLOWS)])
async def test_a_status_that_is_not_written_yet_stops_what_follows_unless_it_may_wait(
    monkeypatch: pytest.MonkeyPatch, pace: Outcome, done: list[str]
) -> None:
    monkeypatch.setattr(status_writer, "due_of", lambda *_, **__: pace)
    recorded = RecordedJob(job())
    assert await reconciler(recorded).reconcile(KEY) == 0.5
    assert recorded.done == done


@pytest.mark.parametrize(("ttl", "deleted"), [(0, True), (10**9, False), (None, False)])
async def test_an_ended_job_is_deleted_after_its_time_to_live(ttl: int | None, deleted: bool) -> None:
    rendezvous = {"phase": "Closed", "round": 1, "outcome": "Complete"}
    body = job(ttlSecondsAfterFinished=ttl) | {"status": {"conditions": [ENDED], "rendezvous": rendezvous}}
    recorded = RecordedJob(body)
    await reconciler(recorded).reconcile(KEY)
    assert (f"delete ml/digits {JOB_UID}" in recorded.done) is deleted


async def test_a_job_of_which_nothing_is_heard_is_looked_at_at_times() -> None:
    """None of its pods writes a heartbeat, and what was taken from its access is to be found."""
    made = reconciler(RecordedJob(job(suspend=True)))
    for _ in range(3):
        seconds = await made.reconcile(KEY)
    assert seconds is not None
    assert 0 < seconds <= max(memory.ACCESS_SECONDS)


def lost_seconds() -> float:
    return REGISTRY.get_sample_value("elasticjob_lost_seconds_total", {"cause": "FirstFormation"}) or 0.0


def told_hangs() -> float:
    return REGISTRY.get_sample_value("elasticjob_events_total", {"reason": "ProgressDeadlineExceeded"}) or 0.0


async def test_what_a_step_changes_is_measured_once_its_status_is_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedJob(job())
    made, before = reconciler(recorded), lost_seconds()
    await made.reconcile(KEY)
    recorded.now += 7
    with monkeypatch.context() as patched:
        patched.setattr(status_writer, "due_of", lambda *_, **__: Retry(0.5))
        assert await made.reconcile(KEY) == 0.5
    assert lost_seconds() - before == 0
    await made.reconcile(KEY)
    assert lost_seconds() - before == 7


async def test_a_job_of_the_same_name_inherits_nothing() -> None:
    """Its access is its own, though that of the job before it has just been looked at."""
    recorded = RecordedJob(job())
    made = reconciler(recorded)
    await made.reconcile(KEY)
    recorded.body = job()
    recorded.body["metadata"] |= {"uid": "another", "resourceVersion": "900"}
    made._cache.note_job(recorded.body)
    recorded.done.clear()
    await made.reconcile(KEY)
    assert recorded.done == ["status", *FOLLOWS]


async def test_a_job_may_be_deleted_while_its_template_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server refuses to write its status, which is no fault of ours."""
    recorded = RecordedJob(job())
    made = reconciler(recorded)

    async def deleted_meanwhile(*_: Any) -> None:
        made._cache.note_job(recorded.body, deleted=True)

    async def not_found(*_: Any) -> None:
        raise NotFound("no such job", 404)

    monkeypatch.setattr(recorded, "try_template", deleted_meanwhile)
    monkeypatch.setattr(recorded, "replace_job_status", not_found)
    with pytest.raises(NotFound):
        await made.reconcile(KEY)
    assert await made.reconcile(KEY) is None


async def test_a_job_that_has_ended_is_left_alone_but_for_a_look_each_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deletion may have fallen into a gap of the watch."""
    rendezvous = {"phase": "Closed", "round": 1, "outcome": "Complete"}
    recorded = RecordedJob(job() | {"status": {"conditions": [ENDED], "rendezvous": rendezvous}})
    monkeypatch.setattr(status_writer, "time", SimpleNamespace(monotonic=lambda: recorded.now))
    made = reconciler(recorded)
    await made.reconcile(KEY)
    recorded.now += 2  # what the first step has counted is written
    assert [await made.reconcile(KEY) for _ in range(2)][-1] == 3600


async def test_a_phase_whose_beginning_was_not_answered_began_when_it_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a round of some milliseconds would count as one that has stood for hours."""
    standing = {"phase": "Formed", "round": 5, "worldSize": 1, "participants": f"0/{ID}", "replicas": 1, "reason": "x"}
    recorded = RecordedJob(job(replicas=1) | {"status": {"rendezvous": standing}})
    recorded.there = [pod(0, containerStatuses=[trainer(running={})])]
    recorded.records = [record(0, request={"type": "Join", "after": 4, "cause": "Started"})]
    made, write = reconciler(recorded), recorded.replace_job_status
    await made.reconcile(KEY)
    assert recorded.body["status"]["rendezvous"]["round"] == 5

    async def unanswered(body: Object, status: Object) -> Object:
        await write(body, status)
        raise TimeoutError

    recorded.now += 7200
    made._cache.note_pod(pod(0, version=8), deleted=True)
    with monkeypatch.context() as patched:
        patched.setattr(recorded, "replace_job_status", unanswered)
        with pytest.raises(TimeoutError):
            await made.reconcile(KEY)
    assert recorded.body["status"]["rendezvous"]["round"] == 6
    made._cache.note_job(recorded.body)
    await made.reconcile(KEY)
    clocks = made._memories._known[KEY].clocks.known
    assert (clocks.opened, clocks.formed) == (recorded.now, recorded.now)


async def test_what_the_leader_before_still_writes_after_a_take_over_that_wrote_nothing_is_gone_on_from() -> None:
    """Its request was on its way for long. The API server takes it, as it names the version that still is there."""
    standing = {"phase": "Formed", "round": 5, "worldSize": 1, "participants": f"0/{ID}", "replicas": 1, "reason": "x"}
    recorded = RecordedJob(job(replicas=1) | {"status": {"rendezvous": standing}})
    recorded.there = [pod(0, containerStatuses=[trainer(running={})])]
    recorded.records = [record(0, request={"type": "Join", "after": 4, "cause": "Started"})]
    await reconciler(recorded).reconcile(KEY)
    recorded.body["status"] |= {"term": 4}
    on_its_way = deepcopy(recorded.body)
    on_its_way["status"]["rendezvous"] |= {"phase": "Forming", "round": 6, "reason": "worker 0 lost"}
    on_its_way["status"] |= {"replacements": "0/1", "restarts": 1}
    recorded.done.clear()
    made = reconciler(recorded)
    await made.reconcile(KEY)
    assert "status" not in recorded.done
    assert not {"pod", "delete digits-0-0"}.intersection(recorded.done)

    landed = await recorded.replace_job_status(on_its_way, on_its_way["status"])
    made._cache.note_job(landed)
    recorded.done.clear()
    await made.reconcile(KEY)
    status = recorded.body["status"]
    assert (status["term"], status["replacements"], status["rendezvous"]["round"]) == (5, "0/1", 6)
    assert recorded.done[0] == "status", "its own term is there before any pod goes or comes"
    assert {"pod", "delete digits-0-0"} <= set(recorded.done)
    assert recorded.made[0]["metadata"]["name"] == "digits-0-1"


@pytest.mark.parametrize("kind", ["workers", "workloads"])
async def test_a_job_that_goes_while_its_objects_are_listed_is_gone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedJob(job())
    made = reconciler(recorded)

    async def deleted_meanwhile(*_: Any) -> Listing[Object]:
        made._cache.note_job(recorded.body, deleted=True)
        return Listing([], "7")

    monkeypatch.setattr(recorded, kind, deleted_meanwhile)
    assert await made.reconcile(KEY) is None
    assert recorded.done == []


async def test_a_template_whose_spec_is_no_object_is_told_and_no_more() -> None:
    recorded = RecordedJob(job(template={"spec": "none"}))
    made = reconciler(recorded)
    await made.reconcile(KEY)
    made._memories._known[KEY].access.due_at = 0
    await made.reconcile(KEY)
    assert "announce TemplateInvalid" in recorded.done
    assert "pod" not in recorded.done


async def test_a_pod_is_deleted_by_the_same_limits_as_was_decided_with() -> None:
    """How long things may make no sense grows with the pods that there are; without them it would be 15 s here."""
    recorded = RecordedJob(job())
    recorded.there = [pod(index) for index in range(4096)] + [pod(0, 5)]  # the last one nobody has agreed on
    made = reconciler(recorded)
    for recorded.now, deleted in ((100.0, False), (117.0, False), (118.0, True)):
        await made.reconcile(KEY)
        assert ("delete digits-0-5" in recorded.done) is deleted, recorded.now


def hanging(**spec: Any) -> RecordedJob:
    """Of two workers in round 5, worker 1 is stopped, and both have said so."""
    members = f"0/{ID} 1/{OTHER_ID}"
    standing = {"phase": "Formed", "round": 5, "worldSize": 2, "participants": members, "replicas": 2, "reason": "x"}
    recorded = RecordedJob(job(progressDeadlineSeconds=60, **spec) | {"status": {"rendezvous": standing}})
    recorded.there = [pod(index, containerStatuses=[trainer(running={})]) for index in (0, 1)]
    join = {"type": "Join", "after": 4, "cause": "Started"}
    for index, id, process in ((0, ID, "Waits"), (1, OTHER_ID, "Stopped")):
        stall = {"round": 5, "stalled": True, "step": 7, "process": process}
        said = {"status": {"heartbeat": 4, "ack": 0, "stall": stall}}
        recorded.records.append(record(index, id=id, request=join) | said)
    return recorded


async def test_a_training_that_hangs_is_told_and_counted_once() -> None:
    recorded = hanging()
    made, before = reconciler(recorded), told_hangs()
    for _ in range(3):
        await made.reconcile(KEY)
        recorded.now += 5
    agreed = recorded.body["status"]["rendezvous"]
    assert (agreed["round"], agreed["phase"], agreed["stalled"]) == (5, "Formed", 5)
    assert recorded.body["status"]["reason"] == "ProgressDeadlineExceeded"
    assert (recorded.done.count("announce ProgressDeadlineExceeded"), told_hangs() - before) == (1, 1)


async def test_what_a_sidecar_said_last_is_in_the_reason_of_a_job_that_nobody_has_joined() -> None:
    recorded = RecordedJob(job(replicas=1, rendezvous={"startTimeoutSeconds": 60}))
    recorded.there = [pod(0, containerStatuses=[trainer(running={})], podIP="10.0.0.7")]
    ready = {"name": "elasticjob-sidecar", "ready": False, "state": {"running": {"startedAt": "2026-01-02T03:00:00Z"}}}
    recorded.there[0]["status"]["initContainerStatuses"] = [ready]
    made = reconciler(recorded)
    await made.reconcile(KEY)
    concerns = made._memories._known[KEY].concerns
    (questions,) = (one for one in concerns if isinstance(one, SidecarQuestions))
    questions.answers[0, 0] = "its ElasticWorker cannot be written: exceeded quota"
    for recorded.now in (101.0, 161.0):
        await made.reconcile(KEY)
    agreed = recorded.body["status"]["rendezvous"]
    assert agreed["outcome"] == "RendezvousTimeout"
    assert agreed["reason"].endswith("; worker 0: its ElasticWorker cannot be written: exceeded quota")


async def test_a_job_has_failed_once_it_was_active_for_as_long_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = hanging(activeDeadlineSeconds=600)
    recorded.body["status"]["active"] = {"seconds": 500, "since": "2026-01-02T03:00:00Z"}
    made = reconciler(recorded)
    for moment in ("2026-01-02T03:01:39Z", "2026-01-02T03:01:40Z"):
        assert recorded.body["status"].get("reason") != "DeadlineExceeded"
        monkeypatch.setattr("elasticjob_operator.reconciler._wall_clock", lambda: moment)  # noqa: B023
        await made.reconcile(KEY)
    status = recorded.body["status"]
    assert (status["phase"], status["reason"], status["active"]) == ("Failed", "DeadlineExceeded", {"seconds": 600})
    (told,) = [one for one in status["conditions"] if one["type"] == "Failed"]
    assert (told["status"], told["reason"]) == ("True", "DeadlineExceeded")
    assert told["message"] == "the job has not ended within spec.activeDeadlineSeconds"


async def test_members_that_do_not_reach_each_other_are_told_once_and_stay() -> None:
    """Each suspects the other, and both ack."""
    recorded = hanging()
    del recorded.body["spec"]["progressDeadlineSeconds"]
    for one, other in zip(recorded.records, (f"1/{OTHER_ID}", f"0/{ID}"), strict=True):
        one["status"] = {"heartbeat": 4, "ack": 0, "suspects": other}
    made = reconciler(recorded)
    for _ in range(60):
        await made.reconcile(KEY)
        recorded.now += 1
        number = recorded.body["status"]["rendezvous"].get("ping", {}).get("number", 0)
        for one in recorded.records:
            made._cache.note_worker(one | {"status": one["status"] | {"ack": number}})
    status = recorded.body["status"]
    assert (status["reason"], status["rendezvous"]["round"]) == ("NetworkFault", 5)
    (told,) = [one for one in status["conditions"] if one["type"] == "Connected"]
    assert told["message"].startswith("pod digits-1-0 does not reach pod digits-0-0 at ")
    assert recorded.done.count("announce NetworkFault") == 1
    assert not [one for one in recorded.done if one.startswith("delete") or "WorkerLost" in one]


async def test_one_that_is_to_be_restarted_begins_another_round() -> None:
    recorded = hanging(hangPolicy="Restart")
    made = reconciler(recorded)
    for _ in range(3):
        await made.reconcile(KEY)
        recorded.now += 5
    agreed = recorded.body["status"]["rendezvous"]
    assert (agreed["round"], agreed["phase"], agreed["stalled"]) == (6, "Forming", 0)
    assert (agreed["cause"], agreed["reason"]) == ("TrainingHung", agreed["failure"])
    assert agreed["reason"].startswith("no member has reported for 60 s: worker 1's training process is stopped")
    assert [recorded.done.count(f"announce {one}") for one in ("ProgressDeadlineExceeded", "RoundBroken")] == [1, 1]


def failing(**avoid: Any) -> RecordedJob:
    """Of two workers in round 5, on a node each, worker 1's pod has failed."""
    members = f"0/{ID} 1/{OTHER_ID}"
    standing = {"phase": "Formed", "round": 5, "worldSize": 2, "participants": members, "replicas": 2, "reason": "x"}
    recorded = RecordedJob(job(avoidNodes={"failures": 1, **avoid}) | {"status": {"rendezvous": standing}})
    recorded.there = [pod(0, containerStatuses=[trainer(running={})]), pod(1, phase="Failed")]
    for index, one in enumerate(recorded.there):
        one["spec"]["nodeName"] = f"node-{index}"
    join = {"type": "Join", "after": 4, "cause": "Started"}
    recorded.records = [record(index, id=id, request=join) for index, id in ((0, ID), (1, OTHER_ID))]
    return recorded


@pytest.mark.parametrize(("required", "kind"), [(False, "preferred"), (True, "required")])
async def test_the_pod_that_replaces_one_that_failed_keeps_off_its_node(required: bool, kind: str) -> None:
    recorded = failing(required=required)
    made, create = reconciler(recorded), recorded.create_pod
    pods: list[Object] = []

    async def noted(body: Object) -> Object:
        pods.append(body)
        return await create(body)

    recorded.create_pod = noted  # type: ignore[method-assign]
    for _ in range(3):
        await made.reconcile(KEY)
    (one,) = recorded.body["status"]["nodeFailures"]
    assert (one["node"], one["failures"], one["pod"]) == ("node-1", 1, "digits-1-0")
    assert recorded.done.count("announce NodeAvoided") == 1
    assert recorded.done.index("status") < recorded.done.index("announce NodeAvoided") < recorded.done.index("pod")
    (new,) = pods
    affinity = new["spec"]["affinity"]["nodeAffinity"]
    assert list(affinity) == [f"{kind}DuringSchedulingIgnoredDuringExecution"]
    assert "node-1" in str(affinity)


async def test_a_line_of_the_log_names_the_worker_that_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    """As a field, whatever the sentence begins with."""
    caplog.set_level("INFO")
    recorded = failing()
    recorded.there.append(pod(0, 7, containerStatuses=[trainer(running={})]))
    made = reconciler(recorded)
    for _ in range(3):
        await made.reconcile(KEY)
    fields = [cast(Any, line).fields for line in caplog.records if hasattr(line, "fields")]
    workers = {one["reason"]: one.get("worker") for one in fields}
    assert workers["UnknownPod"] == 0
    assert workers["WorkerLost"] == 1
    assert workers["NodeAvoided"] is None


async def test_a_node_is_forgotten_in_time_though_nothing_happens() -> None:
    recorded = failing(forSeconds=20)
    recorded.there[1] = pod(1, containerStatuses=[trainer(running={})])
    noted = {"node": "node-1", "failures": 1, "round": 4, "pod": "digits-1-0"}
    seen = datetime.now(UTC).isoformat(timespec="seconds")
    recorded.body["status"]["nodeFailures"] = [noted | {"time": seen}]
    made = reconciler(recorded)
    for _ in range(3):
        seconds = await made.reconcile(KEY)
    assert seconds is not None
    assert 10 < seconds <= 20, "else it is looked at when its listing has aged"
    assert "announce WorkerLost" not in recorded.done
    old = noted | {"time": "2026-01-02T03:04:05Z"}
    status = recorded.body["status"] | {"nodeFailures": [old]}
    made._cache.note_job(await recorded.replace_job_status(recorded.body, status))
    await made.reconcile(KEY)
    assert recorded.body["status"].get("nodeFailures") is None


async def test_who_leads_after_a_failure_was_written_counts_it_no_more() -> None:
    recorded = failing()
    await reconciler(recorded).reconcile(KEY)
    for _ in range(2):
        await reconciler(recorded).reconcile(KEY)
    assert [one["failures"] for one in recorded.body["status"]["nodeFailures"]] == [1]
    assert recorded.done.count("announce NodeAvoided") == 1


async def test_it_is_looked_at_again_when_who_was_asked_has_had_the_time_to_answer() -> None:
    recorded = hanging()
    recorded.records[1]["status"].pop("stall")
    made = reconciler(recorded)
    await made.reconcile(KEY)
    assert await made.reconcile(KEY) == 15.0
    assert "announce ProgressDeadlineExceeded" not in recorded.done
    recorded.now += 15
    for _ in range(3):  # the status may wait for a moment, as it does here
        await made.reconcile(KEY)
    assert recorded.done.count("announce ProgressDeadlineExceeded") == 1


async def test_a_gang_has_no_pods_before_its_quota_and_none_without() -> None:
    body = job(quotaAdmission="Gang")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    recorded = RecordedJob(body)
    made = reconciler(recorded)
    await made.reconcile(KEY)
    assert recorded.done == ["status", "announce QuotaPending", "Workload"]
    assert (told_reason(recorded), recorded.body["status"]["phase"]) == ("QuotaPending", "Pending")

    (queued,) = recorded.queued
    admitted = [{"type": type, "status": "True", "message": "y"} for type in ("QuotaReserved", "Admitted")]
    admission = {"podSetAssignments": [{"name": "workers", "count": 1}]}
    queued["status"] = {"conditions": admitted, "admission": admission}
    recorded.done.clear()
    await made.reconcile(KEY)
    steps = [one for one in recorded.done if one in ("pod", "Workload")]
    assert steps == ["pod", "Workload"], "one, and the rest queues"

    recorded.queued[1:], recorded.there = [], [pod(phase="Running")]
    queued["status"]["conditions"].append({"type": "Evicted", "status": "True", "message": "Preempted"})
    recorded.done.clear()
    await reconciler(recorded).reconcile(KEY)
    assert "delete digits-0-0" in recorded.done, "by another operator, that has what the API server has"
    assert "its quota is gone: Preempted; " in recorded.body["status"]["conditions"][1]["message"]
    assert told_reason(recorded) == "QuotaPending"


async def test_the_next_pod_prefers_other_nodes_than_those_that_rejected_the_last_ones() -> None:
    recorded = RecordedJob(job(replicas=1))
    made, names = reconciler(recorded), ["n0", "n1"]
    for number, node in enumerate(names):
        rejected = pod(0, number, phase="Failed", reason="UnexpectedAdmissionError")
        rejected["spec"]["nodeName"] = node
        recorded.there = [rejected]
        made._cache.note_pod(rejected)
        await made.reconcile(KEY)
        made._cache.note_pod(rejected, deleted=True)
    recorded.now += 10
    await made.reconcile(KEY)
    assert recorded.made[-1]["metadata"]["name"] == "digits-0-2"
    assert all(node in str(recorded.made[-1]["spec"]["affinity"]) for node in names)


async def test_no_pod_of_a_gang_is_made_while_its_quota_is_not_known() -> None:
    body = job(quotaAdmission="Gang")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    recorded = RecordedJob(body)
    failed = pod(1, phase="Failed")
    recorded.there, recorded.unseen = [pod(0, phase="Running"), failed], Conflict("conversion webhook failed", 500)
    await reconciler(recorded).reconcile(KEY)
    assert "announce WorkerLost" in recorded.done
    assert "pod" not in recorded.done
    assert "delete digits-0-0" not in recorded.done
    assert "conversion webhook failed" in recorded.body["status"]["conditions"][1]["message"]


async def test_a_gang_that_was_deleted_without_its_pods_is_looked_after_until_its_quota_is_back() -> None:
    body = job(quotaAdmission="Gang")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    recorded = RecordedJob(body)
    made = reconciler(recorded)
    for _ in range(2):
        await made.reconcile(KEY)
    made._cache.note_job(body, deleted=True)
    assert await made.reconcile(KEY) == LOOK_SECONDS
    recorded.queued[0]["metadata"].pop("ownerReferences")
    assert await made.reconcile(KEY) is None
    assert recorded.queued == []


def told_reason(recorded: RecordedJob) -> str:
    return str(recorded.body["status"]["reason"])


async def test_ranks_are_laid_out_by_the_labels_of_the_nodes_that_are_watched() -> None:
    """And by their names alone where none are."""
    for zones, order in ((("a", "b", "a"), [0, 2, 1]), ((), [0, 1, 2])):
        recorded = RecordedJob(job(replicas=3, rankOrder={"topologyKeys": ["zone"]}))
        for index, id in enumerate(list(CERTIFICATES)[:3]):
            body = pod(index, phase="Running", podIP=f"10.0.0.{index}", containerStatuses=[trainer(running={})])
            body["spec"]["nodeName"] = f"n{index}"
            recorded.there.append(body)
            join = {"type": "Join", "after": 0, "cause": "Started"}
            recorded.records.append(record(index, id=id, address=f"10.0.0.{index}:27601", request=join))
        recorded.nodes_there = [
            {"metadata": {"name": f"n{index}", "labels": {"zone": zone}}} for index, zone in enumerate(zones)
        ]
        await reconciler(recorded).reconcile(KEY)
        agreed = ElasticJobStatus.parse(recorded.body["status"]).rendezvous
        assert [member.index for member in agreed.participants] == order


def there(count: int, **spec: Any) -> RecordedJob:
    """A job whose round 5 is formed by so many workers, each on a node of its own."""
    ids = list(CERTIFICATES)[:count]
    members = " ".join(f"{index}/{id}" for index, id in enumerate(ids))
    standing = {"phase": "Formed", "round": 5, "worldSize": count, "participants": members, "replicas": count}
    recorded = RecordedJob(job(replicas=count, **spec) | {"status": {"rendezvous": standing | {"reason": "x"}}})
    for index, id in enumerate(ids):
        body = pod(index, phase="Running", podIP=f"10.0.0.{index}", containerStatuses=[trainer(running={})])
        body["spec"] |= {"nodeName": f"n{index}", **spec.get("template", {}).get("spec", {})}
        recorded.there.append(body)
        join = {"type": "Join", "after": 4, "cause": "Started"}
        recorded.records.append(record(index, id=id, address=f"10.0.0.{index}:27601", request=join))
    return recorded


CORDONED = {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}}


async def test_a_new_leader_knows_the_nodes_before_its_first_step() -> None:
    """Else who has come for a member is told to leave, as nobody is known to need it."""
    recorded = there(2)
    recorded.nodes_there = [CORDONED]
    recorded.there.append(pod(2, phase="Pending"))
    made = reconciler(recorded)
    await made.reconcile(KEY)
    assert recorded.body["status"].get("replacements") is None
    made._cache.note_node(Node.read({"metadata": {"name": "n1", "resourceVersion": "9"}}))
    await made._memories._reflector.list_all(anew=True)  # an older answer than what the watch has shown
    assert made._cache.view(KEY).nodes["n1"].taints == ()


@pytest.mark.parametrize(("spec", "made"), [({}, ["digits-2-0"]), ({"quotaAdmission": "Gang"}, [])])
async def test_nobody_takes_over_from_a_draining_member_of_a_gang_while_its_quota_is_unknown(
    spec: Object, made: list[str]
) -> None:
    recorded = there(2, **spec)
    recorded.body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    recorded.nodes_there, recorded.unseen = [CORDONED], Conflict("conversion webhook failed", 500)
    await reconciler(recorded).reconcile(KEY)
    assert [one["metadata"]["name"] for one in recorded.made] == made


TOLERANT = {"containers": job()["spec"]["template"]["spec"]["containers"], "tolerations": [{"operator": "Exists"}]}


@pytest.mark.parametrize("spec", [{}, {"template": {"spec": TOLERANT}}], ids=["replaced", "tolerated"])
async def test_evictions_wait_for_the_grace_and_no_longer(spec: Object) -> None:
    recorded = there(2, **spec)
    recorded.nodes_there = [CORDONED]
    made = reconciler(recorded)
    for recorded.now, most in ((100.0, False), (399.0, False), (400.5, True)):
        await made.reconcile(KEY)
        assert recorded.budget is not None
        assert (recorded.budget["spec"]["minAvailable"] == 0) is most, recorded.now
    await made.reconcile(KEY)
    assert recorded.done.count("announce DrainGraceOver") == 1
    made._cache.note_node(Node.read({"metadata": {"name": "n1", "resourceVersion": "99"}}))  # it was uncordoned
    await made.reconcile(KEY)
    assert recorded.budget is not None
    assert recorded.budget["spec"]["minAvailable"] > 0


async def test_the_budget_grows_before_a_pod_is_made_and_falls_a_while_after_one_has_gone() -> None:
    """In between one more than is to go might be evicted."""
    recorded = there(2)
    made = reconciler(recorded)
    await made.reconcile(KEY)
    made._memories._known[KEY].access.due_at = 0  # as minutes after a take-over
    await made.reconcile(KEY)
    least = [minimum(recorded)]
    made._cache.note_job({**recorded.body, "spec": {**recorded.body["spec"], "spareReplicas": 1}})
    await made.reconcile(KEY)
    assert recorded.done.index("pod") > len(recorded.done) - 1 - recorded.done[::-1].index("PodDisruptionBudget")
    least.append(minimum(recorded))
    newest = recorded.made[-1]
    gone = {**newest["metadata"], "resourceVersion": "2", "uid": "x"}
    made._cache.note_pod({**newest, "metadata": gone}, deleted=True)
    made._cache.note_job({**recorded.body, "spec": {**recorded.body["spec"], "spareReplicas": 0}})
    for recorded.now in (101.0, 159.0, 161.0):
        again = await made.reconcile(KEY)
        assert again is not None
        least.append(minimum(recorded))
    assert least == [2, 3, 3, 3, 2]


async def test_a_new_leader_lowers_the_budget_a_while_after_it_has_found_it() -> None:
    """It does not know since when a pod has been gone, which the cluster may count still."""
    recorded = there(2)
    made = reconciler(recorded)
    await made.reconcile(KEY)
    made._memories._known[KEY].access.due_at = 0  # as minutes after a take-over
    await made.reconcile(KEY)
    assert recorded.budget is not None
    recorded.budget["spec"]["minAvailable"] = 3  # by the leader before
    successor, least = reconciler(recorded), []
    await successor.reconcile(KEY)
    successor._memories._known[KEY].access.due_at = 0
    for recorded.now in (101.0, 160.0, 162.0):
        await successor.reconcile(KEY)
        least.append(minimum(recorded))
    assert least == [3, 3, 2]


async def test_a_pod_that_was_left_behind_does_not_keep_its_name_from_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `kubectl delete --cascade=orphan`: the next free number is written before its pod is made."""
    recorded, left = RecordedJob(job()), {"digits-1-0", "digits-1-1"}
    orphan = {"metadata": {"name": "digits-1-0", "uid": "left", "resourceVersion": "1"}}
    make = recorded.create_pod

    async def create_pod(body: Object) -> Object:
        if body["metadata"]["name"] in left:
            raise Conflict("there is one", 409)
        return await make(body)

    async def find_pod(*_: str) -> Object:
        return orphan

    monkeypatch.setattr(recorded, "create_pod", create_pod)
    monkeypatch.setattr(recorded, "pod", find_pod, raising=False)
    made = reconciler(recorded)
    for _ in range(4):
        await made.reconcile(KEY)
    assert [one["metadata"]["name"] for one in recorded.made] == ["digits-0-0", "digits-1-2"]
    assert recorded.body["status"]["replacements"] == "1/2"
    assert recorded.done.index("status", recorded.done.index("pod")) < len(recorded.done) - recorded.done[::-1].index(
        "pod"
    )
    assert not recorded.body["status"].get("restarts")


async def test_a_pod_that_is_refused_raises_the_budget_for_the_moment_of_the_try_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A budget of more pods than are ready is one that monitoring tells of."""
    recorded = there(2)
    recorded.body["spec"]["replicas"] = 4

    async def refuse(_: Object) -> Object:
        raise Forbidden("exceeded quota: full", 403)

    monkeypatch.setattr(recorded, "create_pod", refuse)
    made = reconciler(recorded)
    least = []
    for recorded.now in (100.0, 101.0, 170.0):  # by the clock of refusals no time has passed
        await made.reconcile(KEY)
        least.append(minimum(recorded))
    assert least == [4, 4, 2]


def minimum(recorded: RecordedJob) -> int:
    assert recorded.budget is not None
    return int(recorded.budget["spec"]["minAvailable"])


@pytest.mark.parametrize(
    ("spec", "nodes"), [({}, False), ({"drain": {"taints": []}}, True), ({"drain": {"graceSeconds": 0}}, True)]
)
async def test_nobody_waits_for_a_drain_that_is_not_seen_or_may_be_at_once(spec: Object, nodes: bool) -> None:
    recorded = there(1, **spec)
    recorded.budget = {"metadata": {"name": "digits-worker", "uid": "b", "ownerReferences": [{"uid": JOB_UID}]}}
    made = reconciler(recorded, nodes=nodes)
    recorded.body["spec"]["replicas"] = 2
    await made.reconcile(KEY)
    assert "pod" in recorded.done
    assert recorded.budget is None


async def test_a_job_whose_budget_is_refused_trains_without_it_and_says_so() -> None:
    recorded = there(1)
    recorded.budget = {"metadata": {"name": "digits-worker", "uid": "theirs", "annotations": {}}}
    recorded.body["spec"]["replicas"] = 2
    made = reconciler(recorded)
    again = await made.reconcile(KEY)
    assert again is not None
    assert again <= SOON_SECONDS
    assert "pod" in recorded.done
    assert recorded.done.count("announce BudgetRefused") == 1
    assert made._memories._known[KEY].access.budget_problem


async def test_a_container_that_fails_after_success_is_announced_once() -> None:
    """Each of its ends is news, and that it was seen before is not, be it by another operator."""
    recorded = there(1)
    recorded.records[0]["spec"]["request"] = {"type": "Finish", "round": 5}
    made = reconciler(recorded)
    await made.reconcile(KEY)
    assert recorded.body["status"]["reason"] == "Finishing"
    of = recorded.there[0]
    for restarts, announced in ((1, 1), (1, 1), (2, 2)):
        again = trainer(restarts, running={}, last={"exitCode": 3})
        version = {**of["metadata"], "resourceVersion": f"{restarts + 1}"}
        made._cache.note_pod({**of, "metadata": version, "status": {**of["status"], "containerStatuses": [again]}})
        await made.reconcile(KEY)
        assert recorded.done.count("announce ContainerFailed") == announced
    after = reconciler(recorded)
    await after.reconcile(KEY)
    assert recorded.done.count("announce ContainerFailed") == 2


async def test_a_suspended_job_keeps_no_budget_for_pods_that_are_all_going() -> None:
    """The cluster would tell of one that finds none. While one of them may still save it is not to be evicted."""
    recorded = there(2)
    made = reconciler(recorded)
    await made.reconcile(KEY)
    made._memories._known[KEY].access.due_at = 0  # as minutes after a take-over
    await made.reconcile(KEY)
    made._cache.note_job({**recorded.body, "spec": {**recorded.body["spec"], "suspend": True}})
    for going, kept in ((0, True), (1, True), (2, False)):
        for index in range(going):
            of = recorded.there[index]
            meta = {**of["metadata"], "deletionTimestamp": "2026-01-02T03:04:05Z", "resourceVersion": "2"}
            made._cache.note_pod({**of, "metadata": meta})
        await made.reconcile(KEY)
        assert (recorded.budget is not None) is kept, going


async def test_the_budget_goes_with_the_jobs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the pods do: the cluster would tell of one that finds none."""
    recorded = there(1, cleanPodPolicy="All")
    guarded: list[bool] = []

    async def delete_pod(*_: str) -> None:
        guarded.append(recorded.budget is not None)

    monkeypatch.setattr(recorded, "delete_pod", delete_pod)
    recorded.body["spec"]["replicas"] = 2
    made = reconciler(recorded)
    await made.reconcile(KEY)
    assert recorded.budget is not None
    made._memories._known[KEY].access.due_at = 0  # as minutes after a take-over
    finished = {"type": "Finish", "round": 5}
    for body, of in zip(recorded.records, recorded.there, strict=True):
        ended = {**of["status"], "containerStatuses": [trainer(terminated={"exitCode": 0})]}
        made._cache.note_pod({**of, "metadata": {**of["metadata"], "resourceVersion": "2"}, "status": ended})
        made._cache.note_worker({**body, "spec": {**body["spec"], "request": finished}})
    await made.reconcile(KEY)
    assert recorded.body["status"]["rendezvous"]["outcome"] == "Complete"
    assert recorded.budget is None
    assert guarded
    assert not any(guarded)
