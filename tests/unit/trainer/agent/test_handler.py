# SPDX-License-Identifier: Apache-2.0
"""The handler and its store over stand-ins of torch's few classes; real torch is met on the cluster.

The sidecar is real HTTP. The store is a dictionary, shared by all clients of its port as a TCPStore is.
"""

import argparse
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import pytest

from elasticjob.pods import NOTHING_LEFT
from elasticjob_torch import wire
from elasticjob_torch.agent import orphans, processes
from elasticjob_torch.environment import endpoint_of
from elasticjob_torch.sidecar.errors import RoundBroken
from elasticjob_torch.wire import Phase, View
from support.trainer_sidecar import RUN_ID, handed, refusal
from support.waiting import happened, in_time, joined, result_of, run, wait_until

JOIN = "POST /v1/rendezvous"
STORE = "GET /v1/store"
MEMBERS = "torchelastic/agent/terminal_state/num_members"
LOADED_ANEW = [
    f"elasticjob_torch.agent.{name}"
    for name in ("creation", "handler", "joined", "store", "hooks", "failures", "last_line")
]
LAST_MEMBER = "torchelastic/agent/terminal_state/last_member"


class DistStoreError(RuntimeError):
    pass


class DistNetworkError(RuntimeError):
    pass


class FakeStore:
    timeout = timedelta(seconds=300)

    def set_timeout(self, timeout):
        self.timeout = timeout


class FakeTCPStore:
    """Keys by port; a port in `down` refuses every call, as a server that has ended does."""

    servers: ClassVar = {}
    down: ClassVar = set()

    def __init__(self, host_name, port, is_master=False, **options):
        if not is_master and (port in self.down or port not in self.servers):
            raise RuntimeError(f"cannot connect to {port}")
        self.port = port
        if is_master:
            self.servers[port] = {}

    @property
    def keys(self):
        if self.port in self.down:
            raise DistNetworkError("connection was closed")
        return self.servers[self.port]

    def set(self, key, value):
        self.keys[key] = value.encode()

    def get(self, key):
        return self.keys[key]

    def add(self, key, amount):
        self.keys[key] = self.keys.get(key, 0) + amount
        return self.keys[key]

    def check(self, keys):
        return all(key in self.keys for key in keys)


class RendezvousError(Exception):
    pass


class SignalException(Exception):
    def __init__(self, message, sigval):
        super().__init__(message)
        self.sigval = sigval


def new_process_failure():
    """torch's dataclass of a process that failed, cut down to what is read of it."""

    @dataclass
    class ProcessFailure:
        local_rank: int
        exitcode: int
        error_file: str = "<N/A>"
        message: object = "To enable traceback see: ..."
        timestamp: int = 0

        def __post_init__(self):
            self.made = True

        def signal_name(self):
            return signal.Signals(-self.exitcode).name

    return ProcessFailure


def args_parser():
    """torchrun's, as far as these tests use it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nnodes")
    parser.add_argument("--nproc-per-node", "--nproc_per_node", default=os.environ.get("PET_NPROC_PER_NODE", "1"))
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def rendezvous(agent, worker_group):
    """Ask the handler, then give out the ranks, as torch's agent does."""
    info = worker_group.handler.next_rendezvous()
    worker_group.ranks = info.store.get(f"ranks/{info.rank}")


class FakeAgent:
    """Looks at its processes as torch's agent does, until a look says that it is to end."""

    def __init__(self, spec, look=None):
        self.group = types.SimpleNamespace(spec=spec, workers=[types.SimpleNamespace(id=os.getpid())])
        self.remaining_restarts = spec.max_restarts
        self._look = look

    def get_worker_group(self):
        return self.group

    def _monitor_workers(self, group):
        return self._look(group)

    def _invoke_run(self, role="default"):
        while not self._monitor_workers(self.group):
            pass
        return role


def new_agent(handler=None, look=None, kind=None):
    spec = types.SimpleNamespace(rdzv_handler=handler, monitor_interval=600.0, max_restarts=0)
    return (kind or sys.modules["torch.distributed.elastic.agent.server.api"].SimpleElasticAgent)(spec, look)


def start(context, name="", entrypoint="", args=None, envs=None, logs_specs=None):
    context.logged = [dict(each) for each in (envs or {}).values()]


def close(context, death_sig=None, timeout=30):
    context.closed = (death_sig, timeout)


def fake_modules():
    names = {
        "torch": {"__version__": "2.15.0+cpu"},
        "torch.distributed": {
            "run": types.SimpleNamespace(get_args_parser=args_parser),
            "DistNetworkError": DistNetworkError,
            "DistStoreError": DistStoreError,
            "HashStore": dict,
            "Store": FakeStore,
            "TCPStore": FakeTCPStore,
        },
        "torch.distributed.elastic": {},
        "torch.distributed.elastic.agent": {},
        "torch.distributed.elastic.agent.server": {},
        "torch.distributed.elastic.agent.server.api": {
            "SimpleElasticAgent": type("Agent", (FakeAgent,), {"_rendezvous": rendezvous})
        },
        "torch.distributed.elastic.multiprocessing": {
            "SignalException": SignalException,
            "PContext": type("PContext", (), {"__init__": start, "close": close}),
        },
        "torch.distributed.elastic.multiprocessing.errors": {
            "ProcessFailure": new_process_failure(),
            "ChildFailedError": type("ChildFailedError", (Exception,), {}),
        },
        "torch.distributed.elastic.rendezvous": {
            **{
                f"Rendezvous{name}Error": type(f"Rendezvous{name}Error", (RendezvousError,), {})
                for name in ("Closed", "Connection", "Timeout")
            },
            "RendezvousError": RendezvousError,
            "RendezvousHandler": object,
            "RendezvousParameters": object,
            "RendezvousInfo": lambda store, rank, size, address: types.SimpleNamespace(
                store=store, rank=rank, world_size=size, bootstrap_store_info=address
            ),
            "RendezvousStoreInfo": lambda addr, port: (addr, port),
        },
    }
    for name, members in names.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        yield name, module


@pytest.fixture
def torch(monkeypatch):
    """The stand-in modules; the plug-in's own modules that import torch are loaded anew over them."""
    for name, module in fake_modules():
        monkeypatch.setitem(sys.modules, name, module)
    for name in LOADED_ANEW:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(FakeTCPStore, "servers", {})
    monkeypatch.setattr(FakeTCPStore, "down", set())
    yield sys.modules["torch.distributed.elastic.rendezvous"]
    for name in LOADED_ANEW:
        sys.modules.pop(name, None)


def parameters(sidecar, **config):
    return types.SimpleNamespace(endpoint=f"127.0.0.1:{sidecar.port}", run_id=RUN_ID, config={"timeout": 900, **config})


