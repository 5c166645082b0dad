# SPDX-License-Identifier: Apache-2.0
"""The whole Store API of the running torch through two sidecars, as trainers use it and as the agent does.

What is tried is what this torch's `Store` has, so a method that comes with a newer torch fails until it is tried.
"""

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import DistNetworkError, PrefixStore, Store, TCPStore
from torch.distributed.elastic.agent.server.api import _TERMINAL_STATE_SYNC_ID
from torch.distributed.elastic.utils.store import barrier

from contract.sidecar_pair import SidecarPair
from contract.store_checks import CHECKS, DEADLINE, SOON, arrived, in_background
from elasticjob_torch.agent.store import AgentStore, StoreBroken
from elasticjob_torch.agent.tcp_store import connect_store, serve_store
from elasticjob_torch.wire import StoreAddress
from support.waiting import result_of, run, wait_until

MIB = 1 << 20


def public(store: type) -> set[str]:
    return {name for name in dir(store) if not name.startswith("_")}


class Round:
    """A round of two agents: the server, and where each reaches it through its sidecar."""

    def __init__(self, pair: SidecarPair) -> None:
        self.ended, self.over = threading.Event(), threading.Event()  # the round, and the whole job
        self.agents: list[AgentStore] = []
        self.rank0 = self._agent()
        server = self.rank0.serve()
        self.ports = pair.form(server)
        self.direct = connect_store("127.0.0.1", server)
        self.direct.set_timeout(timedelta(seconds=DEADLINE))

    def agent(self) -> AgentStore:
        """What the agent of rank 1 uses; it has not connected yet."""
        return self._agent()

    def client(self) -> TCPStore:
        """What a training process of rank 1 uses."""
        return TCPStore("127.0.0.1", self.ports[1], None, False, timedelta(seconds=DEADLINE))

    def _agent(self) -> AgentStore:
        find = lambda _: StoreAddress("127.0.0.1", self.ports[1])  # noqa: E731
        store = AgentStore(find, 2, self.ended.is_set, self.over.is_set, lambda: None)
        store.set_timeout(timedelta(seconds=DEADLINE))
        self.agents.append(store)
        return store

    def close(self) -> None:
        self.ended.set()
        for agent in self.agents:
            agent.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[SidecarPair]:
    sidecars = SidecarPair()
    yield sidecars
    sidecars.close()


@pytest.fixture
def round(pair: SidecarPair) -> Iterator[Round]:
    formed = Round(pair)
    yield formed
    formed.close()


KINDS = ["trainer", "agent", "trainer's PrefixStore", "agent's PrefixStore"]


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, round: Round) -> tuple[Store, Store]:
    """Rank 1's store through the tunnel, and a client at the server itself that sees the same keys."""
    whose, _, prefixed = request.param.partition("'s ")
    inner = round.agent() if whose == "agent" else round.client()
    if not prefixed:
        return inner, round.direct
    return PrefixStore("prefix", inner), PrefixStore("prefix", round.direct)


# --- each method


@pytest.mark.parametrize("method", sorted(public(Store)))
def test_a_method_of_this_torch(method: str, stores: tuple[Store, Store]) -> None:
    assert method in CHECKS, f"torch {torch.__version__} has Store.{method}; write a check for it"
    try:
        CHECKS[method](*stores)
    except NotImplementedError:
        if not torchs_prefix_store_cannot_reach(method):
            raise


def torchs_prefix_store_cannot_reach(method: str) -> bool:
    """Say whether torch's PrefixStore fails to call this method of any store that is written in Python."""
    arguments = {"queue_push": ("key", "value"), "queue_pop": ("key",), "queue_len": ("key",), "list_keys": ()}
    inner = type("PythonStore", (Store,), {method: lambda self, *_: pytest.fail("it does reach it")})()
    with pytest.raises(NotImplementedError):
        getattr(PrefixStore("prefix", inner), method)(*arguments[method])
    return True


