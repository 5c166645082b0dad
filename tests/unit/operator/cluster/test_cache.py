# SPDX-License-Identifier: Apache-2.0
"""The cache of the watches and of the listings."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.reading import Node, Pod
from elasticjob_operator.cluster.cache import Cache, Key, RecordUpdate
from elasticjob_operator.cluster.client import Listing
from support.operator_objects import Object, job, pod, record

KEY = Key("ml", "digits")


def listed(*pods: Object) -> Listing[Pod]:
    return Listing([Pod.read(one) for one in pods], "6")


def test_an_older_form_never_replaces_a_newer_one() -> None:
    cache = Cache()
    cache.note_job(job())
    cache.note_pod(pod(0, version=9, phase="Running"))
    cache.note_pod(pod(0, version=8, phase="Pending"))
    assert cache.view(KEY).pods["digits-0-0"].phase == "Running"


def test_the_end_of_an_earlier_object_of_the_name_does_not_remove_the_new_one() -> None:
    cache = Cache()
    cache.note_job(job())
    earlier = job()
    earlier["metadata"]["uid"] = "earlier"
    cache.note_job(earlier, deleted=True)
    assert cache.view(KEY).job is not None


@pytest.mark.parametrize(
    ("manager", "is_ours"),
    [(None, True), ("elasticjob.io/elasticjob-controller", True), ("kueue.x-k8s.io/multikueue", False)],
)
def test_a_job_that_another_controller_manages_is_not_there(manager: str | None, is_ours: bool) -> None:
    cache, managed = Cache(), job(managedBy=manager)
    managed["metadata"] |= {"uid": "another", "resourceVersion": "9"}
    cache.note_job(job())  # an earlier one of its name
    cache.replace_jobs(None, Listing([managed], "9"))
    assert len(list(cache.jobs())) == is_ours
    assert (cache.view(KEY).job is not None) == is_ours


def test_a_deleted_job_does_not_come_back_with_an_answer_that_was_on_its_way() -> None:
    cache, written = Cache(), job()
    cache.note_job(job())
    cache.begin_listing()
    cache.note_job(job(), deleted=True)
    cache.replace_jobs(None, Listing([job()], "6"))
    assert cache.view(KEY).job is None
    written["metadata"]["resourceVersion"] = "8"
    cache.note_job(written)
    assert cache.view(KEY).job is None
    cache.note_job(another := job() | {"metadata": job()["metadata"] | {"uid": "another", "resourceVersion": "9"}})
    assert cache.view(KEY).job == another


def test_a_deleted_pod_does_not_come_back_with_an_answer_that_was_on_its_way() -> None:
    """The answer to its creation, which is older than its end."""
    cache = Cache()
    cache.note_pod(pod(0, version=9), deleted=True)
    cache.note_pod(pod(0, version=3))
    assert cache.view(KEY).pods == {}


def test_a_record_that_had_lost_its_label_comes_back_with_it() -> None:
    """To a watch of that label alone the one is its end, and the other its beginning, under the same uid."""
    cache = Cache()
    cache.note_worker(record(0))
    for version, deleted in ((4, True), (6, False)):
        changed = record(0)
        changed["metadata"]["resourceVersion"] = str(version)
        cache.note_worker(changed, deleted=deleted)
    assert set(cache.view(KEY).workers) == {"digits-0-0"}


def shown(version: int, *, labels: Object | None = None, **status: object) -> Object:
    """The job, with what its status says beside the phase."""
    found = job() | {"status": {"phase": "Running", **status}}
    fields = [{"manager": "elasticjob-operator", "time": f"2026-01-02T03:04:{version:02}Z"}]
    found["metadata"] |= {"resourceVersion": str(version), "managedFields": fields}
    found["metadata"] |= {} if labels is None else {"labels": labels}
    return found


@pytest.mark.parametrize(
    ("form", "only_shows"),
    [
        (shown(9, progress={"step": 7}), True),
        (shown(9), True),
        (shown(9, progress={"step": 7}, restarts=1), False),
        (shown(9, progress={"step": 7}, labels={"team": "a"}), False),
        (shown(9, progress={"step": 7}) | {"spec": {"replicas": 9}}, False),
        (shown(5, progress={"step": 4}), False),
    ],
    ids=["another step", "nothing", "a restart", "a label", "a spec", "an earlier form"],
)
def test_only_what_shows_the_progress_alone_is_noted_by_the_way(form: Object, only_shows: bool) -> None:
    cache = Cache()
    assert not cache.note_progress(form), "of a job that nobody knows yet"
    cache.note_job(shown(8, progress={"step": 5}))
    assert cache.note_progress(form) is only_shows
    known = cache.view(KEY).job
    assert known is not None
    assert known["metadata"]["resourceVersion"] == ("9" if only_shows else "8")
    assert "managedFields" not in known["metadata"]


@pytest.mark.parametrize("decides", [False, True])
def test_the_watch_repeats_a_write_whose_answer_is_known(decides: bool) -> None:
    """A decision may be the first of several, and progress is the last of them."""
    cache, written = Cache(), shown(9, progress={"step": 7}, restarts=int(decides))
    cache.note_job(shown(8, restarts=0))
    cache.note_job(written)
    assert cache.note_progress(written) is not decides
    cache.note_job(written)
    assert cache.note_progress(written) is not decides, "however often it is told"


def test_the_first_form_of_a_job_is_news() -> None:
    cache = Cache()
    cache.note_job(shown(8))
    assert not cache.note_progress(shown(8))


def reported(version: int, **status: object) -> Object:
    found = record(0) | {"status": {"heartbeat": version, **status}}
    found["metadata"]["resourceVersion"] = str(version)
    return found


@pytest.mark.parametrize(
    ("said", "news"),
    [
        ({}, RecordUpdate.REPORT),
        ({"step": 7, "total": 9, "metrics": {"loss": 1.0}}, RecordUpdate.REPORT),
        ({"stepped": 3}, RecordUpdate.OTHER),
        ({"suspects": "1/ab"}, RecordUpdate.URGENT),
        ({"ack": 1}, RecordUpdate.URGENT),
        ({"step": "many"}, RecordUpdate.URGENT),
    ],
    ids=str,
)
def test_what_is_new_in_a_record(said: Object, news: RecordUpdate) -> None:
    cache = Cache()
    assert not cache.knows_worker(reported(5))
    assert cache.note_worker(reported(6)) == (KEY, RecordUpdate.URGENT)
    assert cache.knows_worker(reported(7))
    assert cache.note_worker(reported(7, **said)) == (KEY, news)
    assert cache.view(KEY).workers["digits-0-0"].version == 7
    asks = reported(8)
    asks["metadata"]["generation"] = 2  # the API server counts each change of the spec
    assert cache.note_worker(asks) == (KEY, RecordUpdate.URGENT)


def test_a_join_is_urgent_unless_the_round_awaits_others_beside_it() -> None:
    cache = Cache()
    for index in range(3):
        cache.note_worker(asks(index, 1, type="Join", after=0))
    cache.view(KEY).awaited = 3
    assert cache.note_worker(asks(0, 2, type="Join", after=1)) == (KEY, RecordUpdate.JOIN)
    assert cache.note_worker(asks(1, 2, type="Leave", cause="PodStopping")) == (KEY, RecordUpdate.URGENT)
    suspects = asks(2, 2, type="Join", after=1)
    suspects["status"]["suspects"] = "1/ab"
    assert cache.note_worker(suspects) == (KEY, RecordUpdate.URGENT)
    assert cache.note_worker(asks(1, 3, type="Join", after=1)) == (KEY, RecordUpdate.JOIN)
    assert cache.note_worker(asks(2, 3, type="Join", after=1)) == (KEY, RecordUpdate.URGENT), "the last one"
    assert cache.note_worker(asks(0, 3, type="Join", after=2)) == (KEY, RecordUpdate.URGENT), "one more"


def asks(index: int, generation: int, **request: object) -> Object:
    found = record(index, request=request)
    found["metadata"] |= {"generation": generation, "resourceVersion": str(10 * generation)}
    return found


def test_a_suspicion_and_an_answer_are_news() -> None:
    cache = Cache()
    cache.note_worker(record(0))
    for status in ({"suspects": "1/ab"}, {"suspects": "1/ab", "ack": 1}, {"ack": 1}):
        said = record(0) | {"status": {"heartbeat": 4, **status}}
        assert cache.note_worker(said) == (KEY, RecordUpdate.URGENT)


def test_a_pod_told_once_more_asks_for_nothing() -> None:
    cache = Cache()
    cache.replace_pods(None, listed(pod(0, version=5)))
    assert cache.note_pod(pod(0, version=5)) == (KEY, False)
    assert cache.note_pod(pod(0, version=7)) == (KEY, True)
    assert cache.note_pod(pod(0, version=7), deleted=True) == (KEY, True)


def test_an_answer_that_comes_after_the_end_leaves_no_ghost() -> None:
    """A pod is made, and gone before its creation is answered."""
    cache = Cache()
    cache.note_pod(pod(0, version=7), deleted=True)
    cache.note_pod(pod(0, version=5))
    cache.note_worker(record(0), deleted=True)
    cache.note_worker(record(0))
    assert (cache.view(KEY).pods, cache.view(KEY).workers) == ({}, {})


def test_a_listing_removes_what_is_no_more() -> None:
    cache = Cache()
    cache.note_pod(pod(0, version=3))
    cache.replace_pods(None, listed(pod(1, version=5)))
    assert set(cache.view(KEY).pods) == {"digits-1-0"}


def test_what_the_watch_tells_while_a_listing_is_on_its_way_wins() -> None:
    cache = Cache()
    cache.begin_listing()
    listing = listed(pod(0, version=4), pod(1, version=5))
    cache.note_pod(pod(0, version=7), deleted=True)
    cache.note_pod(pod(1, version=8, phase="Running"))
    cache.note_pod(pod(2, version=9))
    cache.replace_pods(None, listing)
    assert set(cache.view(KEY).pods) == {"digits-1-0", "digits-2-0"}
    assert cache.view(KEY).pods["digits-1-0"].phase == "Running"


def test_who_wrote_which_field_of_a_job_is_not_kept() -> None:
    cache, body = Cache(), job()
    cache.note_job(body | {"metadata": body["metadata"] | {"managedFields": [{"manager": "kubectl"}]}})
    assert cache.view(KEY).job == body


def test_only_a_change_of_a_nodes_taints_is_news_and_to_the_jobs_with_pods_there() -> None:
    cache = Cache()
    here, there = pod(0), pod(1)
    here["spec"]["nodeName"], there["spec"]["nodeName"] = "n", "m"
    there["metadata"]["labels"]["elasticjob.io/job"] = "other"
    cache.note_pod(here)
    cache.note_pod(there)
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    assert cache.note_node(Node.read({"metadata": {"name": "n"}, "spec": {}})) == []
    assert cache.note_node(Node.read(node)) == [KEY]
    assert cache.note_node(Node.read(node)) == []
    assert [one.key for one in cache.view(KEY).nodes["n"].taints] == ["node.kubernetes.io/unschedulable"]
    assert cache.note_node(Node.read(node), deleted=True) == [KEY]
    assert "n" not in cache.view(KEY).nodes


class CountedPod(Pod):
    """A pod that counts how often it is asked for its node."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "node":
            CountedPod.looks += 1
        return super().__getattribute__(name)