@pytest.fixture
def plugin(torch, monkeypatch):
    module = importlib.import_module("elasticjob_torch.agent.creation")
    for name in ("hear_signals", "leave_mark", "end_orphans", "_show_log"):
        monkeypatch.setattr(module, name, lambda *args: None)
    return module


@pytest.fixture
def handler(plugin, sidecar):
    made = plugin.create_handler(parameters(sidecar, close_timeout="1"))
    yield made
    made.shutdown()


def serves(sidecar):
    """Let the sidecar forward to whichever store was posted last."""

    def answer(path):
        if path != STORE:
            return 204, {}
        posted = sidecar.said("POST /v1/store")
        return 200, {"host": "127.0.0.1", "port": posted[-1]["port"]}

    sidecar.default = answer


def enter(sidecar, handler, *answer, **options):
    serves(sidecar)
    sidecar.answers[JOIN] = [handed(*answer, **options)]
    return handler.next_rendezvous()


def test_rank_0_serves_the_store_and_all_use_the_forwarded_address(sidecar, handler):
    info = enter(sidecar, handler, 1, rank=0, world_size=2)
    assert (info.rank, info.world_size) == (0, 2)
    posted = sidecar.said("POST /v1/store")
    assert [body["round"] for body in posted] == [1]
    assert info.bootstrap_store_info == ("127.0.0.1", 27400)
    info.store.set("key", "value")
    assert info.store.get("key") == b"value"


def failed(local_rank, exitcode, **known):
    """torch's agent sees that a process has failed."""
    made = sys.modules["torch.distributed.elastic.multiprocessing.errors"].ProcessFailure(local_rank, exitcode, **known)
    assert made.made


@pytest.fixture
def error_file(tmp_path):
    """Makes what a training process leaves of its exception, so many seconds after the first."""

    def leave(message, after, **extra):
        file = tmp_path / f"{after}.json"
        said = {"message": message, "extraInfo": {"timestamp": "1", **extra}}
        file.write_text(json.dumps({"message": said}))
        os.utime(file, (1_000 + after, 1_000 + after))
        return {"error_file": str(file), "message": said}

    return leave


CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.7]:41"


def test_a_join_after_a_failure_says_what_failed_first(sidecar, handler, error_file):
    """torch's own times are whole seconds; a connection breaks as another process has failed, be it seen before."""
    enter(sidecar, handler, 1)
    failed(0, -9, timestamp=1)
    failed(1, 1, **error_file("ValueError: no data", 0.2, rank="3"), timestamp=1)
    failed(2, 1, **error_file("KeyError: 'later'", 0.3), timestamp=1)
    failed(3, 1, **error_file(CLOSED, 0.1), timestamp=1)
    enter(sidecar, handler, 2)
    failed(1, -11)
    enter(sidecar, handler, 3)
    failed(1, 1, **error_file(CLOSED, 0.1))
    enter(sidecar, handler, 4)
    enter(sidecar, handler, 5)
    told = [body.get("detail") for body in sidecar.said(JOIN)]
    broke = f"local rank 1, exit code 1, a connection broke: {CLOSED}"
    assert told == [None, "rank 3, exit code 1: ValueError: no data", "local rank 1, SIGSEGV", broke, None]
    assert [body.get("exitCode") for body in sidecar.said(JOIN)] == [None, 1, 139, 1, None]
    kinds = [body.get("failureKind", "Unknown") for body in sidecar.said(JOIN)]
    assert kinds == ["Unknown", "Message", "Signal", "BrokenConnection", "Unknown"]


@pytest.mark.parametrize(
    "said",
    [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistNetworkError: The client socket has timed out after 300000ms while trying to connect",
        "RuntimeError: [pair.cc:534] Application timeout caused pair closure",
        "DistBackendError: NCCL error: ncclRemoteError: A call failed, possibly due to a network error",
        "RuntimeError: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)",
        "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
    ],
)
def test_what_torch_and_python_say_of_a_peer_that_is_gone_is_known(sidecar, handler, error_file, said):
    enter(sidecar, handler, 1)
    failed(0, 1, **error_file(said, 1))
    failed(1, 1, **error_file("ValueError: no data", 2))
    enter(sidecar, handler, 2)
    assert sidecar.said(JOIN)[-1]["detail"] == "local rank 1, exit code 1: ValueError: no data"


def test_what_failed_is_told_also_where_the_round_was_over_by_then(sidecar, handler):
    """Its peers may have failed of it, and have said so before."""
    enter(sidecar, handler, 1)
    failed(0, 42)
    sidecar.tell(round=2, phase="Forming", changed=True)
    wait_until("the agent to see the new round", handler.num_nodes_waiting)
    enter(sidecar, handler, 2)
    told = sidecar.said(JOIN)[-1]
    assert (told["cause"], told["detail"], told["exitCode"]) == ("MembershipChanged", "local rank 0, exit code 42", 42)


FAILING = """
import time
try:
    raise ValueError("no data")
finally:
    print("here", flush=True)
    time.sleep(99)
"""
STOPPED_UNHARMED = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit('stopped'))\n" + FAILING.replace(
    "raise", "pass; 'not' or"
)


def stopped(processes, *run_ids):
    """torch's agent starts these processes and stops them, as a round ends."""
    multiprocessing = sys.modules["torch.distributed.elastic.multiprocessing"]
    environments = {n: {"TORCHELASTIC_RUN_ID": RUN_ID, "RANK": str(8 + n)} for n in range(len(processes))}
    context = multiprocessing.PContext("trainer", "python", {}, environments)
    context.subprocess_handlers = {n: types.SimpleNamespace(proc=each) for n, each in enumerate(processes)}
    context.error_files = {n: str(each.error_file) for n, each in enumerate(processes)}
    context.close()
    for process in processes:
        process.terminate()
        process.wait()
    return context


@pytest.mark.parametrize("through", [(), ("sh", "-c", '"$0" "$@"; exit $?')], ids=["itself", "through a shell"])
def test_a_process_that_is_stopped_while_it_fails_says_of_what(sidecar, handler, start, through):
    enter(sidecar, handler, 1)
    stopped([start(STOPPED_UNHARMED), start(FAILING, through=through)])
    failed(0, 1, error_file="/nowhere", message="SystemExit: stopped")  # which this agent has brought about
    enter(sidecar, handler, 2)
    assert sidecar.said(JOIN)[-1]["detail"] == "rank 9, failing when it was stopped: ValueError: no data"
    assert "exitCode" not in sidecar.said(JOIN)[-1]


IN_A_LOCK = """
import ctypes
lock, lock_it = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
print("here", flush=True)
lock_it(lock), lock_it(lock)
"""
IN_A_SUM = "import itertools\nprint('here', flush=True)\nsum(itertools.repeat(0))"


