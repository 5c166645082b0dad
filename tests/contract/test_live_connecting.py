# SPDX-License-Identifier: Apache-2.0
"""A group of two forms while the other member fails: nobody waits for it longer than it takes to hear of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import threading
import time
import weakref
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from contract.forked import forks
from contract.live.partner import BEGINS, HOST, LATE_SECONDS, ROUNDS, SENT_BYTES, averaged, main
from elasticjob_torch.live.backend import Gloo
from elasticjob_torch.live.belonging import belongs
from elasticjob_torch.live.collectives import Collectives, value_of
from elasticjob_torch.live.connecting import _CONNECT_SECONDS, _MEET_SECONDS, connect, connect_alone, disconnect
from elasticjob_torch.live.ended import EndedGroup, drop
from elasticjob_torch.live.links import Links, _same
from elasticjob_torch.live.reducing import average_gradients
from elasticjob_torch.live.rounds import Place
from elasticjob_torch.live.torch_private import renew, set_timeout
from support.ports import free_port
from support.waiting import Deadline, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

TIMEOUT = timedelta(seconds=20)  # of collectives; gloo takes five times as long for a connection
SOON_SECONDS = 60.0  # on a machine that is busy
FIRST_SECONDS = 240.0  # with the start of the process that forks, which imports torch

in_time = pytest.mark.skipif(set_timeout is None, reason="this torch has one timeout for connecting and collectives")


@pytest.fixture
def store() -> Iterator[dist.TCPStore]:
    connect_alone(Gloo())  # which imports what a first group needs
    disconnect()
    yield dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    disconnect()


@contextlib.contextmanager
def partner(rank: int, store: dist.TCPStore, when: str) -> Iterator[Connection]:
    """The other member, which begins to connect, or has told its address and ended; yields the way to it."""
    way, its = forks.Pipe()
    process = forks.Process(target=main, args=(its, rank, store.port, when))
    process.start()
    its.close()
    try:
        if not way.poll(FIRST_SECONDS):
            raise Deadline("the partner to begin", FIRST_SECONDS)
        assert way.recv() == BEGINS
        if when == "tells":
            process.join(SOON_SECONDS)
            assert process.exitcode == 0
        yield way
    finally:
        process.kill()
        process.join()
        way.close()


def fail_to_connect(rank: int, store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, partner(1 - rank, store, "tells"):
        patched.setattr("elasticjob_torch.live.connecting._CONNECT_SECONDS", 0.4)
        for number in range(1, ROUNDS + 1):
            with pytest.raises(RuntimeError) as error:
                connect(Place(number, rank, 2, HOST, store.port), Links(), TIMEOUT, Gloo())
            disconnect()
            assert belongs(error.value, None), error.value


@in_time
@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_that_is_gone_before_it_connects_ends_the_others_waits(
    store: dist.TCPStore, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next group has the number that the others give it: torch counts those that have not formed, too."""
    began = time.monotonic()
    fail_to_connect(rank, store, monkeypatch)
    assert time.monotonic() - began < SOON_SECONDS
    next_store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    with partner(1 - rank, next_store, "connects"):
        connect(Place(1, rank, 2, HOST, next_store.port), Links(), TIMEOUT, Gloo())


def test_a_wait_for_members_that_have_yet_to_come_is_cut(store: dist.TCPStore) -> None:
    """torch's store connects by IPv6 also where its address is one of IPv4."""
    links, began = Links(), time.monotonic()
    threading.Timer(0.5, links.cut).start()
    with pytest.raises(RuntimeError) as error:
        connect(Place(1, 0, 2, HOST, store.port), links, TIMEOUT, Gloo())
    assert belongs(error.value, None), error.value
    assert time.monotonic() - began < _MEET_SECONDS / 2


