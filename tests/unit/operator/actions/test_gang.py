# SPDX-License-Identifier: Apache-2.0
"""The Workloads of a gang: made, given back, and what is said where there is no Kueue. Over a stand-in for it."""

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.kube.errors import NotFound
from elasticjob.reading import Pod
from elasticjob.rendezvous import Clocks, PodState, State, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import Outcome, RendezvousPhase
from elasticjob_operator.actions import gang as gang_module
from elasticjob_operator.actions import leftovers
from elasticjob_operator.actions.gang import CHANGED_SECONDS, HELD_SECONDS, REFUSED_SECONDS, WAITING_SECONDS, Gang
from elasticjob_operator.actions.leftovers import LOOK_SECONDS, LeftoverWorkloads
from elasticjob_operator.cluster import workloads as workloads_module
from elasticjob_operator.cluster.cache import Key
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.cluster.workloads import Workloads
from elasticjob_operator.job.outcome import Done, LookAgain
from elasticjob_operator.job.quota import UNLIMITED
from elasticjob_operator.objects.admitted import Admission
from elasticjob_operator.objects.pods import SidecarImage
from simulation.calls import Call
from simulation.validity import Refusal
from support.operator_objects import JOB_UID, Object, job, pod
from support.recording_server import Announcements, RecordingServer
from support.statuses import report

QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
NEW = State(clocks=Clocks(opened=0, formed=0))
ENDED = replace(NEW, phase=RendezvousPhase.CLOSED, outcome=Outcome.COMPLETE)
NO_RIGHT = 'workloads.kueue.x-k8s.io is forbidden: User "operator" cannot list resource "workloads"'
NO_ACCESS = Refusal(403, "Forbidden", NO_RIGHT)
NO_KUEUE = Refusal(404, "NotFound", "404 page not found")
AWAY = Refusal(503, "ServiceUnavailable", "the webhook does not answer")
UNANSWERED = "GET /apis/kueue.x-k8s.io/v1beta2/workloads"
DENIED = 'admission webhook "x" denied the request: no'