def test_who_waits_or_computes_in_c_does_not_hold_up_its_stop(sidecar, handler, start, monkeypatch):
    """Neither can answer; so do torch's collectives on CPUs, and on GPUs."""
    monkeypatch.setattr("elasticjob_torch.agent.failures._MOST_SECONDS", 86400.0)
    enter(sidecar, handler, 1)
    with in_time("both to be known as deaf", 60):
        stopped([start(IN_A_LOCK), start(IN_A_SUM)])
    enter(sidecar, handler, 2)
    assert "detail" not in sidecar.said(JOIN)[-1]


def test_a_leave_after_a_failure_tells_the_exit_code(sidecar, handler):
    enter(sidecar, handler, 1)
    failed(0, 42)
    assert handler.shutdown()
    assert [body.get("exitCode") for body in sidecar.said("POST /v1/leave")] == [42]


@pytest.mark.parametrize("code", [0, 256])
def test_what_is_no_containers_exit_code_is_not_told(sidecar, handler, code):
    enter(sidecar, handler, 1)
    failed(0, code)
    enter(sidecar, handler, 2)
    assert "exitCode" not in sidecar.said(JOIN)[-1]


def test_a_failure_with_a_long_and_broken_message_spoils_no_join(sidecar, handler):
    enter(sidecar, handler, 1)
    failed(0, 1, error_file="/tmp/error.json", message="no file \udcff" + 100_000 * "!")
    enter(sidecar, handler, 2)
    detail = sidecar.said(JOIN)[-1]["detail"]
    assert detail.startswith("local rank 0, exit code 1: no file ?!!")
    assert len(detail) == 1000


class Prestarting:
    """Processes that are prestarted and import, as far as the handler asks for them."""

    def __init__(self, ready=False):
        self.ready, self.asked, self.killed = ready, threading.Event(), False

    def is_ready(self):
        self.asked.set()
        return self.ready

    def has_killed(self):
        killed, self.killed = self.killed, False
        return killed

    def living(self):
        return ()

    def close(self):
        pass


@pytest.mark.parametrize(("killed", "code", "counts"), [(True, -9, False), (False, -9, True), (True, 1, True)], ids=str)
def test_a_process_that_the_agent_killed_before_its_script_began_is_no_failure_of_the_training(
    sidecar, handler, killed, code, counts
):
    handler._warm = Prestarting(ready=True)
    enter(sidecar, handler, 1)
    failed(0, code)
    handler._warm.killed = killed
    enter(sidecar, handler, 2)
    assert sidecar.said(JOIN)[-1]["cause"] == ("WorkerFailed" if counts else "MembershipChanged")
    failed(0, -9)
    enter(sidecar, handler, 3)
    assert sidecar.said(JOIN)[-1]["cause"] == "WorkerFailed", "the next one counts again"


@pytest.fixture
def newcomer(plugin, sidecar):
    """A handler whose processes import, joining in a thread of its own."""
    serves(sidecar)
    sidecar.answers[JOIN] = [handed(1), handed(2)]
    membership = plugin.create_handler(parameters(sidecar, close_timeout="1"))._membership
    made = plugin.ElasticJobRendezvousHandler(membership._settings, membership, Prestarting())
    thread = threading.Thread(target=made.next_rendezvous)
    yield made, thread
    made._warm.ready = True
    joined(thread)
    made.shutdown()


@pytest.mark.parametrize("phase", ["Forming", "Formed"])
def test_a_newcomer_says_that_a_group_trains_only_when_it_is_told_so(sidecar, newcomer, monkeypatch, caplog, phase):
    """Whatever is formed, it is some time until the sidecar's first view is there."""
    handler, thread = newcomer
    caplog.set_level("INFO")
    sidecar.tell(round=int(phase == "Formed"), phase=phase)
    events, looks = handler._membership._events, []
    wait_until("the view", lambda: events.view and events.view.phase == phase, seen=lambda: events.view)
    late = property(lambda _: looks.append(1) or (events.view if len(looks) > 3 else None))
    monkeypatch.setattr(type(handler._membership), "view", late)
    thread.start()
    if phase == "Formed":
        wait_until("the log", lambda: "a round is formed: it trains on" in caplog.text, seen=lambda: caplog.text)
        assert sidecar.said(JOIN) == []
    else:
        joined(thread)
        assert "a round is formed" not in caplog.text
    assert len(looks) > 3


@pytest.mark.parametrize("end", ["it is ready", "the round breaks"])
def test_a_newcomer_joins_a_group_that_trains_once_its_processes_are_ready(sidecar, newcomer, end):
    handler, thread = newcomer
    sidecar.tell(round=1, phase="Formed", worldSize=3)
    seen = handler._membership
    wait_until("a view of a formed round", lambda: seen.view and seen.view.phase == "Formed", seen=lambda: seen.view)
    thread.start()
    for _ in range(5):
        handler._warm.asked.clear()
        happened(handler._warm.asked, "a look at what is prestarted")
    assert sidecar.said(JOIN) == []
    if end == "it is ready":
        handler._warm.ready = True
    else:
        sidecar.tell(phase="Forming")
    joined(thread)
    assert len(sidecar.said(JOIN)) == 1


def test_only_a_newcomers_first_join_waits_for_its_processes(sidecar, newcomer):
    handler, thread = newcomer
    thread.start()  # nobody trains yet
    joined(thread)
    sidecar.tell(round=1, phase="Formed", worldSize=3)
    handler.next_rendezvous()
    assert len(sidecar.said(JOIN)) == 2


def test_names(handler):
    assert (handler.get_backend(), handler.get_run_id(), handler.use_agent_store) == ("elasticjob", RUN_ID, True)
    assert (handler.num_nodes_waiting(), handler.is_closed()) == (0, False)


def test_what_a_round_left_behind_is_asked_to_end_before_the_next_is_asked_for(sidecar, handler, monkeypatch):
    """And waited for when the next one is there, so that it costs the group no time that passes anyway."""
    order = []
    monkeypatch.setattr(handler._leftovers, "begin", lambda: order.append(("begin", len(sidecar.said(JOIN)))))
    monkeypatch.setattr(handler._leftovers, "end", lambda: order.append(("end", len(sidecar.said("POST /v1/store")))))
    for number in (1, 2):
        enter(sidecar, handler, number)
    assert order == [("begin", 0), ("end", 1), ("begin", 1), ("end", 2)]


def test_each_round_has_a_new_store(sidecar, handler):
    first = enter(sidecar, handler, 1)
    second = enter(sidecar, handler, 2)
    assert len({body["port"] for body in sidecar.said("POST /v1/store")}) == 2
    second.store.set("key", "value")
    with pytest.raises(DistStoreError, match="closed"):
        first.store.set("key", "value")