def test_a_change_of_a_node_looks_at_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 20,000, and many nodes may have taints, as those with GPUs do."""
    monkeypatch.setattr("elasticjob_operator.cluster.cache.Pod", CountedPod)
    cache, jobs, pods = Cache(), 9, 3
    for number in range(jobs):
        for index in range(pods):
            cache.note_pod(on_node(f"job-{number}", index, f"n{number}"))
    assert CountedPod.looks >= jobs * pods  # it counts
    CountedPod.looks = 0
    nodes = [tainted(f"n{number}") for number in range(jobs)]
    assert cache.replace_nodes(Listing(nodes, "5")) == [Key("ml", f"job-{number}") for number in range(jobs)]
    assert cache.replace_nodes(Listing(nodes, "6")) == []
    assert cache.note_node(nodes[4], deleted=True) == [Key("ml", "job-4")]
    assert CountedPod.looks == 0


NODES = ("", "a", "b", "c")
PODS = [(job, index) for job in ("x", "y") for index in range(2)]
EVENTS = st.tuples(st.sampled_from(PODS), st.sampled_from(NODES), st.booleans())
LISTINGS = st.dictionaries(st.sampled_from(PODS), st.sampled_from(NODES))


@given(st.lists(EVENTS | LISTINGS, max_size=12))
def test_a_change_of_a_node_is_news_to_all_jobs_with_pods_there_and_to_no_other(history: list[Any]) -> None:
    cache, cycles = Cache(), itertools.cycle((True, False))
    for version, seen in enumerate(history, 1):
        if isinstance(seen, dict):
            listed = [Pod.read(on_node(*pod, node, version)) for pod, node in seen.items()]
            cache.replace_pods(None, Listing(listed, str(version)))
        else:
            which, node, deleted = seen
            cache.note_pod(on_node(*which, node, version), deleted=deleted)
        bad = next(cycles)
        for name in NODES[1:]:
            keys = [Key("ml", job) for job in ("x", "y")]
            there = [key for key in keys if any(pod.node == name for pod in cache.view(key).pods.values())]
            assert sorted(cache.note_node(tainted(name) if bad else untainted(name))) == there


def on_node(job: str, index: int, node: str, version: int = 1) -> Object:
    body = pod(index, version=version)
    body["metadata"]["labels"]["elasticjob.io/job"] = job
    body["metadata"] |= {"name": f"{job}-{index}-0", "uid": f"{job}-{index}"}
    body["spec"]["nodeName"] = node
    return body


def tainted(name: str) -> Node:
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    return Node.read({"metadata": {"name": name, "resourceVersion": "5"}, "spec": {"taints": taints}})


def untainted(name: str) -> Node:
    return Node.read({"metadata": {"name": name, "resourceVersion": "5"}, "spec": {}})


def test_the_labels_of_a_node_are_known_to_every_job_and_wake_none() -> None:
    cache = Cache()
    here = pod(0)
    here["spec"]["nodeName"] = "n"
    cache.note_pod(here)
    for zone in ("a", "b"):
        assert cache.note_node(Node.read({"metadata": {"name": "n", "labels": {"zone": zone}}, "spec": {}})) == []
        assert cache.view(KEY).nodes["n"].labels == {"zone": zone}
    cache.note_node(Node.read({"metadata": {"name": "n"}}), deleted=True)
    assert not cache.view(KEY).nodes