def test_an_agents_store_has_what_torchs_has_and_no_more() -> None:
    own = {"serve", "connect", "close", "deleteKey", "getNumKeys"}
    assert public(AgentStore) - own == public(Store)


# --- size and number


@pytest.mark.parametrize("mib", [1, 8])
def test_large_values(mib: int, stores: tuple[Store, Store]) -> None:
    far, near = stores
    upward, downward = os.urandom(mib * MIB), os.urandom(mib * MIB)
    far.set("up", upward)
    near.set("down", downward)
    assert near.get("up") == upward
    assert far.get("down") == downward


def test_200_connections_at_once(round: Round) -> None:
    clients = [round.client() for _ in range(200)]
    for rank, client in enumerate(clients):
        client.set(f"rank {rank}", str(rank))
    waits = [in_background(lambda client=client: client.get("go")) for client in clients]
    round.direct.set("go", "all")
    assert [result_of(wait) for wait in waits] == [b"all"] * 200
    assert [client.add("count", 1) for client in clients] == list(range(1, 201))


def test_threads_share_a_store(stores: tuple[Store, Store]) -> None:
    far, near = stores
    sums = [in_background(lambda: [far.add("sum", 1) for _ in range(50)]) for _ in range(8)]
    assert sorted(number for one in sums for number in result_of(one)) == list(range(1, 401))
    assert near.add("sum", 0) == 400


@pytest.mark.skipif(not hasattr(Store, "clone"), reason="this torch's stores have no clones")
def test_threads_have_a_clone_each(round: Round) -> None:
    store = round.agent()
    clones = [store.clone() for _ in range(2)]
    waits = in_background(lambda: clones[0].get("late"))
    clones[1].set("late", "came")
    assert result_of(waits) == b"came"


def test_threads_that_use_a_store_first_make_one_connection(round: Round) -> None:
    store = round.agent()
    made = [in_background(store.connect) for _ in range(4)]
    assert len({id(result_of(one)) for one in made}) == 1


# --- the beginning


