# SPDX-License-Identifier: Apache-2.0
"""The worker's record: what is written, in which order, and what survives failures. In virtual time."""

import asyncio
import contextlib
import itertools
import logging
from copy import deepcopy

import pytest

from elasticjob.api import RequestCause, RequestType, WorkerRequest
from elasticjob.kube.errors import ApiError, Conflict, Denied, NotFound
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from elasticjob_sidecar.api_server.worker_status import ScriptProgress
from support.faulty_kube import FaultyKube, Json
from support.records import ME, kept, record_of, running

pytestmark = pytest.mark.looptime

JOIN = WorkerRequest(type=RequestType.JOIN, after=3, cause=RequestCause.STARTED)
LEAVE = WorkerRequest(type=RequestType.LEAVE, cause=RequestCause.AGENT_LOST)
FINISH = WorkerRequest(type=RequestType.FINISH, round=4)


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first heartbeat comes after five seconds, and each pause is as long as it may be."""
    monkeypatch.setattr("random.uniform", lambda _, most: most)


async def test_it_creates_the_record_owned_by_its_pod() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    assert not record.established
    async with running(record):
        await record.written()
    assert record.established
    created = kube.workers["job-0-0"]
    assert created["spec"] == {
        "job": "job",
        "index": 0,
        "id": "0" * 32,
        "certificate": "PEM",
        "address": "10.0.0.7:27601",
        "node": "node-1",
    }
    metadata = created["metadata"]
    assert metadata["labels"] == {"elasticjob.io/job": "job", "elasticjob.io/index": "0"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "job-0-0", "uid": "pod-uid", "blockOwnerDeletion": False}
    assert metadata["ownerReferences"] == [owner]


def left_behind() -> Json:
    return {
        "metadata": {
            "name": "job-0-0",
            "resourceVersion": "7",
            "labels": {},
            "ownerReferences": [{"kind": "Pod", "name": "job-0-0", "uid": "an older pod"}],
        },
        "spec": {"job": "job", "index": 0, "id": "f" * 32, "address": "10.0.0.3:27601", "request": {"type": "Close"}},
        "status": {"heartbeat": 41, "round": 3, "rank": 1, "metrics": {"loss": 1.5}},
    }


async def test_it_takes_over_what_an_older_pod_or_sidecar_left() -> None:
    kube = FaultyKube()
    kube.workers["job-0-0"] = left_behind()
    record = record_of(kube)
    async with running(record):
        await record.written()
        taken = kube.workers["job-0-0"]
        assert taken["spec"]["id"] == ME.id
        assert taken["spec"]["address"] == ME.address
        assert "request" not in taken["spec"]
        assert [owner["uid"] for owner in taken["metadata"]["ownerReferences"]] == ["pod-uid"]
        assert kube.count("patch") == 1  # id and cleared request in one write
        await asyncio.sleep(5.1)
    assert kube.workers["job-0-0"]["status"] == {"heartbeat": 42}  # changed, and nothing of the other's


@pytest.mark.parametrize(("owner", "stands"), [("pod-uid", True), ("an older pod", False)])
async def test_a_success_that_an_earlier_sidecar_of_this_pod_recorded_stands(owner: str, stands: bool) -> None:
    """The operator may not have seen it yet."""
    kube = FaultyKube()
    with kube.workers.edited("job-0-0", left_behind()) as left:
        left["metadata"]["ownerReferences"][0]["uid"] = owner
        left["spec"]["request"] = {"type": "Finish", "round": 4}
    record = record_of(kube)
    record.recall = lambda said: record.want(said) if said else None
    async with running(record):
        await record.written()
    assert kube.workers["job-0-0"]["spec"]["id"] == ME.id
    assert kube.request("job-0-0") == ({"type": "Finish", "round": 4} if stands else None)
    assert kube.count("patch") == 1  # with the new id: nobody sees the one without the other


async def test_a_request_replaces_the_one_before_whole() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        for request, stored in (
            (JOIN, {"type": "Join", "after": 3, "cause": "Started"}),
            (LEAVE, {"type": "Leave", "cause": "AgentLost"}),
            (FINISH, {"type": "Finish", "round": 4}),
            (None, None),
        ):
            record.want(request)
            await record.written()
            assert kube.request("job-0-0") == stored


async def test_a_request_replaced_before_it_was_written_is_never_written() -> None:
    async with kept() as (kube, record):
        kube.open.clear()
        record.want(FINISH)
        await asyncio.sleep(0.01)  # this write is on its way
        record.want(LEAVE)
        record.want(JOIN)
        kube.open.set()
        await record.written()
    written = [body["spec"]["request"]["type"] for operation, body in kube.calls if operation == "replace" and body]
    assert written == ["Finish", "Join"]


async def test_the_same_request_is_not_written_twice() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.want(JOIN)
        await record.written()
        record.want(WorkerRequest(type=RequestType.JOIN, after=3, cause=RequestCause.STARTED))
        await record.written()
    assert kube.count("create") + kube.count("replace") == 1


async def test_a_lost_answer_is_cured_by_reading_back() -> None:
    async with kept() as (kube, record):
        kube.lose["replace"] = 1
        record.want(JOIN)
        await record.written()
        record.want(LEAVE)
        await record.written()
    assert kube.request("job-0-0") == {"type": "Leave", "cause": "AgentLost"}


async def test_a_lost_answer_to_the_creation_is_no_harm() -> None:
    kube = FaultyKube()
    kube.lose["create"] = 1
    record = record_of(kube)
    async with running(record):
        record.want(JOIN)
        await record.written()
    assert kube.request("job-0-0") == {"type": "Join", "after": 3, "cause": "Started"}


async def test_a_write_that_lingers_in_the_api_server_cannot_undo_a_later_one() -> None:
    async with kept() as (kube, record):
        kube.fail["replace"] = [ApiError("no answer: it lingers")]
        record.want(JOIN)
        await asyncio.sleep(0.01)
        lingering = next(body for operation, body in kube.calls if operation == "replace" and body)
        record.want(LEAVE)
        await record.written()
    with pytest.raises(Conflict):
        await kube.replace_worker("job-0-0", lingering)


async def test_what_others_have_changed_meanwhile_outlives_a_request() -> None:
    """The whole object is written, and the operator or a user may have written to its metadata."""
    async with kept() as (kube, record):
        kube.patch("job-0-0", {"metadata": {"annotations": {"a": "b"}}})
        record.want(JOIN)
        await record.written()
        kube.patch("job-0-0", {"spec": {"ofALaterVersion": 1}})
        record.want(LEAVE)
        await record.written()
    stored = kube.workers["job-0-0"]
    assert (stored["metadata"]["annotations"], stored["spec"]["ofALaterVersion"]) == ({"a": "b"}, 1)
    assert kube.request("job-0-0") == {"type": "Leave", "cause": "AgentLost"}


async def test_a_role_that_knows_only_patches_is_enough() -> None:
    """As of a job that an operator of before has made: the record is then taken over again, with the request."""
    async with kept() as (kube, record):
        kube.fail["replace"] = [Denied("cannot update", 403)]
        record.want(JOIN)
        await record.written()
    assert kube.request("job-0-0") == {"type": "Join", "after": 3, "cause": "Started"}


async def test_the_heartbeat_carries_round_rank_and_progress_in_one_write() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.say(handed=(4, 1))
        record.say(progress=ScriptProgress(10, 100, {"loss": 0.5, "accuracy": 0.9}))
        await asyncio.sleep(5.1)
        first = kube.workers["job-0-0"]["status"]
        record.say(progress=ScriptProgress(20, None, {"loss": 0.25}))
        await asyncio.sleep(5.1)
    metrics = {"loss": 0.5, "accuracy": 0.9}
    assert first == {"heartbeat": 1, "round": 4, "rank": 1, "step": 10, "total": 100, "metrics": metrics}
    second = {"heartbeat": 2, "round": 4, "rank": 1, "step": 20, "metrics": {"loss": 0.25}}
    assert kube.workers["job-0-0"]["status"] == second
    assert kube.count("status") == 2


async def test_what_the_script_imports_comes_with_the_heartbeat_and_stays() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.say(imports="torch,sklearn.datasets")
        await asyncio.sleep(5.1)
        assert kube.workers["job-0-0"]["status"] == {"heartbeat": 1, "imports": "torch,sklearn.datasets"}
        kube.workers.clear()
        await asyncio.sleep(15)
        assert kube.workers["job-0-0"]["status"]["imports"] == "torch,sklearn.datasets", "in a new record too"
    async with running(record_of(kube)):
        await asyncio.sleep(5.1)
    assert kube.workers["job-0-0"]["status"]["imports"] == "torch,sklearn.datasets", "after the sidecar's restart too"


async def test_the_last_report_does_not_wait_for_a_heartbeat_that_may_not_come() -> None:
    async with kept() as (kube, record):
        began = asyncio.get_running_loop().time()
        record.say(progress=ScriptProgress(9, 10))
        record.want(FINISH)
        record.end()
        await record.written(report=True)
        record.say(progress=ScriptProgress(10, 10))
        await record.written(report=True)
        assert asyncio.get_running_loop().time() - began < 0.1
        assert kube.workers["job-0-0"]["status"]["step"] == 10
        await asyncio.sleep(4)
    assert kube.count("status") == 2  # and none without news


async def test_it_beats_every_five_seconds() -> None:
    kube = FaultyKube()
    async with running(record_of(kube)):
        await asyncio.sleep(605)
    assert kube.workers["job-0-0"]["status"]["heartbeat"] in (120, 121)


async def test_it_never_gives_up_and_tries_at_most_three_seconds_apart() -> None:
    async with kept() as (kube, record):
        kube.away = True
        record.want(LEAVE)
        before = len(kube.times)
        await asyncio.sleep(120)
        tries = kube.times[before:]
        kube.away = False
        async with asyncio.timeout(3.1):
            await record.written()
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert max(gaps) <= 3.001
    assert len(tries) >= 40
    assert kube.request("job-0-0") == {"type": "Leave", "cause": "AgentLost"}


async def test_a_deleted_record_is_created_again_with_what_it_asked() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.want(JOIN)
        await record.written()
        await asyncio.sleep(6)
        kube.workers.clear()
        await asyncio.sleep(6)
        assert kube.workers["job-0-0"]["spec"]["id"] == ME.id
        assert kube.request("job-0-0") == {"type": "Join", "after": 3, "cause": "Started"}
        await asyncio.sleep(6)
    assert kube.workers["job-0-0"]["status"]["heartbeat"] >= 2  # went on, not from the start


async def test_a_record_that_somebody_else_claimed_is_claimed_back() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.want(JOIN)
        await record.written()
        kube.workers["job-0-0"] = left_behind()
        record.want(LEAVE)
        await record.written()
    assert kube.workers["job-0-0"]["spec"]["id"] == ME.id
    assert kube.request("job-0-0") == {"type": "Leave", "cause": "AgentLost"}


STRIPPED = [{"labels": {"elasticjob.io/job": None}}, {"labels": {"elasticjob.io/index": "7"}}, {"ownerReferences": []}]


async def test_a_record_that_is_not_kept_as_it_was_written_is_a_trouble_as_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a webhook strips its labels: it is tried again, but not without a pause."""
    kube = FaultyKube()
    record = record_of(kube)

    async def stripped(_: str, body: Json) -> Json:
        return kube.patch("job-0-0", body | {"metadata": body["metadata"] | {"labels": None}})

    async with running(record):
        await record.written()
        monkeypatch.setattr(kube, "patch_worker", stripped)
        kube.patch("job-0-0", {"metadata": {"labels": None}})
        before = kube.count("get")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                record.want(JOIN)
                await record.written()
        assert 20 <= kube.count("get") - before <= 30
        assert "ElasticWorker job-0-0 is not kept as it was written" in caplog.text
        monkeypatch.undo()
        async with asyncio.timeout(4):
            await record.written()