def test_a_store_that_is_gone_is_tried_until_the_group_is_cut() -> None:
    """torch goes on trying for as long as its timeout, and hears of nothing."""
    links, port, before = Links(), free_port(), {*threading.enumerate()}
    began = time.monotonic()
    threading.Timer(0.5, links.cut).start()
    with pytest.raises(RuntimeError) as error:
        connect(Place(1, 0, 2, HOST, port), links, TIMEOUT, Gloo())
    assert belongs(error.value, None), error.value
    assert time.monotonic() - began < _MEET_SECONDS / 2
    # the try ends in success: after its time torch would write stacks among what a later test captures
    found = dist.TCPStore(HOST, port, is_master=True, wait_for_workers=False)
    wait_until("the end of the try", lambda: not {*threading.enumerate()} - before)
    del found


def test_a_group_that_forms_is_cut_wherever_its_members_are(store: dist.TCPStore) -> None:
    with partner(1, store, "connects") as way:
        for number in itertools.count(1):
            links = Links()
            disconnect()
            connect(Place(number, 0, 2, HOST, store.port), links, TIMEOUT, Gloo())
            if {peer for _, _, peer in links._new()} - {HOST}:
                break  # its own address is not the store's, as in a pod; one that has called comes from the store's
            way.send(number)
        began = time.monotonic()
        threading.Timer(0.2, links.cut).start()
        with pytest.raises(RuntimeError) as error:
            dist.all_reduce(torch.zeros(1))
    assert belongs(error.value, None), error.value
    assert time.monotonic() - began < TIMEOUT.total_seconds() / 2


@in_time
def test_a_collective_may_take_longer_than_connecting(store: dist.TCPStore) -> None:
    assert LATE_SECONDS > _CONNECT_SECONDS
    sum = torch.ones(1)
    with partner(1, store, "trains"):
        connect(Place(1, 0, 2, HOST, store.port), Links(), timedelta(seconds=SOON_SECONDS), Gloo())
        dist.all_reduce(sum)
        dist.barrier()
    assert sum.item() == 2


# --- gloo does not notice that a connection has ended


def test_a_member_that_is_killed_while_it_sends_holds_up_nobody_once_the_group_is_cut(store: dist.TCPStore) -> None:
    """gloo tells a collective nothing of a connection that ends in the middle of a message for it."""
    collectives, received = Collectives(), torch.empty(SENT_BYTES, dtype=torch.uint8)
    with partner(1, store, "sends"):
        connect(Place(1, 0, 2, HOST, store.port), Links(), TIMEOUT, Gloo())
        dist.barrier()
        began = time.monotonic()
        threading.Timer(1.0, collectives.cut).start()
        with pytest.raises(RuntimeError, match="the process group was cut"):
            collectives.wait(dist.broadcast(received, src=1, async_op=True))
    assert time.monotonic() - began < TIMEOUT.total_seconds() / 2