def test_a_training_process_may_come_before_the_store_serves(
    pair: SidecarPair, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is held until then, at rank 0 too. Were it closed, torch's client would write two C++ stacks to its log."""
    server = serve_store()
    began = time.monotonic()
    ports = pair.form(server.port, late=10)
    early = [
        in_background(lambda port=port: TCPStore("127.0.0.1", port, None, False, timedelta(seconds=60)))
        for port in ports
    ]
    for process in early:
        result_of(process).set("key", "value")
    assert time.monotonic() - began > 9
    assert server.get("key") == b"value"
    written = capfd.readouterr().err
    assert "Connection reset by peer" not in written
    assert "frame #" not in written


def test_a_library_may_open_a_store_of_its_own_at_the_next_port(round: Round) -> None:
    """On rank 0, and the others come before it does: they are closed, and come again."""
    near_port, far_port = (port + 1 for port in round.ports)
    with socket.create_connection(("127.0.0.1", far_port), DEADLINE) as early, suppress(ConnectionError):
        assert early.recv(1) == b""
    far = in_background(lambda: TCPStore("127.0.0.1", far_port, 2, False, timedelta(seconds=DEADLINE)))
    near = TCPStore("127.0.0.1", near_port, 2, True, timedelta(seconds=DEADLINE))
    result_of(far).set("key", "value")
    assert near.get("key") == b"value"


# --- the end


def blocking_calls() -> dict[str, Callable[[Store], Any]]:
    calls: dict[str, Callable[[Store], Any]] = {
        "get": lambda store: store.get("never"),
        "wait": lambda store: store.wait(["never"]),
        "multi_get": lambda store: store.multi_get(["never"]),
        "queue_pop": lambda store: store.queue_pop("never"),
        "barrier": lambda store: store.barrier("never", 3),
    }
    return {name: call for name, call in calls.items() if hasattr(Store, name)}


@pytest.mark.parametrize("name", blocking_calls())
def test_an_agents_wait_ends_when_it_is_told_of_the_rounds_end(name: str, round: Round) -> None:
    blocked = in_background(lambda: blocking_calls()[name](round.agent()))
    round.ended.set()
    with pytest.raises(StoreBroken):
        result_of(blocked)


@pytest.mark.parametrize("name", blocking_calls())
@pytest.mark.parametrize("kind", ["agent", "client"])
def test_a_wait_ends_when_the_connection_does(name: str, kind: str, pair: SidecarPair, round: Round) -> None:
    store = getattr(round, kind)()
    store.set("before", "")
    arrived(store)
    blocked = in_background(lambda: blocking_calls()[name](store))
    if name == "barrier":  # an agent's makes a connection first, which must be one of this round
        wait_until("the barrier", lambda: "never" in round.direct.list_keys())
    after = Round(pair)  # the sidecars end what belongs to an earlier round
    try:
        with pytest.raises(StoreBroken if kind == "agent" else DistNetworkError):
            result_of(blocked)
        assert not after.client().check(["before"])
    finally:
        after.close()


@pytest.mark.parametrize("news", ["ended", "over"])
def test_rank_0_stays_in_torchs_exit_barrier_until_all_come_or_nobody_can(news: str, round: Round) -> None:
    """Longer than torch's own limit: its store is in its process, and others may still be saving."""
    limit = SOON.total_seconds()
    waits = in_background(lambda: barrier(round.rank0, 2, _TERMINAL_STATE_SYNC_ID, limit))
    with pytest.raises(TimeoutError):
        waits.result(3 * limit)
    getattr(round, news).set()
    result_of(waits)


def test_the_end_of_the_job_ends_no_wait_outside_of_the_exit_barrier(round: Round) -> None:
    round.over.set()
    waits = in_background(lambda: round.agent().get("late"))
    with pytest.raises(TimeoutError):
        waits.result(SOON.total_seconds())
    round.direct.set("late", "value")
    assert result_of(waits) == b"value"


def test_a_closed_store_says_so(round: Round) -> None:
    store = round.agent()
    clones = [store.clone()] if hasattr(Store, "clone") else []
    store.close()
    for closed in [store, *clones]:
        with pytest.raises(StoreBroken, match="closed"):
            closed.set("key", "value")


# --- the server


def test_the_server_listens_on_loopback_alone() -> None:
    before = own_listeners()
    store = serve_store()
    assert own_listeners() - before == {("0100007F", store.port)}


def own_listeners() -> set[tuple[str, int]]:
    """The addresses, in the kernel's hexadecimal, and ports at which this process listens."""
    links = [os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.is_symlink()]
    own = {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
    found = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = fields = line.split()
            if state == "0A" and fields[9] in own:
                address, port = local.split(":")
                found.add((address, int(port, 16)))
    return found


def test_libuv_is_used_where_it_takes_a_bound_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, bound = listener.getsockname()[1], listener.detach()
    try:
        TCPStore("127.0.0.1", port, None, True, SOON, False, master_listen_fd=bound, use_libuv=True)
        takes = True
    except NotImplementedError:
        takes = False
    assert serve_store().libuvBackend == takes


IN_A_CALL_AT_THE_END = """
import os, time
from datetime import timedelta
from torch.distributed import TCPStore
from elasticjob_torch.sidecar.calls import CallThread, Interrupted

class EndsSlowly:
    def __del__(self, sleep=time.sleep):
        sleep(1)

ends_slowly = EndsSlowly()
store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=5), False)
try:
    CallThread(lambda: True).call(lambda: store.wait(["never"], timedelta(seconds=0.5)), 60)
except Interrupted:
    print("given up")
"""


def test_a_call_that_returns_while_python_ends_aborts_nothing() -> None:
    """The thread would be unwound in C++: "terminate called without an active exception"."""
    done = run([sys.executable, "-c", IN_A_CALL_AT_THE_END])
    assert (done.returncode, done.stdout) == (0, "given up\n"), done.stderr
