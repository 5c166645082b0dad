# SPDX-License-Identifier: Apache-2.0
"""The parts by which processes live through changes, each by itself, with real torch in one process."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import random
import socket
import subprocess
import sys
import threading
import types
from datetime import timedelta
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import elasticjob_torch
from contract.forked import forks
from contract.live.late_threads import let_others_be_late, on_one_processor
from elasticjob_torch.agent.messages import from_variable
from elasticjob_torch.live.backend import Gloo, Nccl
from elasticjob_torch.live.belonging import belongs
from elasticjob_torch.live.collectives import THREAD, Collectives
from elasticjob_torch.live.connecting import connect_alone, disconnect
from elasticjob_torch.live.group import Group
from elasticjob_torch.live.links import Links
from elasticjob_torch.live.reducing import average_gradients
from elasticjob_torch.live.refusals import CannotLive, refuse, refuse_state
from elasticjob_torch.live.rounds import Fixed, NoNextRound, OfAgent, Place, rounds_of
from elasticjob_torch.live.state import Registry, read, written
from elasticjob_torch.live.step import Beginning, Steps
from elasticjob_torch.live.torch_private import aborts_present_group, begin_anew, renew
from elasticjob_torch.live.transfer import CannotShare, Hello, StateVersion, pieces, sender
from support.waiting import run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMED_SECONDS = 240.0  # with the start of the process that forks, which imports torch


@pytest.fixture
def alone() -> Iterator[None]:
    connect_alone(Gloo())
    yield
    disconnect()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    disconnect()


def model_and_optimizer() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1)).double()
    return model, torch.optim.Adam(model.parameters(), 1e-2)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 3, dtype=torch.float64)).sum().backward()
    optimizer.step()


# --- a step


def test_a_step_counts_once_applied_and_is_restored_otherwise() -> None:
    restored: list[int] = []
    steps = Steps(5)
    steps.begin(lambda: restored.append(1))
    steps.broken()
    assert (steps.number, restored) == (5, [1])
    steps.begin(lambda: restored.append(2))
    steps.mark_applied()
    steps.broken()
    assert (steps.number, restored) == (6, [1])
    steps.begin(lambda: restored.append(3))
    steps.end()
    assert (steps.number, restored) == (7, [1])
    steps.broken()
    assert (steps.number, restored) == (7, [1])


def test_a_step_done_again_begins_as_it_did() -> None:
    torch.manual_seed(3)
    random.seed(3)
    model, _ = model_and_optimizer()
    model.append(torch.nn.Dropout(0.5))
    x = torch.randn(4, 3, dtype=torch.float64)
    beginning = Beginning(model.buffers())
    first, chance = model(x), random.random()
    first.sum().backward()
    moved = [buffer.clone() for buffer in model.buffers()]
    beginning.restore(model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model(x), first)
    assert random.random() == chance
    assert all(torch.equal(one, other) for one, other in zip(moved, model.buffers(), strict=True))


def test_a_scaler_can_unscale_in_a_step_that_is_done_again() -> None:
    model = torch.nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    for _ in range(2):
        scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        scaler.unscale_(optimizer)  # raises where it is called twice in a step
        begin_anew(scaler)


# --- the state


def registered() -> tuple[torch.nn.Module, torch.optim.Optimizer, Any, Registry]:
    model, optimizer = model_and_optimizer()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return model, optimizer, scheduler, Registry(model, {"optimizer": optimizer, "scheduler": scheduler})


def test_a_newcomer_has_the_senders_state_and_keeps_its_memory() -> None:
    model, optimizer, scheduler, registry = registered()
    for _ in range(3):
        train(model, optimizer)
        scheduler.step()
    other, its_optimizer, its_scheduler, its_registry = registered()
    places = [parameter.data_ptr() for parameter in other.parameters()]
    held = registry.hold()
    received = its_registry.prepare(read(written(held.tree)))
    for mine, theirs in zip(received.tensors, held.tensors, strict=True):
        mine.copy_(theirs)
    its_registry.load(received)
    assert [parameter.data_ptr() for parameter in other.parameters()] == places
    assert all(torch.equal(a, b) for a, b in zip(other.state_dict().values(), model.state_dict().values(), strict=True))
    assert its_scheduler.state_dict() == scheduler.state_dict()
    torch.manual_seed(1)
    train(model, optimizer)
    torch.manual_seed(1)
    train(other, its_optimizer)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))


class Runs:
    """Makes a folder where it is unpickled."""

    def __init__(self, made: Path) -> None:
        self._made = str(made)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self._made,)


def test_nothing_is_run_that_comes_from_the_network(tmp_path: Path) -> None:
    evil, made = Runs(tmp_path / "made"), tmp_path / "made"
    for data in (pickle.dumps({"a": evil}), written({"a": evil})):
        with pytest.raises(UnpicklingError):
            read(data)
    with pytest.raises((ValueError, TypeError)):
        Hello.read(pickle.dumps(evil))
    assert not made.exists()
    pickle.loads(pickle.dumps(evil))
    assert made.exists(), "an ordinary reader would have run it"


def test_a_state_that_others_would_not_read_is_refused_at_once() -> None:
    class Odd:
        def state_dict(self) -> Any:
            return {"path": Path("/")}

        def load_state_dict(self, state_dict: Any, /) -> None:
            raise AssertionError

    model, optimizer = model_and_optimizer()
    milestones = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])  # has a Counter
    scaler = torch.amp.GradScaler("cpu")
    refuse_state(Registry(model, {"optimizer": optimizer, "milestones": milestones, "scaler": scaler}))
    with pytest.raises(CannotLive, match="of odd has objects of other types"):
        refuse_state(Registry(model, {"optimizer": optimizer, "odd": Odd()}))


def test_the_state_that_is_sent_is_no_copy() -> None:
    model, optimizer, _, registry = registered()
    train(model, optimizer)
    held = {tensor.data_ptr() for tensor in registry.hold().tensors}
    assert {parameter.data_ptr() for parameter in model.parameters()} <= held
    assert {state["exp_avg"].data_ptr() for state in optimizer.state.values()} <= held


def test_models_that_differ_are_described_differently() -> None:
    *_, one = registered()
    *_, other = registered()
    assert one.shape() == other.shape()
    wider = torch.nn.Linear(3, 3)
    assert Registry(wider, {}).shape() != Registry(torch.nn.Linear(3, 2), {}).shape()
    assert Registry(wider, {"a": wider}).shape() != Registry(wider, {}).shape()


@pytest.mark.parametrize(
    ("standings", "rank"),
    [
        pytest.param([(0, 0), (0, 0)], 0, id="all new"),
        pytest.param([(0, 5), (0, 9), (0, 9)], 1, id="the newest checkpoint"),
        pytest.param([(0, 99), (3, 7)], 1, id="a newcomer's checkpoint is no training"),
        pytest.param([(3, 7), (3, 8), (2, 9)], 1, id="a step apart, and one of an older round"),
        pytest.param([(3, 7), (3, 7)], None, id="all the same"),
        pytest.param([(-1, 9), (2, 5)], 1, id="a part of a state"),
    ],
)
def test_the_member_that_has_trained_furthest_sends(standings: list[tuple[int, int]], rank: int | None) -> None:
    assert sender([StateVersion(*each) for each in standings]) == rank


def test_a_group_without_a_whole_state_does_not_train() -> None:
    with pytest.raises(CannotShare, match="no member of the group has a whole state"):
        sender([StateVersion(-1, 5), StateVersion(-1, 3)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_tensor_goes_in_pieces_of_bounded_size(dtype: torch.dtype) -> None:
    tensor = torch.ones(7, 11).to(dtype)
    found = list(pieces(tensor, 100))
    assert max(piece.numel() for piece in found) <= 100
    assert sum(piece.numel() for piece in found) == tensor.numel() * tensor.element_size()
    for piece in found:
        piece.zero_()
    assert not tensor.any()
    assert len(list(pieces(torch.tensor(1.0), 100))) == 1
    assert list(pieces(torch.empty(0), 100)) == []


# --- connections


def connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    return client, accepted


def test_only_the_groups_own_connections_are_cut() -> None:
    before = connection()
    links = Links()
    listener = socket.create_server(("127.0.0.1", 0))
    mine = connection()
    path = socket.socketpair()
    assert links.own_addresses() == {"127.0.0.1"}
    links.expect({"127.0.0.1"})
    links.formed()
    after = connection()
    assert not links.are_broken()
    links.cut()
    assert links.are_broken()
    assert [mine[0].recv(1), mine[1].recv(1)] == [b"", b""]
    for one, other in (before, after, path):
        one.sendall(b"x")
        assert other.recv(1) == b"x"
    with socket.create_connection(listener.getsockname()):
        listener.accept()[0].close()
    for each in (*before, *mine, *after, *path, listener):
        each.close()


def test_connections_to_others_are_never_cut() -> None:
    links = Links()
    mine = connection()
    links.expect({"192.0.2.1"})
    links.formed()
    links.cut()
    mine[0].sendall(b"x")
    assert mine[1].recv(1) == b"x"
    for each in mine:
        each.close()


def test_a_group_that_was_left_before_it_formed_cuts_nothing_of_the_next() -> None:
    links = Links()
    links.expect({"127.0.0.1"})
    links.leave()
    mine = connection()
    links.cut()
    mine[0].sendall(b"x")
    assert mine[1].recv(1) == b"x"
    for each in mine:
        each.close()


def test_a_connection_at_its_end_breaks_the_group() -> None:
    links = Links()
    mine = connection()
    links.expect({"127.0.0.1"})
    links.formed()
    assert not links.are_broken()
    mine[1].close()
    assert links.are_broken()
    mine[0].close()


def test_a_descriptor_that_is_used_again_is_not_cut() -> None:
    links = Links()
    mine = connection()
    links.expect({"127.0.0.1"})
    links.formed()
    numbers = {each.fileno() for each in mine}
    for each in mine:
        each.close()
    others = connection()
    assert {each.fileno() for each in others} == numbers
    links.cut()
    others[0].sendall(b"x")
    assert others[1].recv(1) == b"x"
    for each in others:
        each.close()


def test_a_descriptor_that_has_become_a_files_keeps_nobody_waiting() -> None:
    links, ended = Links(), []
    links.ends_with(lambda: ended.append(True))
    mine = connection()
    links.expect({"127.0.0.1"})
    links.formed()
    with open(os.devnull, "rb") as file:
        for each in mine:
            os.dup2(file.fileno(), each.fileno())
    before = len(os.listdir("/proc/self/fd"))
    links.cut()
    assert links.are_broken()
    assert ended == [True]
    wait_until("the end of all copies", lambda: len(os.listdir("/proc/self/fd")) <= before)  # also those of other tests
    for each in mine:
        each.close()


def test_a_file_that_has_a_connections_descriptor_stays_locked(tmp_path: Path) -> None:
    """A process that closes any descriptor of a file gives up its locks on it."""
    links = Links()
    mine = connection()
    links.expect({"127.0.0.1"})
    links.formed()
    with (tmp_path / "locked").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        for each in mine:
            os.dup2(file.fileno(), each.fileno())
        links.cut()
        locks = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        another = [sys.executable, "-c", locks, file.name]
        tried = subprocess.run(another, check=False, stderr=subprocess.PIPE, text=True, timeout=60)
    assert "BlockingIOError" in tried.stderr
    for each in mine:
        each.close()


# --- exceptions

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4711"


class Broken:
    def are_broken(self) -> bool:
        return True


class Whole:
    def are_broken(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("error", "links", "is_the_groups"),
    [
        (dist.DistBackendError("x"), Whole(), True),
        (dist.DistNetworkError("x"), Whole(), True),
        (RuntimeError(GLOO), Broken(), True),
        (RuntimeError(GLOO), None, True),
        (RuntimeError(GLOO), Whole(), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), Broken(), False),
        (ConnectionResetError("Connection reset by peer"), Broken(), False),
        (NotImplementedError(GLOO), Broken(), False),
        (KeyboardInterrupt(), Broken(), False),
        (NoNextRound(GLOO), Broken(), False),
    ],
)
def test_which_exceptions_belong_to_the_group(error: BaseException, links: Any, is_the_groups: bool) -> None:
    assert belongs(error, links) is is_the_groups


# --- backends whose collectives end later


class Changes:
    """Each round is of this process alone, and another always follows."""

    lives = True

    def __init__(self) -> None:
        self.number = 0

    def hear(self, heard: Any) -> None:
        pass

    def is_over(self) -> bool:
        return False

    def saves(self, saving: bool) -> None:
        pass

    def following(self) -> Place:
        self.number += 1
        return Place(self.number, 0, 1, "", 0)


class Asynchronous(Gloo):
    """The collectives of the first step break, which shows when they are waited for."""

    broken = True

    def settle(self, links: Links) -> None:
        if self.broken:
            self.broken = False
            raise dist.DistBackendError("aborted")


@pytest.mark.parametrize("skipped", [False, True], ids=["the optimizer is called", "AMP skips the step"])
def test_no_step_is_applied_or_counted_whose_collectives_broke(nothing_left: None, skipped: bool) -> None:
    model, optimizer = model_and_optimizer()
    rounds = Changes()
    group = Group(model, optimizer, [], {}, 0, None, {}, timedelta(minutes=1), rounds, Asynchronous())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with group:
        if not skipped:
            train(group.model, optimizer)
    assert (group.step, rounds.number) == (0, 2)
    assert all(map(torch.equal, before, model.parameters()))
    with group:
        train(group.model, optimizer)
    assert (group.step, rounds.number) == (1, 2)
    assert not all(map(torch.equal, before, model.parameters()))


def test_a_group_that_has_ended_leaves_no_thread(nothing_left: None) -> None:
    before = set(threading.enumerate())  # those of other tests among them
    model, optimizer = model_and_optimizer()
    group = Group(model, optimizer, [], {}, 0, None, {}, timedelta(minutes=1), Changes(), Asynchronous())
    for _ in range(3):
        train(group.model, optimizer)
        group._form()

    def left() -> list[str]:
        return [one.name for one in set(threading.enumerate()) - before if one.name == THREAD]

    wait_until("the end of the threads of groups that have ended", lambda: len(left()) <= 1, seen=left)
    train(group.model, optimizer)
    assert left() == [THREAD], "the present group has one"


def form_again_and_again() -> None:
    """gloo's threads run only where the main thread waits, so they are the last to let go of most tensors."""
    on_one_processor()
    make = dist.init_process_group

    def with_late_threads(*arguments: Any, **options: Any) -> None:
        make(*arguments, **options)
        let_others_be_late()

    dist.init_process_group = with_late_threads
    for _ in range(10):
        model, optimizer = model_and_optimizer()
        group = Group(model, optimizer, [], {}, 0, None, {}, timedelta(minutes=1), Changes(), Gloo())
        train(group.model, optimizer)
        group._form()
        disconnect()