def test_a_collective_of_the_script_that_begins_while_its_group_is_cut_ends(
    store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gloo's thread has not yet noticed the end of a connection when the script sends on it.

    What gloo's threads have done cannot be observed. With a pause that is too short for them the test shows nothing.
    """
    monkeypatch.setattr("elasticjob_torch.live.links._SENDS_SECONDS", 10 * SOON_SECONDS)
    links = Links()
    with partner(1, store, "receives") as way:
        connect(Place(1, 0, 2, HOST, store.port), links, timedelta(seconds=2 * SOON_SECONDS), Gloo())
        links.formed()
        way.recv()
        time.sleep(0.2)  # gloo's thread hears that the partner receives
        with asleep(pollers(links, store.port)):
            links.cut()
            work = dist.broadcast(torch.zeros(1), src=0, async_op=True)
            time.sleep(0.2)  # another of gloo's threads sends
        wait_until("the end of the collective", work.is_completed, SOON_SECONDS)
        with pytest.raises(RuntimeError) as error:
            dist.barrier()
    assert belongs(error.value, links), error.value


def pollers(links: Links, store_port: int) -> set[int]:
    """The descriptors by which gloo's threads wait for the group's connections."""
    group: set[int] = set()
    for descriptor, name in links._all or ():
        with _same(descriptor, name) as link:
            if link is not None and store_port not in (link.getsockname()[1], link.getpeername()[1]):
                group.add(descriptor)
    found = set()
    for number in os.listdir("/proc/self/fdinfo"):
        with contextlib.suppress(OSError):  # closed meanwhile
            about = Path(f"/proc/self/fdinfo/{number}").read_text()
            if group & {*map(int, re.findall(r"^tfd:\s+(\d+)", about, re.MULTILINE))}:
                found.add(int(number))
    return found


@contextlib.contextmanager
def asleep(descriptors: set[int]) -> Iterator[None]:
    """Meanwhile the threads that wait by these descriptors notice nothing."""
    assert descriptors
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(select.epoll())
        for descriptor in descriptors:
            kept = os.dup(descriptor)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, descriptor)
            os.dup2(nothing.fileno(), descriptor)
        time.sleep(0.2)  # they still wait for a moment as they did
        yield


def test_gradients_are_waited_for_until_the_group_is_cut(store: dist.TCPStore) -> None:
    connect_alone(Gloo())
    ddp = DistributedDataParallel(torch.nn.Linear(1, 1))
    disconnect()
    links, collectives = Links(), Collectives()
    links.ends_with(collectives.cut)
    with partner(1, store, "connects"):
        connect(Place(1, 0, 2, HOST, store.port), Links(), TIMEOUT, Gloo())
        ddp = renew(ddp, {})
        average_gradients(ddp, collectives)
        began = time.monotonic()
        threading.Timer(0.2, links.cut).start()
        with pytest.raises(RuntimeError) as error:
            ddp(torch.ones(1, 1)).sum().backward()
        assert time.monotonic() - began < TIMEOUT.total_seconds() / 2
        assert belongs(error.value, links), error.value
        with pytest.raises(RuntimeError) as error:  # nor do others begin
            collectives.wait(dist.barrier(async_op=True))
        assert belongs(error.value, links), error.value


def test_a_wait_that_failed_leaves_nothing(store: dist.TCPStore) -> None:
    """An exception in a future would keep the collective, and with it gloo's threads and connections, for ever."""
    collectives, links = Collectives(), Links()
    with partner(1, store, "connects"):
        connect(Place(1, 0, 2, HOST, store.port), links, TIMEOUT, Gloo())
    left = []
    for cut in (False, True):
        threading.Timer(0.2, collectives.cut if cut else links.cut).start()
        future = collectives.future(dist.all_reduce(torch.zeros(1), async_op=True), None)
        left.append(weakref.ref(future))
        with pytest.raises(RuntimeError):
            value_of(future)
        del future
    drop([EndedGroup(disconnect(), collectives.wait_until_ended)])
    wait_until("the end of what was waited for", lambda: not any(one() for one in left))
    links.formed()
    wait_until("the end of the group's connections", lambda: not set(links._new()), seen=lambda: set(links._new()))


@pytest.mark.parametrize("sparse", ["", "sparse"])
def test_gradients_are_averaged_over_the_members(store: dist.TCPStore, sparse: str) -> None:
    with partner(1, store, f"{sparse}averages"):
        assert averaged(0, store.port, bool(sparse)) == [0.5, 0.5, 1, 0]


def test_the_end_of_a_group_whose_collectives_go_on_holds_up_nobody(store: dist.TCPStore) -> None:
    collectives = Collectives()
    with partner(1, store, "connects"):
        connect(Place(1, 0, 2, HOST, store.port), Links(), TIMEOUT, Gloo())
        pending = dist.all_reduce(torch.zeros(1), async_op=True)
        waited = collectives.future(pending, None)
        collectives.cut()
        assert waited.done()
        began = time.monotonic()
        drop([EndedGroup(disconnect(), collectives.wait_until_ended)])
        connect_alone(Gloo())
        dist.barrier()
        assert not pending.is_completed()
        assert time.monotonic() - began < TIMEOUT.total_seconds() / 2
    with pytest.raises(RuntimeError):
        pending.wait()