async def test_metrics_that_somebody_else_wrote_are_cleared_too() -> None:
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.say(progress=ScriptProgress(1, 10, {"loss": 0.5}))
        await asyncio.sleep(5.1)
        kube.patch("job-0-0", {"status": {"metrics": {"foreign": 1.0}}})
        record.say(progress=ScriptProgress(2, 10, {"loss": 0.25}))
        await asyncio.sleep(6)
        assert kube.workers["job-0-0"]["status"]["metrics"] == {"loss": 0.25}


@pytest.mark.parametrize("policy", [False, True], ids=["taken as it is", "refused by the admission policy"])
@pytest.mark.parametrize("change", STRIPPED, ids=["job", "index", "owner"])
async def test_what_somebody_takes_from_its_metadata_is_put_back(change: Json, policy: bool) -> None:
    """The operator finds a worker's record by its labels and believes it by its owner."""
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.want(JOIN)
        await record.written()
        before = deepcopy(kube.workers["job-0-0"])
        kube.patch("job-0-0", {"metadata": change})
        if policy:
            kube.fail["status"] = [Denied("the API server answered 403: metadata", 403)]
        await asyncio.sleep(15)
        after = kube.workers["job-0-0"]
        assert {key: after["metadata"][key] for key in ("labels", "ownerReferences")} == {
            key: before["metadata"][key] for key in ("labels", "ownerReferences")
        }
        assert after["spec"] == before["spec"]
        assert record.established


