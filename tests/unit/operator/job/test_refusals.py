# SPDX-License-Identifier: Apache-2.0
"""Pods that the cluster refuses: when they are tried again, what is told, and what is no refusal."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.blocker_reasons import Reason
from elasticjob.kube.errors import ApiError, Busy, Forbidden, Invalid, Unavailable, error_of
from elasticjob_operator.actions import template_check
from elasticjob_operator.actions.slots import Slots
from elasticjob_operator.actions.template_check import TemplateCheck
from elasticjob_operator.actions.worker_pods import GOING_SECONDS, WorkerPods
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.job.outcome import Done, LookAgain, Outcome, Retry
from elasticjob_operator.job.refusal_messages import PodRefusal as Told
from elasticjob_operator.job.refusal_messages import refused, without_access
from elasticjob_operator.job.refusals import RETRY, Answer, Refusals
from elasticjob_operator.objects.admitted import Admission
from elasticjob_operator.objects.pods import SidecarImage
from simulation.validity import Refusal
from support.operator_objects import Object, job, pod, sidecar
from support.recording_server import Announcements, RecordingServer
from support.statuses import FORMED, report

IMAGE = SidecarImage("sidecar:1", "IfNotPresent")
LATE = Refusal(500, "Timeout", "no time left", after=60)
FULL = refused("exceeded quota: full")
TAKEN = Told("there is a pod", Reason.NAME_TAKEN)
MADE, NO = Answer(made=True), Answer(refusal=FULL)


def pod_keys(*indices: int) -> list[tuple[int, int]]:
    return [(index, 0) for index in indices]


def refusal(status: int, message: str) -> Refusal:
    return Refusal(status, "", message)


class TestRefusals:
    def answered(self, refusals: Refusals, wanted: Iterable[int], answer: Answer, now: float) -> Done | Retry:
        due = refusals.due(pod_keys(*wanted), now)
        return refusals.note(dict.fromkeys(due, answer), now)

    def test_the_next_try_is_later_each_time_up_to_some_minutes(self) -> None:
        refusals, now, waits = Refusals(), 0.0, []
        for _ in range(7):
            wait = self.answered(refusals, [0], NO, now)
            assert isinstance(wait, Retry)
            waits.append(wait.seconds)
            assert refusals.due(pod_keys(0), now + wait.seconds - 0.1) == []
            now += wait.seconds
        assert waits == [10, 20, 40, 80, 160, 160, 160]

    def test_of_many_that_were_refused_one_is_tried_until_it_is_made(self) -> None:
        refusals = Refusals()
        self.answered(refusals, range(100), NO, 0)
        tried = [refusals.due(pod_keys(*range(100)), 10)]
        self.answered(refusals, range(100), NO, 10)
        tried.append(refusals.due(pod_keys(*range(100)), 30))
        assert [len(one) for one in tried] == [1, 1]
        assert tried[0] != tried[1]  # in turn: one may be refused for a reason of its own
        assert self.answered(refusals, range(100), MADE, 30) == Retry(0)
        assert len(refusals.due(pod_keys(*range(1, 100)), 30)) == 99

    def test_a_place_that_was_not_refused_does_not_wait_for_those_that_were(self) -> None:
        refusals = Refusals()
        self.answered(refusals, [0, 1], NO, 0)
        assert refusals.due(pod_keys(0, 1, 2), 1) == pod_keys(2)

    def test_when_a_pod_is_gone_it_is_tried_at_once_and_then_soon(self) -> None:
        refusals, old = Refusals(), frozenset({"digits-0-0", "digits-1-0"})
        for now in (0, 10, 30):
            assert refusals.due(pod_keys(1), now, old) == pod_keys(1)
            refusals.note({(1, 0): NO}, now)
        assert refusals.due(pod_keys(1), 31, old) == []
        assert refusals.due(pod_keys(1), 32, old - {"digits-1-0"}) == pod_keys(1)
        again = refusals.note({(1, 0): NO}, 32)
        assert isinstance(again, Retry)
        assert again.seconds < 5, "the quota counts it a moment later"
        assert refusals.due(pod_keys(1), 32.1, old - {"digits-1-0"}) == []

    def test_what_is_not_wanted_any_more_is_not_told(self) -> None:
        refusals = Refusals()
        self.answered(refusals, [0, 3], NO, 0)
        assert refusals.first == (0, FULL)
        refusals.due(pod_keys(3), 1)
        assert refusals.first == (3, FULL)
        refusals.due([], 1)
        assert refusals.first is None

    def test_a_name_that_is_taken_is_tried_each_time_and_told_if_there_are_words_for_it(self) -> None:
        refusals = Refusals()
        assert self.answered(refusals, [0], Answer(taken=True), 0) == Retry(RETRY.first)
        assert refusals.first is None
        self.answered(refusals, [0], Answer(taken=True, refusal=TAKEN), 1)
        assert refusals.first == (0, TAKEN)
        assert refusals.due(pod_keys(0), 1) == pod_keys(0)
        assert self.answered(refusals, [0], MADE, 1) == Done()
        assert refusals.first is None


@pytest.mark.looptime
class TestWorkerPods:
    def pods(self, refusal: Refusal | None = None) -> WorkerPods:
        self.server, self.announced = RecordingServer(), Announcements()
        self.server.objects["serviceaccounts/digits-worker"] = {}
        if refusal:
            self.server.refuses["POST pods"] = refusal
        cache = Cache()
        cache.note_job(job())
        assert cache.view(Key("ml", "digits")).job
        return WorkerPods(self.server.client(), cache, cast(Any, self.announced), IMAGE, Slots(4, 4))

    @property
    def asked(self) -> list[str]:
        return [call.body["metadata"]["name"] for call in self.server.calls if call.method == "POST"]

    async def create(self, pods: WorkerPods, *indices: int, **spec: Any) -> Outcome:
        made = report(FORMED, spec=spec)
        return await pods.create(made, pods.due(made, pod_keys(*indices)))

    @pytest.mark.parametrize(
        ("refused", "sentence"),
        [
            (refusal(403, 'pods "digits-0-0" is forbidden: exceeded quota: full'), "exceeded quota: full"),
            (refusal(422, 'Pod "digits-0-0" is invalid: spec.x: too large'), "spec.x: too large"),
            (refusal(500, "Internal error occurred: failed calling webhook"), "failed calling webhook"),
            (LATE, "the API server did not answer within 15 s, as with a webhook that is slow"),
        ],
    )
    async def test_a_refusal_is_told_once_and_at_once(self, refused: Refusal, sentence: str) -> None:
        pods = self.pods(refused)
        assert await self.create(pods, 0, 1) == LookAgain(0.0)  # the status is to say so
        assert await self.create(pods, 0, 1) == Retry(pytest.approx(10, abs=0.1))
        assert pods.refusal is not None
        assert pods.refusal.why.endswith(sentence)
        await asyncio.sleep(11)
        await self.create(pods, 0, 1)
        assert self.asked == ["digits-0-0", "digits-1-0", "digits-0-0"]
        assert self.announced == [f"Warning CreateFailed: worker 0: {pods.refusal.why}"]

    async def test_what_is_made_again_is_forgotten(self) -> None:
        pods = self.pods(refusal(403, "exceeded quota"))
        await self.create(pods, 0)
        self.server.refuses.clear()
        await asyncio.sleep(11)
        assert await self.create(pods, 0) == LookAgain(0.0)
        assert pods.refusal is None

    @pytest.mark.parametrize("ends", [False, True])
    async def test_when_a_pod_that_was_ending_has_gone_or_ended_the_next_is_tried_at_once(self, ends: bool) -> None:
        pods = self.pods(refusal(403, "exceeded quota"))
        old = pod(1, phase="Running")
        old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pods._cache.note_pod(old)
        for _ in range(2):
            await self.create(pods, 0)
        assert len(self.asked) == 1
        pods._cache.note_pod(pod(1, phase="Failed") if ends else old, deleted=not ends)
        await self.create(pods, 0)
        assert len(self.asked) == 2

    async def test_another_template_is_tried_at_once(self) -> None:
        pods = self.pods(refusal(403, "exceeded quota"))
        await self.create(pods, 0)
        await self.create(pods, 0, nprocPerNode=2)
        assert len(self.asked) == 2

    async def test_a_server_that_is_busy_refuses_nothing(self) -> None:
        pods = self.pods(refusal(429, "too many requests"))
        with pytest.raises(Busy):
            await self.create(pods, 0)
        assert pods.refusal is None

    @pytest.mark.parametrize(
        ("changes", "words", "taken"),
        [
            ({"ownerReferences": []}, "", [True]),
            ({"ownerReferences": [], "labels": {}}, "", [True]),
            ({"ownerReferences": [{"uid": "another"}]}, "is not of this job: if it is there in 60 s", [False, True]),
            ({"labels": {"elasticjob.io/job": "other"}}, "is not of this job: if it is there in 60 s", [False, True]),
            ({"ownerReferences": [], "deletionTimestamp": "2026-01-01T00:00:00Z"}, "", [False, True]),
            ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "", [False, False]),
            ({}, "", [False, False]),
        ],
        ids=["left behind", "no label", "another owner", "another label", "on its way out", "ours, going", "ours"],
    )
    async def test_a_name_that_another_pod_has_is_waited_for_as_long_as_that_may_go(
        self, changes: Object, words: str, taken: list[bool]
    ) -> None:
        pods = self.pods()
        other = pod()
        other["metadata"] |= changes
        self.server.objects["pods/digits-0-0"] = other
        seen = []
        for _ in taken:
            again = await self.create(pods, 0)
            seen.append(pods.taken == {(0, 0)})
            assert not seen[-1] or again == LookAgain(0.0), "the status is to have another number at once"
            await asyncio.sleep(GOING_SECONDS)
        assert seen == taken
        assert [(words in one, "digits-0-0" in one) for one in self.announced] == ([(True, True)] if words else [])

    async def test_only_the_names_of_pods_that_are_wanted_are_remembered(self) -> None:
        pods = self.pods()
        for index, changes in enumerate(({"ownerReferences": []}, {"ownerReferences": [{"uid": "another"}]})):
            for number in range(2):
                other = pod(index, number)
                other["metadata"] |= changes
                self.server.objects[f"pods/digits-{index}-{number}"] = other
        await self.create(pods, 0, 1)
        assert (pods.taken, list(pods._in_the_way)) == ({(0, 0)}, [(0, 0), (1, 0)])
        made = report(FORMED)
        await pods.create(made, pods.due(made, [(0, 1), (1, 0)]))
        assert (pods.taken, list(pods._in_the_way)) == ({(0, 1)}, [(1, 0), (0, 1)]), "another number since"
        await asyncio.sleep(GOING_SECONDS)
        await self.create(pods, 1)
        assert (pods.taken, list(pods._in_the_way)) == ({(1, 0)}, [(1, 0)]), "it has been there for that long"
        await self.create(pods)
        assert (pods.taken, pods._in_the_way) == (frozenset(), {})

    async def test_a_pod_without_the_sidecar_of_the_job_is_not_ours_whatever_it_claims(self) -> None:
        pods, other = self.pods(), pod()
        other["spec"] = {"initContainers": [sidecar("another job's")]}
        self.server.objects["pods/digits-0-0"] = other
        await self.create(pods, 0)
        assert "is not of this job" in self.announced[0]

    async def test_a_pod_whose_quota_wants_other_nodes_than_the_template_is_not_made(self) -> None:
        pods, made = self.pods(), report(FORMED)
        given = {(0, 0): Admission("digits-0", problem="they differ")}
        await pods.create(made, pods.due(made, pod_keys(0)), admissions=given)
        assert self.announced == ["Warning CreateFailed: worker 0: they differ"]
        assert self.asked == []

    async def test_a_conflict_over_something_else_is_no_name(self) -> None:
        pods = self.pods(refusal(409, "Operation cannot be fulfilled on resourcequotas"))
        assert await self.create(pods, 0) == Retry(RETRY.first)
        assert pods.refusal is None


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, 'admission webhook "w.example.com" denied the request: no', Forbidden),
        (418, 'admission webhook "w.example.com" denied the request without explanation', Forbidden),
        (422, "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", Forbidden),
        (422, 'Pod "a" is invalid: spec.containers: Required value', Invalid),
        (500, 'Internal error occurred: failed calling webhook "w.example.com"', Unavailable),
        (503, "apiserver is shutting down", Busy),
    ],
)
def test_what_an_admission_plugin_denies_is_forbidden_whatever_its_status(
    status: int, message: str, kind: type[ApiError]
) -> None:
    assert type(error_of(status, json.dumps({"message": message}).encode())) is kind


@pytest.mark.looptime
async def test_only_its_form_speaks_against_a_template(caplog: pytest.LogCaptureFixture) -> None:
    server, found = RecordingServer(), []
    for answer in (refusal(422, "no containers"), refusal(403, "no right"), refusal(500, "a webhook"), LATE):
        server.refuses["POST podtemplates"] = answer
        found.append(await server.client().try_template("ml", {}))
    assert found == ["no containers", None, None, None]
    assert "no right" in caplog.text
    assert "could not be tried: POST /api/v1/namespaces/ml/podtemplates: the API server did not answer" in caplog.text
    server.refuses["POST podtemplates"] = refusal(429, "later")
    with pytest.raises(Busy):
        await server.client().try_template("ml", {})


async def told_of_its_template(server: RecordingServer) -> tuple[str | None, list[str]]:
    events = Announcements()
    check = TemplateCheck(server.client(), cast(Any, events), IMAGE)
    await check.check(job(), ElasticJobSpec.parse(job()["spec"]), ElasticJobStatus())
    return check.problem, events


async def test_a_template_that_cannot_be_rendered_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any, **__: Any) -> Object:
        raise KeyError("spec")

    monkeypatch.setattr(template_check, "render_pod", breaks)
    problem, events = await told_of_its_template(RecordingServer())
    assert events == [f"Warning TemplateInvalid: {problem}"]
    assert problem == "spec.template cannot be made into a pod: KeyError: 'spec'"


async def test_what_the_form_is_wrong_in_is_said_without_the_name_of_what_was_tried() -> None:
    server = RecordingServer()
    why = 'PodTemplate "tried" is invalid: template.spec.containers: Required value'
    server.refuses["POST podtemplates"] = refusal(422, why)
    problem, _ = await told_of_its_template(server)
    assert problem == "spec.template is not valid: template.spec.containers: Required value"


RIGHTS = 'User "system:serviceaccount:ops:operator" cannot create resource "pods" in API group "" in the namespace "ml"'


@pytest.mark.parametrize(
    ("told", "reason", "object"),
    [
        (refused("exceeded quota: full, requested: pods=1"), Reason.QUOTA_EXCEEDED, "ResourceQuota/full"),
        (refused("failed quota: full: must specify limits.cpu"), Reason.QUOTA_EXCEEDED, "ResourceQuota/full"),
        (refused(RIGHTS), Reason.OPERATOR_WITHOUT_RIGHTS, ""),
        (refused('failed calling webhook "w.example.com"'), Reason.ADMISSION_REFUSED, ""),
        (without_access("the Role r exists and is not this job's", "Role/r"), Reason.ACCESS_REFUSED, "Role/r"),
        (
            without_access("the Role r cannot be had: exceeded quota: few", "Role/r"),
            Reason.ACCESS_REFUSED,
            "Role/r",
        ),
        (without_access(f"the Role r cannot be had: {RIGHTS}", "Role/r"), Reason.OPERATOR_WITHOUT_RIGHTS, ""),
    ],
)
def test_a_refusal_has_a_word_and_the_object_at_fault(told: Told, reason: Reason, object: str) -> None:
    assert (told.reason, told.object) == (reason, object)