def test_the_end_of_a_group_does_not_keep_python_waiting_for_its_threads() -> None:
    """They wait for Python themselves, to let go of tensors."""
    process = forks.Process(target=form_again_and_again)
    process.start()
    process.join(FORMED_SECONDS)
    process.kill()
    process.join()
    assert process.exitcode == 0, "it hung"


def test_outside_an_elasticjob_collectives_that_broke_end_the_process(nothing_left: None) -> None:
    group = Group(*model_and_optimizer(), [], {}, 0, None, {}, timedelta(minutes=1), Fixed({}), Asynchronous())
    with pytest.raises(dist.DistBackendError, match="aborted"), group:
        pass


def test_gradients_of_nccl_are_used_once_its_work_is_done_and_the_group_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    stream = types.SimpleNamespace(synchronize=lambda: done.append("waited"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    whole: Any = Whole()
    Nccl().settle(whole)
    assert done == ["waited"]
    broken: Any = Broken()
    broken.are_broken = lambda: bool(done.append("asked")) or True
    with pytest.raises(dist.DistBackendError, match="the gradients are undefined"):
        Nccl().settle(broken)
    assert done == ["waited", "waited", "asked"]


def test_cutting_a_group_aborts_what_does_not_end_with_its_connections() -> None:
    links, aborted = Links(), []
    links.ends_with(lambda: aborted.append(links.are_broken()))
    links.cut()
    assert aborted == [True]


def test_an_abort_that_comes_late_leaves_the_next_group_alone(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    end = aborts_present_group()
    disconnect()
    connect_alone(Gloo())
    end()
    aborted: list[Any] = []
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", aborted.append)
    aborts_present_group()()
    assert aborted == [dist.group.WORLD]
    monkeypatch.delattr(dist.distributed_c10d, "_abort_process_group")
    aborts_present_group()()


# --- DDP


def test_a_renewed_ddp_has_the_first_order_of_buckets_and_one_set_of_hooks(alone: None) -> None:
    """As a newcomer's has; the rebuilt order would mix the gradients of different parameters."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    ddp = DistributedDataParallel(module)
    x = torch.randn(2, 3)
    for _ in range(3):
        ddp(x).sum().backward()
        module.zero_grad()
    module(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
    module.zero_grad()
    dist.destroy_process_group()
    connect_alone(Gloo())
    renewed = renew(ddp, {})
    assert renewed is ddp
    assert not ddp._has_rebuilt_buckets
    for _ in range(3):
        renewed(x).sum().backward()
        assert all(torch.equal(a, b.grad) for a, b in zip(expected, module.parameters(), strict=True))
        module.zero_grad()


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_those_of_ddp_itself(alone: None, sparse: bool) -> None:
    found = []
    for averaged_here in (False, True):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Embedding(5, 3, sparse=sparse), torch.nn.Linear(3, 1))
        ddp, collectives = DistributedDataParallel(module), Collectives()
        if averaged_here:
            average_gradients(ddp, collectives)
            with pytest.raises(RuntimeError, match="can only be called once"):  # the script's hook would get lost
                ddp.register_comm_hook(None, lambda state, bucket: None)
        for _ in range(2):
            module.zero_grad()
            ddp(torch.tensor([1, 4])).sum().backward()
        found.append([(one.grad.to_dense() if one.grad.is_sparse else one.grad) for one in module.parameters()])
        collectives.settle()
    assert all(map(torch.equal, *found))


def test_a_torch_without_the_private_calls_makes_a_new_ddp(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Linear(3, 1)
    ddp = DistributedDataParallel(module)
    monkeypatch.delattr(DistributedDataParallel, "_ddp_init_helper")
    with pytest.raises(AttributeError):  # here the new one lacks it, too: it was made
        renew(ddp, {})


# --- refusals


class FSDPModule(torch.nn.Linear):
    pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": [torch.nn.Linear(1, 1)]}, "model must be one torch.nn.Module, not list"),
        ({"optimizer": [1, 2]}, "optimizer must be one torch.optim.Optimizer, not list"),
        ({"model": torch.nn.ReLU()}, "model has no parameter that needs a gradient"),
        ({"model": FSDPModule(1, 1)}, r"model is sharded \(FSDPModule\)"),
        ({"options": {"static_graph": True}}, "leave it out of ddp="),
        ({"options": {"process_group": object()}}, "process_group does not live through a change"),
        ({"options": {"mixed_precision": object()}}, "mixed_precision does not live through a change"),
        ({"subgroups": 2}, "2 process groups beside the whole one; make them in on_change="),
    ],
)
def test_what_cannot_live_is_refused_in_a_sentence(change: dict[str, Any], words: str) -> None:
    model, optimizer = model_and_optimizer()
    given: dict[str, Any] = {"model": model, "optimizer": optimizer, "options": {}, "subgroups": 0}
    refuse(**given)
    with pytest.raises(CannotLive, match=words):
        refuse(**{**given, **change})


def test_a_model_in_ddp_and_a_group_are_refused(alone: None) -> None:
    model, optimizer = model_and_optimizer()
    with pytest.raises(CannotLive, match="leave init_process_group"):
        elasticjob_torch.elastic(model, optimizer)
    with pytest.raises(CannotLive, match="pass the module itself"):
        elasticjob_torch.elastic(DistributedDataParallel(model), optimizer)


def test_a_framework_that_keeps_rank_and_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    state = types.ModuleType("accelerate.state")
    state.PartialState = types.SimpleNamespace(_shared_state={})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    refuse(*model_and_optimizer(), {}, 0)
    state.PartialState._shared_state["rank"] = 0  # type: ignore[attr-defined]
    with pytest.raises(CannotLive, match="Accelerate is in use"):
        refuse(*model_and_optimizer(), {}, 0)


# --- outside an ElasticJob


def test_outside_an_elasticjob_there_is_one_round() -> None:
    rounds = Fixed({"RANK": "1", "WORLD_SIZE": "3"})
    assert rounds.following() == Place(1, 1, 3, "", 0)
    assert not rounds.is_over()
    with pytest.raises(NoNextRound, match="no ElasticJob forms another"):
        rounds.following()


def test_a_process_of_a_torchrun_below_the_jobs_has_no_round_of_the_job(tmp_path: Path) -> None:
    ours = {
        "ELASTICJOB_LIVE": f"s:{tmp_path}/none",
        "ELASTICJOB_ENDPOINT": "127.0.0.1:1",
        "ELASTICJOB_AGENT": "1:2:run",
    }
    assert isinstance(rounds_of({**ours, "TORCHELASTIC_RUN_ID": "another"}), Fixed)
    with pytest.raises(NoNextRound, match="does not answer"):
        rounds_of({**ours, "TORCHELASTIC_RUN_ID": "run"})


def test_an_agent_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoNextRound, match=f"does not answer at {tmp_path}/none"):
        OfAgent(f"s:{tmp_path}/none", {})


def test_the_same_script_runs_alone(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "ELASTICJOB_LIVE"):
        monkeypatch.delenv(name, raising=False)
    torch.manual_seed(0)
    model, optimizer = model_and_optimizer()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    seen: list[tuple[int, int]] = []
    group = elasticjob_torch.elastic(
        model, optimizer, schedulers=[scheduler], step=3, on_change=lambda *given: seen.append(given)
    )
    assert (group.rank, group.size, group.step, seen) == (0, 1, 3, [(0, 1)])
    numbers = []
    for number in group.steps(6):
        numbers.append(number)
        with group:
            train(group.model, optimizer)
    assert (numbers, group.step) == ([3, 4, 5], 6)
    assert scheduler.get_last_lr() == [pytest.approx(1e-2 / 8)]


def test_a_loop_may_follow_another(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where each epoch has one."""
    monkeypatch.delenv("ELASTICJOB_LIVE", raising=False)
    model, optimizer = model_and_optimizer()
    group = elasticjob_torch.elastic(model, optimizer)
    for epoch in (1, 2):
        for _ in group.steps(2 * epoch):
            with group:
                train(group.model, optimizer)
    assert group.step == 4


@pytest.mark.parametrize(("theirs", "expected"), [(7, [0, 7, 8]), (9, [0])], ids=["amid", "at the end"])
def test_the_loop_goes_on_at_the_step_that_the_others_have_reached_meanwhile(
    nothing_left: None, monkeypatch: pytest.MonkeyPatch, theirs: int, expected: list[int]
) -> None:
    """A worker that was left over for a while would take the batch of the step at which it left."""
    monkeypatch.delenv("ELASTICJOB_LIVE", raising=False)
    model, optimizer = model_and_optimizer()
    group = elasticjob_torch.elastic(model, optimizer)
    over = iter([False, True])
    monkeypatch.setattr(group._rounds, "is_over", lambda: next(over, False))
    monkeypatch.setattr(group, "_form", lambda: setattr(group._steps, "number", theirs))
    seen: list[int] = []
    for number in group.steps(9):
        with group:
            seen.append(number)
            assert number == group.step
            train(group.model, optimizer)
    assert (seen, group.step) == (expected, 9)


def test_an_error_of_the_script_is_its_own(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "ELASTICJOB_LIVE"):
        monkeypatch.delenv(name, raising=False)
    model, optimizer = model_and_optimizer()
    group = elasticjob_torch.elastic(model, optimizer)
    with pytest.raises(ValueError, match="mine"), group:
        raise ValueError("mine")
    assert group.step == 0


def test_a_save_is_told_from_its_beginning_to_its_end(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(Fixed, "saves", lambda _, saving: told.append(saving))
    for name in ("RANK", "WORLD_SIZE", "ELASTICJOB_LIVE"):
        monkeypatch.delenv(name, raising=False)
    group = elasticjob_torch.elastic(*model_and_optimizer())
    with group.saving():
        with group.saving():
            pass
        assert told[-1] is True
    assert told[-1] is False
    with pytest.raises(OSError, match="full"), group.saving():
        raise OSError("full")
    assert told[-1] is False


def test_a_process_ends_well_however_late_the_threads_of_its_group_are() -> None:
    pairs, script = 6, Path(__file__).parent / "live/ends.py"
    done = run([sys.executable, str(script), str(pairs)], seconds=300, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [0] * (2 * pairs), done.stderr


def test_a_round_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from elasticjob_torch.agent.living import Living

    monkeypatch.setattr("elasticjob_torch.live.rounds._NEXT_SECONDS", 0.2)
    living = Living()
    living.started("s", 1)
    environment = {**living.variables, "LOCAL_RANK": "0"}
    rounds = OfAgent(environment["ELASTICJOB_LIVE"], environment)
    with pytest.raises(NoNextRound, match=r"waited 0\.2 s for this process's agent to enter a round after round 0"):
        rounds.following()
    rounds.saves(True)
    living.close()


def test_the_variables_of_each_round_are_set(tmp_path: Path) -> None:
    from elasticjob_torch.agent.living import Living

    living = Living()
    living.started("s", 1)
    given = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4711"}
    living.enter(4, {0: given})
    environment = {**living.variables, "LOCAL_RANK": "0", "RANK": "0", "ELASTICJOB_START": "a prestarted one's own"}
    rounds = OfAgent(environment["ELASTICJOB_LIVE"], environment)
    assert rounds.following() == Place(4, 1, 2, "127.0.0.1", 4711)
    assert environment["RANK"] == "1"
    living.stop("not waiting")
    living.close()
    assert not os.path.exists(from_variable(environment["ELASTICJOB_LIVE"])[1])