async def test_a_refusal_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kube = FaultyKube()
    kube.fail["get"] = [Denied("the API server answered 403: elasticworkers is forbidden", 403)] * 5
    failures: list[ApiError] = []
    record = WorkerRecord(kube, ME, lambda _, failure: failures.append(failure))
    async with running(record):
        await record.written()
    assert len(failures) == 5
    assert kube.times[5] == pytest.approx(15, abs=0.1)  # three seconds apart
    told = [entry.message for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert told == ["cannot write ElasticWorker job-0-0: the API server answered 403: elasticworkers is forbidden"]
    assert "ElasticWorker job-0-0 is written again" in caplog.text


async def test_a_record_that_stays_missing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    kube = FaultyKube()
    kube.fail["create"] = [NotFound("the API server answered 404: no such kind")] * 9
    async with running(record_of(kube)):
        await asyncio.sleep(20)
    assert [entry.message for entry in caplog.records] == [
        "cannot write ElasticWorker job-0-0: the API server answered 404: no such kind; see that the CRD "
        "elasticworkers.elasticjob.io is there, and that of this version of the operator"
    ]


async def test_requests_that_follow_each_other_do_not_put_the_report_off_for_ever() -> None:
    """Rounds that break again and again are others' doing; each request is a sign of life, but no report."""
    kube = FaultyKube()
    record = record_of(kube)
    async with running(record):
        record.say(progress=ScriptProgress(step=7))
        for second in range(30):
            record.want(LEAVE if second % 2 else JOIN)
            await asyncio.sleep(1)
    times = [at for (operation, _), at in zip(kube.calls, kube.times, strict=True) if operation == "status"]
    assert len(times) >= 2
    assert max(later - earlier for earlier, later in itertools.pairwise([0.0, *times, 30.0])) <= 10.1  # two heartbeats