class Kueue(RecordingServer):
    """The API server of a cluster with Kueue, and the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.events = 100.0, Announcements()
        self.of_cluster["workloadpriorityclasses/low"] = {"value": 10}

    @property
    def workloads(self) -> dict[str, Object]:
        return {key.rpartition("/")[2]: body for key, body in self.objects.items()}

    @property
    def listed(self) -> int:
        return self.asked.count("GET workloads")

    def admit(self, name: str, count: int, flavor: str = "", **others: str) -> None:
        conditions = {"QuotaReserved": "True", "Admitted": "True", **others}
        told = [{"type": type, "status": status, "message": f"about {type}"} for type, status in conditions.items()]
        sets = [{"name": "workers", "count": count} | ({"flavors": {"cpu": flavor, "pods": flavor}} if flavor else {})]
        status = {"conditions": told, "admission": {"podSetAssignments": sets}}
        self.objects[f"workloads/{name}"] |= {"status": status}

    def took(self) -> list[str]:
        """The writes since it was asked before, as "POST digits-0 4/2" for four workers, of which two must be had."""
        calls, self.calls = self.calls, []
        return [_words(call) for call in calls if call.method != "GET"]


def _words(call: Call) -> str:
    if call.method == "DELETE":
        return f"DELETE {call.name}"
    if call.sub == "status":
        return f"PATCH {call.name} {call.body['status']['reclaimablePods'][0]['count']}"
    (asked,) = call.body["spec"]["podSets"]
    return f"{call.method} {call.body['metadata'].get('name', call.name)} {asked['count']}/{asked.get('minCount')}"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> Kueue:
    made = Kueue()
    clock = SimpleNamespace(monotonic=lambda: made.now)
    monkeypatch.setattr(gang_module, "time", clock)
    monkeypatch.setattr(workloads_module, "time", clock)
    return made


class Life:
    """Steps of one job, as the reconciler takes them."""

    def __init__(
        self,
        server: Kueue,
        labels: Object | None = None,
        workloads: Workloads | None = None,
        *,
        are_left: bool = False,
        **spec: Any,
    ) -> None:
        self.server = server
        self.body = job(**{"replicas": 4, "minReplicas": 2, "quotaAdmission": "Gang", **spec})
        self.body["metadata"]["labels"] = {QUEUE: "gpus", PRIORITY: "low"} if labels is None else labels
        kube, announcer = server.client(), cast(Any, server.events)
        workloads = workloads or Workloads(kube, by_namespace=False)
        self.gang = Gang(kube, workloads, announcer, SidecarImage("s", "Never"), are_left=are_left)
        self.before = ElasticJobStatus()

    def admissions(self, pods: Iterable[Pod], pod_keys: list[PodKey]) -> dict[PodKey, Admission]:
        return self.gang.admissions(pods, self.body, ElasticJobSpec.parse(self.body["spec"]), pod_keys)

    async def step(
        self, pods: Iterable[Worker] = (), state: State = NEW, problem: str | None = None, after: float = 30
    ) -> Done | LookAgain:
        self.server.now += after
        spec, workers = ElasticJobSpec.parse(self.body["spec"]), tuple(pods)
        await self.gang.look(self.body, spec)
        self.allowance = self.gang.allowance(spec, state, workers)
        facts = [self.allowance]
        made = report(state, self.before, job=self.body, workers=workers, problem=problem, facts=facts)
        return await self.gang.keep(made)


def pod_in(workload: str, index: int, *, going: bool = False) -> Pod:
    """One that takes quota of that Workload."""
    body = pod(index, phase="Running")
    body["metadata"] |= {"deletionTimestamp": "2026-01-02T03:04:05Z"} if going else {}
    body["metadata"]["annotations"] = {"elasticjob.io/workload": workload}
    return Pod.read(body)


def running(count: int) -> list[Worker]:
    return [Worker(index=index, pod=PodState.RUNNING) for index in range(count)]


async def test_from_the_first_workload_to_the_last_worker(server: Kueue) -> None:
    life = Life(server)
    assert await life.step() == LookAgain(CHANGED_SECONDS)
    assert server.took() == ["POST digits-0 4/2"]
    assert life.allowance.suspends
    body = server.workloads["digits-0"]
    assert body["spec"]["priority"] == 10
    assert body["metadata"]["ownerReferences"][0]["uid"] == JOB_UID

    assert await life.step() == LookAgain(WAITING_SECONDS)
    assert life.allowance.suspends
    server.admit("digits-0", 3)
    assert await life.step() == LookAgain(CHANGED_SECONDS)
    assert life.allowance.replicas == 3
    assert server.took() == ["POST digits-1 1/None"]
    server.admit("digits-1", 1)
    assert await life.step(running(3)) == LookAgain(HELD_SECONDS)
    assert (life.allowance.replicas, life.allowance.message) == (4, "")
    assert server.took() == []


async def test_an_operator_that_knows_nothing_goes_on_from_what_is_there(server: Kueue) -> None:
    await Life(server).step()
    server.admit("digits-0", 4)
    server.took()
    life = Life(server)
    assert await life.step() == LookAgain(HELD_SECONDS)
    assert (life.allowance.replicas, server.took()) == (4, [])


async def test_quota_goes_back_when_pods_have_gone_and_all_of_it_at_the_end(server: Kueue) -> None:
    life = Life(server)
    await life.step()
    server.admit("digits-0", 4)
    life.body["spec"]["replicas"] = 3
    server.took()
    await life.step(running(4))
    assert server.took() == []
    await life.step(running(3))
    assert server.took() == ["PATCH digits-0 1"]
    await life.step(running(3))
    assert server.took() == []
    await life.step(running(3), ENDED)
    assert server.took() == []
    assert await life.step([], ENDED) == LookAgain(CHANGED_SECONDS)
    assert server.took() == ["DELETE digits-0"]
    assert await life.step([], ENDED) == Done()
    listed = server.listed
    assert await life.step([], ENDED) == Done()
    assert server.listed == listed, "nothing of it changes any more"


async def test_the_workloads_of_a_job_that_is_admitted_by_pods_by_now_are_deleted(server: Kueue) -> None:
    life = Life(server)
    for _ in range(2):
        await life.step()
    server.took()
    life.body["spec"]["quotaAdmission"] = "Pods"
    await life.step()
    assert (server.took(), life.allowance) == (["DELETE digits-0"], UNLIMITED)
    assert await life.step() == Done()


async def test_a_later_operator_deletes_those_of_a_job_that_is_admitted_by_pods_by_now(server: Kueue) -> None:
    await Life(server).step()
    server.admit("digits-0", 4)
    server.took()
    server.network.refusing = True
    life = Life(server, quotaAdmission="Pods")
    assert await life.step(running(2)) == LookAgain(REFUSED_SECONDS)
    server.network.refusing = False
    await life.step(running(2))
    assert (server.took(), life.allowance) == (["DELETE digits-0"], UNLIMITED), "its pods have quota of their own"
    await life.step(running(2))
    server.calls.clear()
    assert await life.step(running(2)) == Done()
    assert server.listed == 0


async def test_while_it_is_suspended_they_go_when_its_pods_have(server: Kueue) -> None:
    await Life(server).step()
    server.admit("digits-0", 4)
    server.took()
    life = Life(server, quotaAdmission="Pods", suspend=True)
    await life.step(running(4))
    assert server.took() == []
    await life.step()
    assert server.took() == ["DELETE digits-0"]


async def test_of_a_job_without_a_queue_nothing_is_looked_for(server: Kueue) -> None:
    assert await Life(server, {}, quotaAdmission="Pods").step() == Done()
    assert server.listed == 0


@pytest.mark.parametrize("error", [NO_KUEUE, NO_ACCESS])
async def test_where_there_can_be_none_jobs_that_are_admitted_by_pods_look_once_and_together(
    server: Kueue, error: Refusal
) -> None:
    server.refuses["GET workloads"] = error
    workloads = Workloads(server.client(), by_namespace=False)
    lives = [Life(server, workloads=workloads, quotaAdmission="Pods") for _ in range(3)]
    for _ in range(2):
        for life in lives:
            assert await life.step(after=1) == Done()
    assert server.listed == 1
    assert life.allowance == UNLIMITED


async def test_a_change_of_size_changes_what_waits(server: Kueue) -> None:
    life = Life(server)
    await life.step()
    server.took()
    life.body["spec"]["replicas"] = 3
    assert await life.step() == LookAgain(CHANGED_SECONDS)
    life.body["spec"]["replicas"] = 2
    await life.step()
    await life.step()
    assert server.took() == ["PATCH digits-0 3/2", "PATCH digits-0 2/None"]
    life.body["spec"]["replicas"] = 4
    server.refuses["PATCH workloads"] = Refusal(404, "NotFound", "digits-0 not found")
    await life.step()
    assert "the cluster has no Kueue" not in life.allowance.message


async def test_what_kueue_refuses_is_asked_for_again_in_growing_steps(server: Kueue) -> None:
    life = Life(server)
    await life.step()
    for seconds in (10, 20, 40):
        assert server.took() == ["POST digits-0 4/2"]
        server.admit("digits-0", 4, Admitted="False", Evicted="True")
        await life.step(after=1)
        assert life.allowance.message.endswith("in the queue gpus: about Evicted")
        assert server.took() == ["DELETE digits-0"]
        assert await life.step(after=seconds - 1) == LookAgain(WAITING_SECONDS)
        assert "; Kueue has refused the last Workload: about Evicted; it asks again" in life.allowance.message
        assert server.took() == []
        await life.step(after=1)
    await life.step()
    assert life.allowance.message.endswith("; Kueue has refused the last Workload: about Evicted"), "it has asked"
    assert [event.partition(":")[0] for event in server.events] == ["QuotaPending", "Warning QuotaPending"]
    assert "about Evicted" in server.events[1]
    server.admit("digits-0", 4, Admitted="False", Evicted="True")
    await life.step(after=WAITING_SECONDS)
    assert [event.partition(":")[0] for event in server.events[2:]] == ["Warning QuotaPending"], "it had waited"
    await life.step(after=80)
    server.admit("digits-0", 4)
    await life.step(after=WAITING_SECONDS)
    server.took()
    server.objects.clear()
    await life.step()
    assert server.took() == ["POST digits-0 4/2"], "what was admitted since is lost: no refusal"


async def test_it_is_announced_when_quota_is_waited_for_and_when_it_is_lost(server: Kueue) -> None:
    life = Life(server)
    for _ in range(3):
        await life.step()
    assert server.events == ["QuotaPending: 4 workers wait for quota (at least 2 must have it)"]
    server.admit("digits-0", 4)
    await life.step()
    server.admit("digits-0", 4, Evicted="True")
    for _ in range(3):
        await life.step(running(4))
    why = "its quota is gone: about Evicted; it queues again when none of its pods is left"
    assert server.events[1:] == [f"QuotaLost: {why}"]


async def test_an_operator_that_comes_later_does_not_announce_it_again(server: Kueue) -> None:
    life = Life(server)
    life.before = ElasticJobStatus(reason="QuotaPending")
    await life.step()
    assert server.events == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NO_KUEUE, "spec.quotaAdmission is Gang, and the cluster has no Kueue"),
        (NO_ACCESS, "the operator may not see to it: set the chart's value kueue.gang (workloads."),
        (None, f"Kueue's Workloads: {UNANSWERED}: the API server does not answer: [Errno 111] Connection refused"),
    ],
)
async def test_workloads_that_cannot_be_seen(server: Kueue, error: Refusal | None, told: str) -> None:
    server.network.refusing = error is None
    if error:
        server.refuses["GET workloads"] = error
    life = Life(server)
    assert await life.step() == LookAgain(REFUSED_SECONDS)
    assert life.allowance.suspends
    assert told in life.allowance.message
    assert server.events[0].startswith("Warning QuotaPending: ")
    server.refuses.clear()
    server.network.refusing = False
    await life.step()
    assert server.took() == ["POST digits-0 4/2"]


async def test_a_group_that_trains_goes_on_while_they_cannot_be_seen(server: Kueue) -> None:
    life = Life(server)
    await life.step()
    server.admit("digits-0", 3)
    await life.step(running(3))
    server.took()
    server.refuses["GET workloads"] = Refusal(500, "InternalError", "conversion webhook failed")
    await life.step(running(3))
    assert (life.allowance.replicas, life.allowance.suspends) == (3, False)
    assert server.took() == []
    later = Life(server)
    await later.step(running(3))
    assert (later.allowance.replicas, later.allowance.suspends) == (3, False)
    assert "conversion webhook failed" in later.allowance.message


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refusal(409, "AlreadyExists", ""), "there is a Workload digits-0 that is not this job's: delete it, or wait"),
        (Refusal(422, "Invalid", "spec.podSets: no"), "Kueue's Workloads: spec.podSets: no"),
        (Refusal(403, "Forbidden", DENIED), "Kueue's Workloads: admission webhook"),
    ],
)
async def test_a_workload_that_cannot_be_made_is_tried_again_after_a_while(
    server: Kueue, error: Refusal, told: str
) -> None:
    server.refuses["POST workloads"] = error
    life = Life(server)
    assert await life.step() == LookAgain(REFUSED_SECONDS)
    server.took()
    server.refuses.clear()
    assert await life.step(after=1) == LookAgain(REFUSED_SECONDS - 1)
    assert told in life.allowance.message
    assert server.took() == []
    await life.step(after=REFUSED_SECONDS)
    assert server.took() == ["POST digits-0 4/2"]
    await life.step()
    assert told not in life.allowance.message


async def test_a_priority_class_that_is_not_there_is_named(server: Kueue) -> None:
    life = Life(server, {QUEUE: "gpus", PRIORITY: "high"})
    await life.step()
    await life.step()
    assert "there is no WorkloadPriorityClass high: make it, or change the job's label" in life.allowance.message
    assert server.took() == []
    without = Life(server, {QUEUE: "gpus"})
    await without.step()
    assert "priority" not in server.workloads["digits-0"]["spec"]


@pytest.mark.parametrize("labelled", [True, False])
async def test_the_pods_class_counts_where_the_job_names_none_of_kueues(server: Kueue, labelled: bool) -> None:
    server.of_cluster["priorityclasses/batch"] = {"value": 7}
    life = Life(server, {QUEUE: "gpus"} | ({PRIORITY: "low"} if labelled else {}))
    life.body["spec"]["template"]["spec"]["priorityClassName"] = "batch"
    await life.step()
    asked = server.workloads["digits-0"]["spec"]
    group, kind, name = ("kueue.x-k8s.io", "Workload", "low") if labelled else ("scheduling.k8s.io", "", "batch")
    assert asked["priority"] == (10 if labelled else 7)
    assert asked["priorityClassRef"] == {"group": group, "kind": f"{kind}PriorityClass", "name": name}
    server.took()
    await life.step()
    assert server.took() == [], "it is what is wanted"


async def test_a_class_of_pods_that_is_not_there_is_named(server: Kueue) -> None:
    life = Life(server, {QUEUE: "gpus"})
    life.body["spec"]["template"]["spec"]["priorityClassName"] = "batch"
    await life.step()
    await life.step()
    words = "there is no PriorityClass batch: make it, or change spec.template.spec.priorityClassName"
    assert words in life.allowance.message


SPOT: Object = {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}


async def test_pods_get_what_the_flavor_of_their_own_workload_says(server: Kueue) -> None:
    server.of_cluster["resourceflavors/spot"] = {"spec": SPOT}
    server.of_cluster["resourceflavors/any"] = {"spec": {}}
    life = Life(server)
    await life.step()
    server.admit("digits-0", 3, flavor="spot")
    await life.step()
    server.admit("digits-1", 1, flavor="any")
    await life.step(running(3))
    assert life.admissions([], []) == {}
    there = [pod_in("digits-0", index) for index in range(3)]
    found = life.admissions(there, [(3, 0)])
    assert found == {(3, 0): Admission("digits-1", {"labels": {}, "annotations": {}, "nodeSelector": {}})}
    found = life.admissions([*there[1:], pod_in("digits-1", 3)], [(0, 1)])
    assert found[0, 1].workload == "digits-0", "the place of who is lost"
    assert found[0, 1].words["nodeSelector"] == {"pool": "spot"}
    found = life.admissions([pod_in("digits-0", 0, going=True), *there[1:]], [(0, 1)])
    assert found[0, 1].workload == "digits-0", "who is going takes nothing any more"
    server.took()
    await life.step(running(4), after=1)
    assert "GET resourceflavors" not in server.asked, "it is known for a while"
    life.body["spec"]["quotaAdmission"] = "Pods"
    assert life.admissions([], [(0, 1)]) == {}


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (None, "the ResourceFlavor spot, by which Kueue has admitted the job, cannot be read ("),
        (NO_ACCESS, "cannot be read: set the chart's value kueue.gang ("),
    ],
)
async def test_a_flavor_that_cannot_be_read_keeps_the_pods_from_being_made(
    server: Kueue, refusal: Refusal | None, words: str
) -> None:
    if refusal:
        server.refuses["GET resourceflavors"] = refusal
    life = Life(server)
    await life.step()
    server.admit("digits-0", 4, flavor="spot")
    await life.step()
    found = life.admissions([], [(0, 0), (1, 0)])
    assert [words in one.problem for one in found.values()] == [True, True]
    server.refuses.clear()
    server.of_cluster["resourceflavors/spot"] = {"spec": SPOT}
    await life.step()
    assert not life.admissions([], [(0, 0)])[0, 0].problem


async def test_nothing_is_asked_for_pods_that_cannot_be_made(server: Kueue) -> None:
    assert await Life(server).step(problem="spec.template is not valid") == LookAgain(WAITING_SECONDS)
    assert server.took() == []


async def test_anothers_workload_of_the_jobs_label_counts_for_nothing(server: Kueue) -> None:
    await Life(server).step()
    server.admit("digits-0", 4)
    with server.objects.edited("workloads/digits-0") as workload:
        workload["metadata"]["ownerReferences"][0]["uid"] = "an earlier job's"
    life = Life(server)
    await life.step()
    assert life.allowance.suspends


def left(server: Kueue) -> Object:
    """The Workload of a job that was deleted with --cascade=orphan, and one of its pods."""
    old = pod(phase="Running")
    for key, body in (("pods/digits-0-0", old), ("workloads/digits-0", server.objects["workloads/digits-0"])):
        body["metadata"].pop("ownerReferences")
        server.objects[key] = body
    server.took()
    return old


async def test_what_an_orphaning_deletion_has_left_is_deleted_when_its_pods_have_gone(server: Kueue) -> None:
    await Life(server).step()
    key = Key("ml", "digits")
    left(server)
    for gone in (LeftoverWorkloads(server.client(), ()), LeftoverWorkloads(server.client(), ("ml",))):
        assert await gone.release(key) == LOOK_SECONDS, "a later operator finds it by itself"
        assert await gone.release(Key("ml", "another")) is None
    assert server.took() == []
    with server.objects.edited("pods/digits-0-0") as old:
        old["status"]["phase"] = "Succeeded"
    assert await gone.release(key) is None
    assert server.took() == ["DELETE digits-0"]
    server.calls.clear()
    assert await gone.release(key) is None
    assert server.listed == 0


async def test_what_could_not_be_listed_at_a_take_over_is_looked_for_again(
    server: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Life(server).step()
    left(server)
    del server.objects["pods/digits-0-0"]
    gone, key, now = LeftoverWorkloads(server.client(), ()), Key("ml", "digits"), 0.0
    monkeypatch.setattr(leftovers, "time", SimpleNamespace(monotonic=lambda: now))
    server.refuses["GET workloads"] = AWAY
    assert await gone.release(key) == LOOK_SECONDS
    del server.refuses["GET workloads"]
    now += LOOK_SECONDS
    assert await gone.release(key) is None
    assert server.took() == ["DELETE digits-0"]


async def test_what_an_orphaning_deletion_has_left_does_not_keep_a_new_job_of_the_name_from_quota(
    server: Kueue,
) -> None:
    await Life(server).step()
    left(server)
    life = Life(server)
    life.body["metadata"]["uid"] = "another"
    await life.step()
    assert "that is not this job's" in (await life.step(), life.allowance.message)[1]
    del server.objects["pods/digits-0-0"]
    await life.step()
    await life.step()
    assert [one for one in server.took() if one.startswith(("DELETE", "POST"))][-2:] == [
        "DELETE digits-0",
        "POST digits-0 4/2",
    ]


@pytest.mark.parametrize("admission", ["Gang", "Pods"])
async def test_a_job_of_the_name_that_wants_none_lets_go_of_it_when_the_pods_have_gone(
    server: Kueue, admission: str
) -> None:
    await Life(server).step()
    left(server)
    life = Life(server, suspend=True, quotaAdmission=admission)
    life.body["metadata"]["uid"] = "another"
    assert isinstance(await life.step(), LookAgain)
    del server.objects["pods/digits-0-0"]
    server.refuses["DELETE workloads"] = AWAY
    assert isinstance(await life.step(), LookAgain)
    del server.refuses["DELETE workloads"]
    assert await life.step() == Done()
    assert server.took()[-1] == "DELETE digits-0"


async def test_a_job_of_the_name_without_a_queue_lets_go_of_it_under_another_operator(server: Kueue) -> None:
    await Life(server).step()
    left(server)
    leftovers, key = LeftoverWorkloads(server.client(), ()), Key("ml", "digits")
    assert leftovers.may_be_of(key), "nobody has looked"
    await leftovers.take_over()
    assert leftovers.may_be_of(key)
    assert not leftovers.may_be_of(Key("ml", "another"))
    life = Life(server, labels={}, quotaAdmission="Pods", are_left=True)
    life.body["metadata"]["uid"] = "another"
    assert isinstance(await life.step(), LookAgain)
    assert server.took() == []
    del server.objects["pods/digits-0-0"]
    assert await life.step() == Done()
    assert server.took() == ["DELETE digits-0"]
    server.calls.clear()
    assert await life.step() == Done()
    assert server.listed == 0


@pytest.mark.parametrize("refusal", [NO_KUEUE, NO_ACCESS])
async def test_what_an_earlier_job_may_have_left_is_looked_for_once_where_it_cannot_be_seen(
    server: Kueue, refusal: Refusal
) -> None:
    server.refuses["GET workloads"] = refusal
    life = Life(server, labels={}, quotaAdmission="Pods", are_left=True)
    await life.step()
    assert await life.step() == Done()


async def test_a_workload_of_a_job_that_is_deleted_with_its_own_is_left_to_the_garbage_collector(server: Kueue) -> None:
    await Life(server).step()
    server.took()
    gone, key = LeftoverWorkloads(server.client(), ()), Key("ml", "digits")
    gone.expect(key)
    assert await gone.release(key) == LOOK_SECONDS
    server.objects.clear()
    assert await gone.release(key) is None
    gone.expect(key)
    for error in (NO_KUEUE, NO_ACCESS):
        server.refuses["GET workloads"] = error
        assert await gone.release(key) is None
    assert server.took() == []


async def test_jobs_that_look_at_about_the_same_time_share_a_listing(server: Kueue) -> None:
    await Life(server).step()
    workloads, key = Workloads(server.client(), by_namespace=False), Key("ml", "digits")
    server.calls.clear()
    for namespace in ("ml", "other"):
        found = await workloads.of(Key(namespace, "digits"), -1, 2)
        assert len(found) == (namespace == "ml")
    assert server.listed == 1
    await workloads.of(key, server.now, 2)
    assert server.listed == 2, "of then is not later than that"
    server.refuses["GET workloads"] = NO_KUEUE
    server.now += 5
    for _ in range(2):
        with pytest.raises(NotFound):
            await workloads.of(key, -1, 2)
    assert server.listed == 3, "nor is a failure asked for by each"
    by_namespace = Workloads(server.client(), by_namespace=True)
    server.refuses.clear()
    for namespace in ("ml", "other"):
        await by_namespace.of(Key(namespace, "digits"), -1, 2)
    assert server.listed == 5


async def test_a_listing_that_took_long_is_used_for_longer(server: Kueue, monkeypatch: pytest.MonkeyPatch) -> None:
    await Life(server).step()
    kube, key = server.client(), Key("ml", "digits")
    workloads, list_all = Workloads(kube, by_namespace=False), kube.workloads

    async def slowly(namespace: str | None) -> Listing[Object]:
        server.now += 1
        return await list_all(namespace)

    monkeypatch.setattr(kube, "workloads", slowly)
    server.calls.clear()
    began = server.now
    (found,) = await workloads.of(key, -1, 2)
    assert "template" not in found["spec"]["podSets"][0], "it is most of a Workload, and nobody reads it"
    server.now = began + 19.9
    await workloads.of(key, -1, 2)
    assert server.listed == 1
    await workloads.of(key, server.now - 1, 2)
    assert server.listed == 2, "what was changed since is looked for at once"
    server.now += 20.1
    await workloads.of(key, -1, 2)
    assert server.listed == 3