def test_a_store_that_fails_means_the_next_round(sidecar, handler):
    FakeTCPStore.servers[40000] = {}
    sidecar.answers[JOIN] = [handed(1, rank=1), handed(2, rank=1)]
    sidecar.answers[STORE] = [refusal(409, "RoundBroken"), (200, {"host": "127.0.0.1", "port": 40000})]
    assert handler.next_rendezvous().rank == 1
    assert [body["after"] for body in sidecar.said(JOIN)] == [0, 1]


def test_a_client_that_cannot_connect_asks_the_sidecar_again(sidecar, handler):
    FakeTCPStore.servers[40000] = {}
    sidecar.answers[JOIN] = [handed(1, rank=1)]
    sidecar.answers[STORE] = [(200, {"host": "127.0.0.1", "port": port}) for port in (40001, 40000)]
    handler.next_rendezvous()
    assert len(sidecar.said(STORE)) == 2


@pytest.fixture
def identical_workers(monkeypatch):
    """As in a job of as many processes in each pod, whose agents need no store to tell their ranks."""
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "1")


@pytest.mark.usefixtures("identical_workers")
def test_an_agent_that_needs_no_store_connects_at_its_first_use(sidecar, handler):
    FakeTCPStore.servers[40000] = {}
    sidecar.answers[JOIN] = [handed(1, rank=1)]
    sidecar.answers[STORE] = [(200, {"host": "127.0.0.1", "port": 40000})]
    store = handler.next_rendezvous().store
    assert sidecar.said(STORE) == []
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert len(sidecar.said(STORE)) == 1


@pytest.mark.parametrize("seconds", [1, 20, 86400])
def test_the_store_is_waited_for_as_long_as_rank_0_may_take_to_serve_it(plugin, sidecar, monkeypatch, seconds):
    monkeypatch.setenv("ELASTICJOB_STORE_READY_SECONDS", str(seconds))
    handler, asked = plugin.create_handler(parameters(sidecar)), []

    def await_store(handed, deadline):
        asked.append(deadline - time.monotonic())
        raise RoundBroken("RoundBroken", "enough")

    monkeypatch.setattr(handler._membership, "await_store", await_store)
    sidecar.answers[JOIN] = [handed(1, rank=1), refusal(410, "Leaving")]
    with pytest.raises(SystemExit):
        handler.next_rendezvous()
    handler.shutdown()
    assert asked[0] > seconds + 30  # the operator ends the round first


@pytest.mark.usefixtures("identical_workers")
def test_a_first_use_after_the_rounds_end(sidecar, handler):
    sidecar.answers[JOIN] = [handed(1, rank=1)]
    sidecar.answers[STORE] = [refusal(409, "RoundBroken", "round 1 is over")]
    store = handler.next_rendezvous().store
    with pytest.raises(DistStoreError, match="round 1 is over"):
        store.set("key", "value")


@pytest.mark.usefixtures("identical_workers")
def test_a_finished_agent_does_not_wait_long_for_a_store_it_never_used(sidecar, handler, monkeypatch):
    monkeypatch.setattr(sys.modules["elasticjob_torch.agent.store"], "_EXIT_SECONDS", 0.1)
    sidecar.answers[JOIN] = [handed(3, rank=1)]
    store = handler.next_rendezvous().store
    sidecar.default = lambda path: refusal(504, "StoreTimeout") if path == STORE else (204, {})
    assert store.add(MEMBERS, 1) == 0
    store.wait([LAST_MEMBER])
    assert [body["round"] for body in sidecar.said("POST /v1/finish")] == [3]


@pytest.mark.usefixtures("identical_workers")
def test_a_finished_agent_does_not_connect_to_a_store_that_went_with_the_job(sidecar, handler):
    """All have finished before this agent's first use of the store, which rank 0 has taken with it."""
    sidecar.answers[JOIN] = [handed(3, rank=1)]
    store = handler.next_rendezvous().store
    sidecar.default = lambda path: (200, {"host": "127.0.0.1", "port": 40000}) if path == STORE else (204, {})
    told = threading.Timer(0.05, sidecar.tell, kwargs={"phase": "Closed", "closed": True, "outcome": "Complete"})
    told.start()
    with in_time("answers without a store", 60):  # torch would wait 300 s for it
        assert store.add(MEMBERS, 1) == 0
        store.wait([LAST_MEMBER])
    assert [body["round"] for body in sidecar.said("POST /v1/finish")] == [3]


@pytest.mark.parametrize(
    ("kind", "message", "lines"),
    [
        ("RendezvousClosedError", "worker 1 failed", ["elasticjob: worker 1 failed"]),
        ("RendezvousTimeoutError", "1 of 2 joined", ["elasticjob: 1 of 2 joined"]),
        ("SignalException", "Process 1 got signal: 15", ["elasticjob: stopped by SIGTERM"]),
        ("ChildFailedError", "torch's summary", ["shown", "elasticjob: local rank 0, exit code 42"]),
        ("ValueError", "of the program's own", ["shown"]),
    ],
)
def test_torchruns_log_ends_with_why_it_ends(torch, sidecar, handler, monkeypatch, capsys, kind, message, lines):
    kinds = {"SignalException": lambda said: SignalException(said, signal.SIGTERM), "ValueError": ValueError}
    errors = sys.modules["torch.distributed.elastic.multiprocessing.errors"]
    make = kinds.get(kind) or getattr(torch, kind, None) or errors.ChildFailedError
    monkeypatch.setattr(sys, "excepthook", lambda *_: print("shown", file=sys.stderr))
    last_line = importlib.import_module("elasticjob_torch.agent.last_line")
    for _ in range(2):  # a second agent in the process changes nothing
        last_line.end_with_a_sentence("elasticjob", lambda: handler.failures.last)
    enter(sidecar, handler, 1)
    failed(0, 42)
    handler.shutdown()
    capsys.readouterr()
    sys.excepthook(type(make(message)), make(message), None)
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize("moment", ["the leave", "the end of the store", "the end of what is prestarted"])
def test_a_stop_signal_while_the_agent_ends_is_no_error_of_its_end(sidecar, handler, monkeypatch, moment):
    """torch would log a traceback of 90 lines."""
    enter(sidecar, handler, 1)
    handler._warm = Prestarting()
    owner, name = {
        "the leave": (handler._membership._client, "leave"),
        "the end of the store": (handler._store, "close"),
        "the end of what is prestarted": (handler._warm, "close"),
    }[moment]
    real, calls = getattr(owner, name), []

    def interrupted(*args):
        if not calls:
            calls.append(args)
            raise SignalException("Process 1 got signal: 15", signal.SIGTERM)
        return real(*args)

    monkeypatch.setattr(owner, name, interrupted)
    assert handler.shutdown() is (moment != "the leave")
    assert calls
    assert handler.shutdown() is (moment != "the leave")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refusal(410, "Leaving"), 75),
        (refusal(410, "Closed", outcome="Complete"), 75),
        (refusal(410, "StageFinished"), 0),
        (refusal(409, "OtherScript", "torchrun 2 runs a.py"), "elasticjob: torchrun 2 runs a.py"),
    ],
)
def test_a_shell_goes_on_only_after_a_success(sidecar, handler, caplog, answer, code):
    sidecar.answers[JOIN] = [answer]
    with caplog.at_level("INFO"), pytest.raises(SystemExit) as caught:
        handler.next_rendezvous()
    assert caught.value.code == code
    assert any(f"elasticjob: {line}".startswith(NOTHING_LEFT) for line in caplog.messages) == (code == 0)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (refusal(410, "Closed", "too many failures", outcome="Failed"), "RendezvousClosedError", "too many failures"),
        (refusal(410, "Closed", "closed by a worker", outcome="Closed"), "RendezvousClosedError", "closed by a worker"),
        (refusal(410, "Closed", "1 of 2", outcome="RendezvousTimeout"), "RendezvousTimeoutError", "1 of 2"),
        (refusal(400, "BadRequest", "after: no number"), "RendezvousError", "after: no number"),
    ],
)
def test_refusals_in_torchs_terms(torch, sidecar, handler, answer, error, said):
    sidecar.answers[JOIN] = [answer]
    with pytest.raises(getattr(torch, error), match=said):
        handler.next_rendezvous()


