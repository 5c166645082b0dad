# SPDX-License-Identifier: Apache-2.0
"""`KubernetesStore` against a real API server: what torch documents of a store, and what a ConfigMap adds."""

import importlib
import threading
from datetime import timedelta
from typing import ClassVar

import pytest

from elasticjob_torch.kubernetes.api import ApiClient, Unavailable
from support import ControlPlane
from support.dynamic_torch import DistStoreError
from support.team import Team
from support.waiting import in_time, joined, wait_until


@pytest.fixture
def make(team: Team, plugin):
    module = importlib.import_module("elasticjob_torch.kubernetes.store")
    return lambda client=ApiClient, scope="": module.KubernetesStore(
        team.config_map("digits-store", client), lambda: scope
    )


@pytest.mark.parametrize("key", ["plain", "", ".", "..", "a/b c_é\n", "k" * 300, "k" * 299 + "l", "_2F", "/"])
def test_any_key_and_value_comes_back(make, key):
    one, other = make(), make()
    one.set(key, b"\x00\xff" + key.encode())
    assert other.get(key) == b"\x00\xff" + key.encode()
    assert other.check([key])


def test_counter(make):
    store = make()
    assert [store.add("n", 5), store.add("n", -2), store.add("n", 0)] == [5, 3, 3]
    assert store.get("n") == b"3"
    store.set("text", "x")
    with pytest.raises(DistStoreError, match="'text' is not a counter"):
        store.add("text", 1)


def test_counter_of_many_writers_loses_nothing(make):
    def count_up(store):
        for _ in range(10):
            store.add("n", 1)

    writers = [threading.Thread(target=count_up, args=(make(),)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        joined(writer)
    assert make().add("n", 0) == 40


def test_threads_share_a_store_and_its_clones(make):
    store = make()
    store.set_timeout(timedelta(seconds=60))
    clones = [store.clone(), store.clone()]
    assert [clone.timeout for clone in clones] == [store.timeout] * 2
    results = []

    def use(each):
        each.add("there", 1)
        assert each.get("late") == b"x"  # beside the others' calls, over the same store
        results.extend(each.add("n", 1) for _ in range(5))

    users = [threading.Thread(target=use, args=(each,)) for each in (store, store, *clones)]
    for user in users:
        user.start()
    wait_until("all threads to wait for the key", lambda: store.add("there", 0) == len(users), pause=0.05)
    clones[0].set("late", "x")
    for user in users:
        joined(user)
    assert sorted(results) == list(range(1, 21))


def test_a_clone_waits_for_no_call_of_its_original(make, team: Team):
    store = make()
    clone = store.clone()
    with team.clients[0]._lock:  # as a call holds it that the server does not answer
        clone.set("k", "x")
        assert clone.get("k") == b"x"


def test_compare_set(make):
    store = make()
    assert store.compare_set("k", "not there", "new") == b"not there"
    assert not store.check(["k"])
    assert store.compare_set("k", "", "one") == b"one"
    assert store.compare_set("k", "other", "two") == b"one"
    assert store.compare_set("k", b"one", b"two") == b"two"
    assert store.get("k") == b"two"


def test_several_keys_at_once(make):
    store = make()
    store.multi_set(["a", "b"], ["1", b"2"])
    store.append("a", "0")
    assert store.multi_get(["b", "a"]) == [b"2", b"10"]
    assert store.num_keys() == 2
    assert store.delete_key("a") is True
    assert store.delete_key("a") is False
    assert store.num_keys() == 1


def test_scopes_do_not_meet(make):
    one, other = make(scope="1/"), make(scope="2/")
    one.set("k", "of one")
    assert not other.check(["k"])
    assert other.num_keys() == 0


def test_keep_only_deletes_what_is_old(make):
    old, store = make(scope="old/"), make(scope="new/")
    old.set("run.2/k", "x")
    store.multi_set(["run.1/k", "run.2/k", "run.20/k"], ["x"] * 3)
    store.keep_only(["run.2/"])
    assert store.check(["run.2/k"])
    assert store.num_keys() == 1
    assert old.num_keys() == 0


class Counting(ApiClient):
    calls = 0

    def call(self, *arguments, **options):
        self.calls += 1
        return super().call(*arguments, **options)


def test_wait_is_woken_by_a_watch_and_does_not_poll(make, team: Team):
    waiting, other = make(Counting), make()
    other.set("first", "")
    writer = threading.Timer(2, other.set, ("second", "x"))
    writer.start()
    waiting.wait(["first", "second"], timedelta(seconds=60))
    assert team.clients[0].calls == 1
    writer.join()


def test_wait_in_vain_has_an_end(make):
    store = make()
    store.set_timeout(timedelta(seconds=0.5))
    for wait in (lambda: store.get("none"), lambda: store.wait(["none"]), lambda: store.multi_get(["none"])):
        with pytest.raises(DistStoreError, match=r"timeout after 0\.5 s, keys: none in ConfigMap team-.*/digits-store"):
            wait()
    with pytest.raises(DistStoreError, match="timeout after 0 s, keys: none"):
        store.wait(["none"], timedelta(0))


def forget_events(control_plane: ControlPlane) -> None:
    control_plane.stop_server()
    control_plane.start_server()


def test_version_too_old_to_watch_from_ends_the_watch(team: Team, control_plane: ControlPlane):
    forget_events(control_plane)
    config_map = team.config_map("digits-store")
    with in_time("the end of a watch from a version that is too old", 30):
        assert list(config_map.watch("1", 60)) == []


def test_wait_goes_on_when_its_version_is_too_old(make, monkeypatch, control_plane: ControlPlane):
    forget_events(control_plane)
    waiting, other = make(), make()
    watch, asked = waiting._map.watch, []
    writer = threading.Thread(target=other.set, args=("k", "x"))

    def watch_from(version, seconds):
        asked.append(version)
        if len(asked) == 2:  # written earlier, a read would find it and no watch be needed
            writer.start()
        return watch("1" if len(asked) == 1 else version, seconds)

    monkeypatch.setattr(waiting._map, "watch", watch_from)
    waiting.wait(["k"], timedelta(seconds=30))
    assert len(asked) > 1
    writer.join()


def test_wait_goes_on_when_the_config_map_is_replaced(make, team: Team):
    waiting, other = make(), make()

    def replace():
        team.administer("DELETE", "digits-store")
        team.plane.request("POST", f"{team.core}/configmaps", {"metadata": {"name": "digits-store"}})
        other.set("k", "x")

    writer = threading.Timer(1, replace)
    writer.start()
    waiting.wait(["k"], timedelta(seconds=30))
    writer.join()


class Deaf(ApiClient):
    """Makes each first change, and does not hear the answer."""

    heard: ClassVar[set[bytes]] = set()

    def _attempt(self, method, path, payload, content_type):
        answer = super()._attempt(method, path, payload, content_type)
        if method == "PATCH" and payload not in self.heard:
            self.heard.add(payload)
            raise Unavailable("the answer was lost")
        return answer


def test_change_whose_answer_was_lost_is_made_once(make):
    store = make(Deaf)
    assert store.add("n", 5) == 5
    store.append("text", "a")
    assert store.compare_set("k", "", "v") == b"v"
    assert store.delete_key("k") is True
    assert make().multi_get(["n", "text"]) == [b"5", b"a"]


def test_full_config_map_is_named(make):
    with pytest.raises(DistStoreError, match="digits-store cannot be written; it holds 1 MiB at most"):
        make().set("large", b"x" * (1 + (1 << 20)))
