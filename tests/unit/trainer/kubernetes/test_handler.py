# SPDX-License-Identifier: Apache-2.0
"""What the kubernetes handler makes of its surroundings: torch's handler and the backend are stand-ins."""

import gc
import importlib
import importlib.metadata
import os
import sys
import types
import weakref
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.dynamic_torch import DistStoreError, stand_in
from support.waiting import run

torch = pytest.fixture(stand_in)


class Inner:
    """torch's handler: answers, or raises, what the test says."""

    use_agent_store = False

    def __init__(self) -> None:
        self.joins = [types.SimpleNamespace(rank=1, world_size=3)]
        self.waiting = 0
        self.calls: list[str] = []

    def get_run_id(self):
        return "run"

    def next_rendezvous(self):
        self.calls.append("join")
        return give(self.joins.pop(0))

    def num_nodes_waiting(self):
        self.calls.append("poll")
        return give(self.waiting)

    def shutdown(self):
        self.calls.append("close")
        return True

    def _stop_heartbeats(self):
        self.calls.append("stop heartbeats")

    @property
    def _op_executor(self):
        return types.SimpleNamespace(run=lambda operation, deadline: self.calls.append(operation))


class KeepAlive:
    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def start(self):
        self.calls.append("heartbeats")

    def stop(self):
        self.calls.append("no heartbeats")


class Store:
    def __init__(self) -> None:
        self.kept: list[list[str]] = []

    def keep_only(self, prefixes):
        self.kept.append(prefixes)


def give(answer):
    if isinstance(answer, type) and issubclass(answer, Exception):
        raise answer
    return answer


@pytest.fixture
def make(torch):
    module = importlib.import_module("elasticjob_torch.kubernetes.handler")
    torch.dynamic_rendezvous._RendezvousExitOp = lambda: "leave"

    def make_handler():
        settings = module.parse_settings("ns/name", {})
        where = module.ConfigMap(None, "ns", "name")
        inner, backend = Inner(), types.SimpleNamespace(seen=None)
        made = module.KubernetesRendezvousHandler(inner, backend, Store(), KeepAlive(inner.calls), settings, where)
        saw(made)
        return made

    return make_handler


@pytest.fixture
def handler(make):
    return make()


def saw(handler, round=0, participants=3, closed=False):
    handler._backend.seen = types.SimpleNamespace(
        state_id="i", round=round, complete=True, closed=closed, participants=participants
    )


def test_members_that_wait_or_are_lost_form_the_group_anew(handler):
    handler.next_rendezvous()
    assert handler.num_nodes_waiting() == 0
    handler._inner.waiting = 2
    assert handler.num_nodes_waiting() == 2
    handler._inner.waiting = 0
    saw(handler, participants=2)
    assert handler.num_nodes_waiting() == 1


def test_record_that_went_on_without_this_node_makes_it_join_again(handler):
    handler.next_rendezvous()
    saw(handler, round=1)
    assert handler.num_nodes_waiting() == 1
    handler._backend.seen = None
    assert handler.num_nodes_waiting() == 1


def test_losses_do_not_matter_once_the_run_is_over(handler):
    handler.next_rendezvous()
    saw(handler, participants=1, closed=True)
    assert handler.num_nodes_waiting() == 0


def test_absent_server_does_not_end_training_and_is_not_asked_at_once_again(handler, torch):
    handler.next_rendezvous()
    handler._inner.waiting = torch.RendezvousConnectionError
    assert [handler.num_nodes_waiting() for _ in range(3)] == [0, 0, 0]
    assert handler._inner.calls.count("poll") == 1
    handler._poll_after = 0
    handler._inner.waiting = 1
    assert handler.num_nodes_waiting() == 1


def test_state_that_is_no_longer_ours_is_an_error(handler, torch):
    handler._inner.waiting = torch.RendezvousStateError
    with pytest.raises(torch.RendezvousStateError):
        handler.num_nodes_waiting()


def test_unneeded_spare_exits_with_code_0(handler, torch):
    handler._inner.joins = [torch.RendezvousGracefulExitError]
    with pytest.raises(SystemExit) as ended:
        handler.next_rendezvous()
    assert ended.value.code == 0


def test_closed_run_says_how_to_begin_another(handler, torch):
    handler._inner.joins = [torch.RendezvousClosedError]
    with pytest.raises(torch.RendezvousClosedError, match="another --rdzv-id, or first: kubectl delete configmap name"):
        handler.next_rendezvous()