SHORTEST = [
    {"join_timeout": "0.001"},
    {"close_timeout": "0.001"},
    {"last_call_timeout": "1"},
    {"keep_alive_interval": "1", "keep_alive_max_attempt": "10"},
    {"heartbeat_timeout": "1", "heartbeat": "1", "read_timeout": "1", "cas_backoff_max_seconds": "1"},
    {"is_host": "1", "store_type": "file", "timeout": "1"},
    dict.fromkeys(["etcd_prefix", "protocol", "cacert", "cert", "key", "ca_cert", "ssl_cert", "ssl_cert_key"], "1"),
]


@pytest.mark.parametrize("config", SHORTEST, ids=lambda config: " ".join(config))
def test_no_option_makes_a_failure_of_waiting_for_pods_that_are_absent(plugin, sidecar, config):
    """torchrun would end, and its container's start anew would be one of the job's restarts."""
    handler = plugin.create_handler(parameters(sidecar, **config))
    sidecar.answers[JOIN] = [*[refusal(504, "JoinTimeout", "no round")] * 9, handed(1)]
    serves(sidecar)
    assert handler.next_rendezvous().world_size == 2
    assert {body["timeout"] for body in sidecar.said(JOIN)} == {wire.LONGEST_SECONDS}
    assert sidecar.said("POST /v1/leave") == []
    handler.shutdown()


def test_those_are_all_options_that_are_accepted_but_the_one_for_the_sidecar():
    settings = importlib.import_module("elasticjob_torch.agent.settings")
    assert {key for config in SHORTEST for key in config} == set(settings._KNOWN) - {"sidecar_timeout"}


def test_another_job_is_one_sentence(sidecar, handler):
    sidecar.answers[JOIN] = [handed(1, run_id="theirs")]
    with pytest.raises(SystemExit, match=r"^elasticjob: this pod's ElasticJob has the run id theirs"):
        handler.next_rendezvous()


def test_a_second_torchrun_of_the_pod_is_one_sentence(plugin, sidecar):
    sidecar.answers["GET /v1/rendezvous/events"] = [refusal(409, "TrainerLives", "the process 17 takes part already")]
    with pytest.raises(SystemExit, match=r"^elasticjob: the process 17 takes part already$"):
        plugin.create_handler(parameters(sidecar))


def test_a_torchrun_below_a_living_one_asks_the_sidecar_nothing(plugin, sidecar, monkeypatch):
    agent = os.getppid()
    monkeypatch.setenv("ELASTICJOB_AGENT", f"{agent}:{processes.read_stat(agent).started}:{RUN_ID}")
    with pytest.raises(SystemExit, match=rf"^elasticjob: [^\n]*\(process {agent}\)[^\n]*leave out --rdzv-backend"):
        plugin.create_handler(parameters(sidecar))
    assert sidecar.requests == []


SHOW_JOB = "import os; print(sorted(n for n in os.environ if n.startswith(('PET_', 'ELASTICJOB_'))))"


