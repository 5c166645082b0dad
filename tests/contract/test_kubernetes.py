# SPDX-License-Identifier: Apache-2.0
"""The kubernetes backend with real torch and a real API server: handlers, their stores, and what slows them down."""

import gc
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import DistStoreError, Store
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters

from contract.plane import Plane
from contract.store_checks import in_background
from elasticjob_torch.kubernetes import api, handler
from elasticjob_torch.kubernetes.handler import KubernetesRendezvousHandler, create_handler
from support import ControlPlane
from support.team import Team, new_team
from support.waiting import DEADLINE, in_time, result_of, wait_until

Group = list[tuple[KubernetesRendezvousHandler, RendezvousInfo]]

team = pytest.fixture(new_team)


@pytest.fixture
def control_plane(plane: Plane) -> ControlPlane:
    """The API server of the run's cluster. Nothing else there concerns a team's namespace."""
    return ControlPlane.of(plane.kubeconfig())


@pytest.fixture
def form(team: Team, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Group]]:
    """Forms a round of several nodes, in one process."""
    monkeypatch.setattr(handler, "find_access", team.access)
    groups: list[Group] = []

    def form_group(size: int, **config: Any) -> Group:
        settings = {"last_call_timeout": 1, "join_timeout": int(DEADLINE), **config}
        nodes = [
            create_handler(
                RendezvousParameters("kubernetes", "digits", "run", size, size, f"127.0.0.{n + 1}", **settings)
            )
            for n in range(size)
        ]
        joins = [in_background(node.next_rendezvous) for node in nodes]
        groups.append([(node, result_of(join)) for node, join in zip(nodes, joins, strict=True)])
        return groups[-1]

    yield form_group
    for node in [node for group in groups for node, _ in group]:
        node.shutdown()


def own_threads() -> int:
    return sum("KeepAlive" in thread.name or "keep-alive" in thread.name for thread in threading.enumerate())


def test_a_round_forms_and_a_handler_that_is_dropped_leaves_it(form: Callable[..., Group]) -> None:
    group = form(2)
    assert sorted(info.rank for _, info in group) == [0, 1]
    assert own_threads() == 2, "torch's own heartbeats have ended"
    assert [node.num_nodes_waiting() for node, _ in group] == [0, 0]
    dropped = weakref.ref(group.pop()[0])
    gc.collect()
    assert dropped() is None
    wait_until("the end of its thread", lambda: own_threads() == 1)
    wait_until("the other to be told", lambda: group[0][0].num_nodes_waiting() > 0)


def test_the_config_maps_of_a_run_are_its_owners(form: Callable[..., Group], team: Team) -> None:
    uid = "0b9f6c0e-6f0f-4a51-9d8e-2a5c6f1f7a11"
    form(2, owner=f"batch/v1/Job/train/{uid}")
    for name in ("digits", "digits-store"):
        (reference,) = team.administer("GET", name)["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["uid"]) == ("Job", uid)


def test_the_rounds_store_is_torchs(form: Callable[..., Group]) -> None:
    (_, one), (_, other) = form(2)
    adds = [in_background(lambda store=store: store.add("n", 1)) for store in (one.store, other.store) * 4]
    assert sorted(result_of(add) for add in adds) == list(range(1, 9))
    with pytest.raises(DistStoreError, match="timeout"):
        one.store.wait(["never"], timedelta(seconds=0.2))
    if hasattr(Store, "clone"):
        clone = one.store.clone()
        blocked = in_background(lambda: one.store.get("late"))
        clone.set("late", "by the clone")
        assert result_of(blocked) == other.store.get("late") == b"by the clone"


def test_no_store_is_shared_while_any_thread_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    variable, joins = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", handler._NotShared()
    monkeypatch.delenv(variable, raising=False)
    joins.__enter__()
    joins.__enter__()
    joins.__exit__()
    assert os.environ[variable] == "1"
    joins.__exit__()
    assert variable not in os.environ
    monkeypatch.setenv(variable, "0")
    with joins:
        assert os.environ[variable] == "0"
    assert os.environ[variable] == "0", "the user's"


def test_slow_writes_lose_nobody_and_a_node_that_stops_is_lost(
    form: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = form(7, keep_alive_interval=2, keep_alive_max_attempt=3)
    exchange = api.ApiClient._exchange

    def slow(self: api.ApiClient, method: str, *rest: Any) -> Any:
        if method == "PATCH":
            time.sleep(random.uniform(0.9, 1.2))  # of an expiry of 6 s
        return exchange(self, method, *rest)

    monkeypatch.setattr(api.ApiClient, "_exchange", slow)
    deadline = time.monotonic() + 18  # three times the expiry: whose heartbeats are lost is silent for longer than one
    while time.monotonic() < deadline:
        assert [node.num_nodes_waiting() for node, _ in group] == [0] * 7
        time.sleep(0.1)
    stopped, _ = group[3]
    stopped._keep_alive.stop()
    rest = [node for node, _ in group if node is not stopped]
    wait_until("the others to see that one is silent", lambda: all(node.num_nodes_waiting() > 0 for node in rest))
    with in_time("a change of the state, which others' heartbeats are not in the way of", 30):
        assert rest[0].shutdown()