def test_join_timeout_names_its_key(handler, torch):
    handler._inner.joins = [torch.RendezvousTimeoutError]
    with pytest.raises(torch.RendezvousTimeoutError, match=r"within join_timeout \(600 s\)"):
        handler.next_rendezvous()


def test_round_whose_rank_0_was_lost_is_passed_over(handler):
    handler._inner.joins.insert(0, DistStoreError)
    assert handler.next_rendezvous().world_size == 3
    assert [call for call in handler._inner.calls if call == "join"] == ["join", "join"]


def test_the_backend_is_patient_only_while_joining(handler):
    seen = []
    join = handler._inner.next_rendezvous
    handler._inner.next_rendezvous = lambda: (seen.append(handler._backend.patience), join())[1]
    handler.next_rendezvous()
    assert seen == [600]
    assert handler._backend.patience == 0


def test_rank_0_forgets_the_keys_of_old_rounds(handler):
    handler.next_rendezvous()
    assert handler._store.kept == []
    saw(handler, round=10)
    handler._inner.joins = [types.SimpleNamespace(rank=0, world_size=3)]
    handler.next_rendezvous()
    assert handler._store.kept == [["torch.rendezvous.run.9/", "torch.rendezvous.run.10/"]]


def test_success_closes_the_run(handler):
    assert handler.shutdown()
    assert handler._inner.calls == ["close", "no heartbeats"]


def test_failure_leaves_the_run_open(handler):
    with pytest.raises(ZeroDivisionError), shutting_down(handler):
        1 / 0  # noqa: B018
    assert handler._inner.calls == ["no heartbeats", "stop heartbeats", "leave"]


def test_heartbeats_begin_before_the_join_and_are_not_torchs(handler):
    handler.next_rendezvous()
    assert handler._inner.calls == ["heartbeats", "join", "stop heartbeats"]


def test_a_handler_that_is_dropped_leaves(make):
    handler = make()
    handler.next_rendezvous()
    calls, there = handler._inner.calls, weakref.ref(handler)
    del calls[:], handler
    gc.collect()
    assert there() is None
    assert calls == ["no heartbeats", "stop heartbeats", "leave"]


@contextmanager
def shutting_down(handler):
    """As torch does it: in its ``finally``."""
    try:
        yield
    finally:
        assert handler.shutdown()


@pytest.mark.parametrize(("asked", "found"), [(None, "1"), ("0", "0")])
def test_torch_shares_no_store_unless_asked_and_nobody_else_is_told(handler, monkeypatch, asked, found):
    """What is started later has the environment as it was."""
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    monkeypatch.delenv(name, raising=False)
    if asked is not None:
        monkeypatch.setenv(name, asked)
    seen, joins = [], handler._inner.next_rendezvous
    monkeypatch.setattr(Inner, "use_agent_store", property(lambda self: seen.append(os.environ.get(name))))
    handler._inner.next_rendezvous = lambda: (seen.append(os.environ.get(name)), joins())[1]
    assert not handler.use_agent_store
    handler.next_rendezvous()
    assert (seen, os.environ.get(name)) == ([found, found], asked)


def test_wrong_option_ends_with_one_sentence(torch):
    module = importlib.import_module("elasticjob_torch.kubernetes.handler")
    params = types.SimpleNamespace(endpoint="host:1", config={}, run_id="run", local_addr=None)
    with pytest.raises(SystemExit, match="kubernetes: --rdzv-endpoint 'host:1' does not name an object"):
        module.create_handler(params)


def test_torchrun_finds_each_backend_by_its_entry_point(tmp_path):
    root = Path(__file__).parents[4]
    script = root / "hack/images/plugin_metadata.py"
    run([sys.executable, script, root / "pyproject.toml", tmp_path], check=True)
    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])
    points = {point.name: point for point in found.entry_points.select(group="torchrun.handlers")}
    assert set(points) == {"elasticjob", "kubernetes"}
    for point in points.values():
        assert callable(point.load()())


def test_importing_the_plugin_imports_nothing_else(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("elasticjob_torch")]:
        monkeypatch.delitem(sys.modules, name)
    module = importlib.import_module("elasticjob_torch.kubernetes")
    assert callable(module.creator())
    loaded = {name for name in sys.modules if name.startswith("elasticjob_torch")}
    assert loaded == {"elasticjob_torch", "elasticjob_torch.kubernetes"}