def test_processes_inherit_what_the_script_needs_and_nothing_of_torchruns(plugin, sidecar, monkeypatch):
    monkeypatch.setattr(plugin, "leave_mark", orphans.leave_mark)
    for name in [name for name in os.environ if name.startswith(("PET_", "ELASTICJOB_"))]:
        monkeypatch.delenv(name)
    given = {"PET_RDZV_BACKEND": "elasticjob", "PET_RDZV_CONF": "x=1", "PET_NNODES": "1:2", "PET_LOG_DIR": "/logs"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    handler = plugin.create_handler(parameters(sidecar))
    try:
        assert run([sys.executable, "-S", "-c", SHOW_JOB]).stdout == "['ELASTICJOB_AGENT', 'ELASTICJOB_ENDPOINT']\n"
        assert endpoint_of(os.environ) == f"127.0.0.1:{sidecar.port}"
    finally:
        handler.shutdown()
    left = run([sys.executable, "-S", "-c", SHOW_JOB]).stdout
    assert left == f"{sorted(given)}\n", "a later torchrun of the program takes part in the job again"


@pytest.mark.parametrize("config", [{"join_timout": "3"}, {"sidecar_timeout": "0.1"}])
def test_a_wrong_start_is_one_sentence(plugin, sidecar, config):
    sidecar.stop()
    with pytest.raises(SystemExit, match=r"^elasticjob: [^\n]+$"):
        plugin.create_handler(parameters(sidecar, **config))


def test_set_closed(torch, sidecar, handler):
    handler.set_closed()
    assert len(sidecar.said("POST /v1/close")) == 1
    sidecar.answers["POST /v1/close"] = [refusal(504, "ApiServerAway", "no API server")]
    with pytest.raises(torch.RendezvousConnectionError, match="no API server"):
        handler.set_closed()


def test_shutdown_after_success_finishes(sidecar, handler):
    store = enter(sidecar, handler, 5).store
    sidecar.answers["POST /v1/finish"] = [refusal(504, "ApiServerAway")]
    store.add(MEMBERS, 1)
    assert handler.shutdown()
    assert [body["round"] for body in sidecar.said("POST /v1/finish")] == [5, 5]
    assert sidecar.said("POST /v1/leave") == []


def test_shutdown_without_the_exit_barrier_leaves(sidecar, handler):
    """Some agents call it while no exception is in flight though training processes have failed."""
    enter(sidecar, handler, 5)
    assert handler.shutdown()
    assert [body["cause"] for body in sidecar.said("POST /v1/leave")] == ["TrainerLeft"]
    assert sidecar.said("POST /v1/finish") == []


@pytest.mark.parametrize(
    ("error", "causes"),
    [
        (RuntimeError("a child failed"), ["TrainerLeft"]),
        (SystemExit(1), ["TrainerLeft"]),
        (SignalException("stopped", 15), []),
    ],
)
def test_shutdown_after_failure_leaves(sidecar, handler, error, causes):
    enter(sidecar, handler, 5)

    def run():
        try:
            raise error
        finally:
            assert handler.shutdown()

    with pytest.raises(type(error)):
        run()
    assert [body["cause"] for body in sidecar.said("POST /v1/leave")] == causes
    assert sidecar.said("POST /v1/finish") == []


def test_a_wait_ends_with_the_round(sidecar, handler):
    store = enter(sidecar, handler, 1).store
    threading.Timer(0.05, sidecar.tell, kwargs={"round": 2, "phase": "Forming"}).start()
    with pytest.raises(DistStoreError, match="the round ended while waiting for key"):
        store.get("key")


def test_a_wait_has_the_stores_timeout(sidecar, handler):
    store = enter(sidecar, handler, 1).store
    assert store.timeout == timedelta(seconds=300)
    store.set_timeout(timedelta(seconds=0.01))
    with pytest.raises(DistStoreError, match=r"wait timeout after 0\.01 s: key did not come"):
        store.wait(["key"])


def test_the_exit_barrier_tells_that_the_work_is_done(sidecar, handler):
    store = enter(sidecar, handler, 3, world_size=1).store
    assert store.add(MEMBERS, 1) == 1
    assert [body["round"] for body in sidecar.said("POST /v1/finish")] == [3]
    store.set(LAST_MEMBER, "done")
    store.wait([LAST_MEMBER])
    assert handler.shutdown()
    assert len(sidecar.said("POST /v1/finish")) == 1


def test_other_counters_tell_nothing(sidecar, handler):
    store = enter(sidecar, handler, 3).store
    assert store.add("counter", 2) == 2
    assert sidecar.said("POST /v1/finish") == []


@pytest.mark.parametrize("change", [{"round": 4, "phase": "Forming"}, {"closed": True, "outcome": "Complete"}])
def test_a_finished_agent_does_not_wait_for_a_round_that_is_over(sidecar, handler, change):
    store = enter(sidecar, handler, 3).store
    store.add(MEMBERS, 1)
    threading.Timer(0.05, sidecar.tell, kwargs={"phase": "Closed", **change}).start()
    store.wait([LAST_MEMBER])


def test_what_a_finished_agent_waits_for_is_told(sidecar, handler, monkeypatch, caplog):
    monkeypatch.setattr(sys.modules["elasticjob_torch.agent.store"], "_LOG_SECONDS", 0.05)
    caplog.set_level("INFO")
    store, told = enter(sidecar, handler, 3).store, f"waiting for {LAST_MEMBER} in the round's store for "

    def end_the_round() -> None:
        try:
            wait_until("what it waits for", lambda: any(line.startswith(told) for line in caplog.messages))
        finally:
            sidecar.tell(round=4, phase="Forming")

    with ThreadPoolExecutor(1) as meanwhile:
        ending = meanwhile.submit(end_the_round)
        store.wait([LAST_MEMBER])
        result_of(ending)


def test_a_finished_agent_does_not_mind_that_the_store_has_ended(sidecar, handler):
    FakeTCPStore.servers[40000] = {}
    sidecar.answers[STORE] = [(200, {"host": "127.0.0.1", "port": 40000})]
    sidecar.answers[JOIN] = [handed(3, rank=1)]
    store = handler.next_rendezvous().store
    FakeTCPStore.down.add(40000)
    assert store.add(MEMBERS, 1) == 0
    store.wait([LAST_MEMBER])
    with pytest.raises(RuntimeError, match="closed"):
        store.check(["key"])


# --- what is wrapped in torch's agent


def test_an_agent_joins_again_when_the_round_breaks_while_ranks_are_given_out(sidecar, handler):
    sidecar.answers[JOIN] = [handed(1), handed(2)]
    serves(sidecar)
    group = types.SimpleNamespace(handler=handler)
    agent = new_agent()

    def break_round():
        sidecar.await_(lambda: sidecar.said("POST /v1/store"), "round 1 to be in use")
        sidecar.tell(round=2, phase="Forming")
        sidecar.await_(lambda: len(sidecar.said("POST /v1/store")) == 2, "round 2 to be in use")
        FakeTCPStore.servers[sidecar.said("POST /v1/store")[1]["port"]]["ranks/0"] = b"mine"

    breaker = threading.Thread(target=break_round)
    breaker.start()
    agent._rendezvous(group)
    breaker.join()
    assert group.ranks == b"mine"
    assert [(body["after"], body["cause"]) for body in sidecar.said(JOIN)] == [(0, "Started"), (1, "MembershipChanged")]


def test_other_errors_of_an_agent_are_its_own(handler):
    agent = new_agent()
    with pytest.raises(AttributeError, match="handler"):
        agent._rendezvous(types.SimpleNamespace())


@pytest.mark.parametrize(("given", "signalled"), [((), None), ((15,), 15), ((15, 60), 15), ((15, 3), 15)])
@pytest.mark.parametrize("of_the_job", ["1", "7", "60", "86400"])
def test_processes_are_stopped_within_the_jobs_time_whatever_torch_says(
    plugin, sidecar, monkeypatch, given, signalled, of_the_job
):
    context = sys.modules["torch.distributed.elastic.multiprocessing"].PContext()
    for seconds in ("20", of_the_job):  # the newest counts
        monkeypatch.setenv("ELASTICJOB_STOP_SECONDS", seconds)
        plugin.create_handler(parameters(sidecar)).shutdown()
    context.close(*given)
    assert context.closed == (signalled, float(of_the_job))


def test_an_agent_stopped_by_a_signal_gives_its_processes_torchs_time(plugin, sidecar, monkeypatch):
    monkeypatch.setenv("ELASTICJOB_STOP_SECONDS", "7")
    plugin.create_handler(parameters(sidecar)).shutdown()
    context = sys.modules["torch.distributed.elastic.multiprocessing"].PContext()
    try:
        raise SignalException("stopped", 15)  # noqa: TRY301
    except SignalException:
        context.close(15)
    assert context.closed == (15, 30)


def start_processes(*run_ids):
    """torch's agent starts processes; return their environments, as torch names a folder of logs by them."""
    environments = {n: {"TORCHELASTIC_RUN_ID": run, "TORCHELASTIC_RESTART_COUNT": "0"} for n, run in enumerate(run_ids)}
    context = sys.modules["torch.distributed.elastic.multiprocessing"].PContext("trainer", "python", {}, environments)
    return context.logged


def test_each_start_of_processes_has_an_id_and_what_is_the_rounds(sidecar, handler):
    enter(sidecar, handler, 1)
    first = start_processes(RUN_ID, RUN_ID)
    enter(sidecar, handler, 4)  # after three that this agent had no part in
    second = start_processes(RUN_ID, RUN_ID)
    assert [each["TORCHELASTIC_RESTART_COUNT"] for each in (*first, *second)] == ["0", "0", "3", "3"]
    addresses = [each["ELASTICJOB_MASTER_ADDRESS"] for each in (*first, *second)]
    assert addresses == ["10.0.0.1", "10.0.0.1", "10.0.0.4", "10.0.0.4"]
    ids = [each["ELASTICJOB_START"] for each in (*first, *second)]
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_a_handler_that_is_dropped_is_gone(plugin, sidecar):
    """With its stream, by which the sidecar knows of it; nothing that was done to torch keeps it."""
    handler = plugin.create_handler(parameters(sidecar))
    sidecar.await_(lambda: sidecar.streams == 1, "the stream")
    del handler
    gc.collect()
    sidecar.await_(lambda: sidecar.streams == 0, "its end")
    (told,) = start_processes(RUN_ID)
    assert told == {"TORCHELASTIC_RUN_ID": RUN_ID, "TORCHELASTIC_RESTART_COUNT": "0"}


def test_processes_of_another_agent_are_told_nothing(sidecar, handler):
    enter(sidecar, handler, 4)
    (told,) = start_processes("none")
    assert told == {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}


@pytest.mark.parametrize(
    ("command", "of_the_job", "identical"),
    [
        ("/usr/bin/torchrun train.py", "8", "1"),
        ("/lib/python3/torch/distributed/run.py --nnodes=2 train.py --nproc-per-node=3", "8", "1"),
        ("torchrun --nproc-per-node=8 train.py", "8", None),
        ("torchrun --nproc_per_node gpu train.py", "1", None),
        ("torchrun --nproc=gpu train.py", "1", None),
        ("torchrun train.py", "gpu", None),
        ("torchrun train.py", "", None),
        ("torchrun --unknown=1 train.py", "8", None),
        ("/usr/bin/accelerate launch train.py", "8", None),
    ],
)
def test_workers_are_identical_if_torchrun_takes_the_number_from_the_job(
    plugin, sidecar, monkeypatch, capfd, command, of_the_job, identical
):
    monkeypatch.setattr(sys, "argv", command.split())
    monkeypatch.setenv("PET_NPROC_PER_NODE", of_the_job)
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "")
    monkeypatch.delenv("TORCH_ELASTIC_WORKER_IDENTICAL")
    plugin.create_handler(parameters(sidecar)).shutdown()
    assert os.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL") == identical
    assert "usage" not in capfd.readouterr().err


def test_what_the_user_says_of_identical_workers_counts(plugin, sidecar, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["torchrun", "train.py"])
    monkeypatch.setenv("PET_NPROC_PER_NODE", "8")
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "0")
    plugin.create_handler(parameters(sidecar)).shutdown()
    assert os.environ["TORCH_ELASTIC_WORKER_IDENTICAL"] == "0"


def test_an_agent_looks_when_the_sidecar_has_told_something(sidecar, handler):
    looks = []

    def look(group):
        looks.append(handler.num_nodes_waiting())
        if looks[-1] == 0:
            sidecar.tell(round=2, phase="Forming", waiting=1)
        return looks[-1]

    enter(sidecar, handler, 1)
    agent = new_agent(handler, look)
    running = threading.Thread(target=agent._invoke_run, args=("role",), daemon=True)
    running.start()
    sidecar.tell(round=1, phase="Formed", handed=1)
    joined(running)  # the monitor interval is 600 s
    assert looks
    assert looks[-1] == 1
    assert 0 < agent.group.spec.monitor_interval < 0.001


@pytest.mark.parametrize(("of_the_job", "restarts"), [("2147483647", 2**31 - 1), ("", 0)])
def test_an_agent_starts_processes_again_as_often_as_the_job_allows(plugin, sidecar, monkeypatch, of_the_job, restarts):
    """Whatever its launcher says: accelerate says 0."""
    monkeypatch.setenv("PET_MAX_RESTARTS", of_the_job)
    handler = plugin.create_handler(parameters(sidecar))
    agent = new_agent(handler)
    handler.shutdown()
    assert (agent.remaining_restarts, agent.group.spec.max_restarts) == (restarts, restarts)


def test_an_agent_of_another_backend_keeps_its_restarts(handler):
    assert new_agent(object()).remaining_restarts == 0


def test_an_agent_of_another_backend_keeps_torchs_interval(handler):
    agent = new_agent(object(), lambda group: True)
    assert agent._invoke_run("role") == "role"
    assert agent.group.spec.monitor_interval == 600
    assert "_monitor_workers" not in vars(agent)


def test_the_end_of_a_process_that_is_stopped_is_heard(plugin, sidecar, monkeypatch):
    def look_now_and_then(seconds):
        pytest.fail(f"slept {seconds} s")

    plugin.create_handler(parameters(sidecar)).shutdown()
    context = sys.modules["torch.distributed.elastic.multiprocessing"].PContext()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        context.subprocess_handlers, context.error_files = {0: types.SimpleNamespace(proc=process)}, {}
        context.close()
        assert context.closed == (None, 30)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        monkeypatch.setattr(time, "sleep", look_now_and_then)
        killer = threading.Timer(0.1, process.terminate)
        killer.start()
        assert process.wait(86400) == process.wait() == -signal.SIGTERM  # the longest stopSeconds
        killer.join()


# --- one function


@pytest.mark.parametrize(
    ("version", "can"), [("2.6.0", False), ("2.7.1+cu126", False), ("2.8.0", True), ("2.15.0", True), ("3.0", True)]
)
def test_which_torch_serves_on_a_given_socket_with_libuv(plugin, version, can):
    store = importlib.import_module("elasticjob_torch.agent.tcp_store")
    assert store._libuv_takes_a_socket(version) is can


def test_the_entry_point_loads_no_torch(monkeypatch):
    assert not [name for name in sys.modules if name == "torch" or name.startswith("torch.")]
    monkeypatch.delitem(sys.modules, "elasticjob_torch", raising=False)
    package = importlib.import_module("elasticjob_torch")
    assert package.creator() is package.creator()
    assert "torch" not in sys.modules


def test_when_nobody_takes_steps_the_agent_looks_at_its_processes(sidecar, handler):
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    serves(sidecar)
    sidecar.answers[JOIN] = [handed(1)]
    handler.next_rendezvous()
    handler.await_update(0.01, [child.pid])
    assert not sidecar.said("POST /v1/processes")
    view = handler._membership.view or View(round=1, phase=Phase.FORMED)
    handler._membership._events.view = replace(view, round=1, handed=1, stalled=True)
    handler.await_update(0.01, [child.pid])
    sidecar.await_(lambda: sidecar.said("POST /v1/processes"), "what it does")
    (said,) = sidecar.said("POST /v1/processes")
    assert (said["round"], said["state"], said["local_rank"]) == (1, "Waits", 0)
    child.stdin.close()
    child.wait()


# --- processes that live through changes


class FakeLiving:
    """Training processes that have opted in, and wait between two steps when the test says so."""

    def __init__(self, news):
        self.variables, self.waits, self.entered = {}, False, []

    def started(self, start, count):
        self.waits = False

    def have_opted_in(self):
        return True

    def wait(self):
        return self.waits

    some_wait = wait

    def busy(self):
        return [] if self.waits else [False]

    def enter(self, number, places):
        self.waits = False
        self.entered.append((number, places))

    def over(self, number):
        self.waits = True

    def close(self):
        self.variables = None


@pytest.fixture
def living(monkeypatch):
    monkeypatch.setattr("elasticjob_torch.agent.going_on.Living", FakeLiving)


class LiveAgent(FakeAgent):
    """As torch's agent: its rendezvous makes new records of the workers, without pids."""

    def _rendezvous(self, group):
        self.info = group.spec.rdzv_handler.next_rendezvous()
        record = {"local_rank": 0, "id": None, "global_rank": self.info.rank, "world_size": self.info.world_size}
        roles = {"role_rank": self.info.rank, "role_world_size": self.info.world_size}
        group.workers = [types.SimpleNamespace(**record, **roles)]
        group.group_rank, group.group_world_size = self.info.rank, self.info.world_size
        group.master_addr, group.master_port = self.info.bootstrap_store_info


def live_agent(handler, looks):
    """An agent whose looks find healthy processes, until they are all done."""
    looks = iter(looks)

    def look(group):
        if (do := next(looks, None)) is None:
            return types.SimpleNamespace(state="SUCCEEDED")
        do(group)
        return types.SimpleNamespace(state="HEALTHY", __bool__=lambda self: False)

    agent = new_agent(handler, look, LiveAgent)
    agent.group.workers = [types.SimpleNamespace(id=os.getpid(), local_rank=0)]
    return agent


def run_agent(plugin, agent, looks):
    """Let an agent look so many times, as torch's `_invoke_run` does."""
    from elasticjob_torch.agent import hooks

    def invoke(agent):
        for _ in range(looks):
            agent._monitor_workers(agent.group)
            agent.waiting = agent.get_worker_group().spec.rdzv_handler.num_nodes_waiting()

    hooks._looking_at_updates(invoke)(agent)


def test_processes_that_wait_are_kept_in_the_next_round(sidecar, plugin, living, handler):
    enter(sidecar, handler, 1)
    handler.variables_for({0: {"RANK": "0"}})
    agent = live_agent(handler, [lambda group: None] * 2)
    sidecar.tell(round=2, phase="Forming", changed=True, handed=1)
    wait_until("the news", lambda: handler._membership.view is not None and handler._membership.view.round == 2)
    sidecar.answers[JOIN] = [handed(2, rank=0, world_size=3)]
    run_agent(plugin, agent, 1)
    assert [(body["after"], body["cause"], body.get("live")) for body in sidecar.said(JOIN)][1:] == [
        (1, "MembershipChanged", True)
    ]
    assert agent.group.workers[0].id == os.getpid()
    assert agent.waiting == 0
    number, places = handler._going_on._living.entered[-1]
    assert number == 2
    assert places[0] == {
        "RANK": "0",
        "WORLD_SIZE": "3",
        "ROLE_RANK": "0",
        "ROLE_WORLD_SIZE": "3",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "27400",
        "ELASTICJOB_MASTER_ADDRESS": "10.0.0.2",
        "TORCHELASTIC_RESTART_COUNT": "1",
    }


def test_processes_that_have_to_be_new_are_left_to_torch(sidecar, plugin, living, handler):
    enter(sidecar, handler, 1)
    handler.variables_for({0: {"RANK": "0"}})
    agent = live_agent(handler, [lambda group: None])
    sidecar.tell(round=2, phase="Forming", changed=True, handed=1)
    wait_until("the news", lambda: handler._membership.view is not None and handler._membership.view.round == 2)
    sidecar.answers[JOIN] = [refusal(409, "NewProcesses")]
    run_agent(plugin, agent, 1)
    assert [worker.id for worker in agent.group.workers] == [os.getpid()]
    sidecar.tell(restart=True)
    wait_until("torch to stop them", handler.num_nodes_waiting)


def test_a_newcomer_of_a_live_job_joins_once_its_processes_are_ready(sidecar, plugin, living, handler):
    serves(sidecar)
    sidecar.tell(round=5, phase="Formed", live=True, worldSize=2)
    wait_until("the news", lambda: handler._membership.view is not None and handler._membership.view.live)
    info = handler.next_rendezvous()
    assert (info.rank, info.world_size, sidecar.said(JOIN)) == (0, 1, [])
    handler.variables_for({0: {"RANK": "0"}})
    assert not handler.goes_on()
    assert handler.num_nodes_waiting() == 0
    handler._going_on._living.waits = True
    assert handler.goes_on()
    sidecar.answers[JOIN] = [handed(6, rank=0, world_size=3)]
    assert handler.next_rendezvous().world_size == 3
    assert [(body["cause"], body["live"]) for body in sidecar.said(JOIN)] == [("Started", True)]
    assert sidecar.said("POST /v1/leave") == []


def test_a_live_worker_whose_process_failed_leaves_until_another_is_ready(sidecar, plugin, living, handler):
    enter(sidecar, handler, 1)
    sidecar.tell(round=1, phase="Formed", handed=1, live=True)
    wait_until("the news", lambda: handler._membership.view is not None and handler._membership.view.live)
    failed(0, 42)
    assert handler.next_rendezvous().world_size == 1
    (left,) = sidecar.said("POST /v1/leave")
    assert (left["cause"], left["detail"], left["exitCode"]) == ("WorkerFailed", "local rank 0, exit code 42", 42)
    failed(0, 1)  # it fails again before it is ready: from now on as if it did not live
    sidecar.answers[JOIN] = [handed(2)]
    assert handler.next_rendezvous().world_size == 2
    assert sidecar.said(JOIN)[-1]["live"] is False
