# SPDX-License-Identifier: Apache-2.0
"""Every member of torch's rendezvous interface, as this torch has it, with real parts behind it."""

import gc
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import DistStoreError, PrefixStore, TCPStore
from torch.distributed.elastic import rendezvous as torch_rendezvous
from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from contract.agents import SECONDS, Agent, form, parameters, until
from contract.plane import Job, View
from elasticjob_torch import creator
from elasticjob_torch.agent.handler import ElasticJobRendezvousHandler
from elasticjob_torch.legacy import (
    LegacyRendezvousHandler,
    RendezvousClosedException,
    RendezvousHandlerFactory,
    RendezvousNonRetryableError,
    RendezvousTimeoutException,
)
from support.waiting import result_of, run

NewJob = Callable[..., Job]
WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture
def agent(new_job: NewJob) -> Any:
    """The agent of a job of one worker."""
    with Agent(new_job(replicas=1).pods(1)[0]) as one:
        yield one


def test_every_member_that_this_torch_names_is_there() -> None:
    for name, member in inspect.getmembers(RendezvousHandler):
        if not name.startswith("_"):
            ours = inspect.getattr_static(ElasticJobRendezvousHandler, name)
            assert ours is not inspect.getattr_static(RendezvousHandler, name), f"{name} is torch's default"
            assert isinstance(ours, property) == isinstance(member, property), name
    assert not inspect.isabstract(ElasticJobRendezvousHandler)


def test_what_the_handler_says_of_itself(agent: Agent) -> None:
    handler = agent.handler
    assert isinstance(handler, ElasticJobRendezvousHandler)
    assert handler.get_backend() == agent.pod["environment"]["PET_RDZV_BACKEND"] == "elasticjob"
    assert handler.get_run_id() == agent.pod["environment"]["PET_RDZV_ID"]
    assert handler.use_agent_store is True
    assert handler.is_closed() is False
    assert handler.num_nodes_waiting() == 0


def test_the_info_of_a_round(agent: Agent) -> None:
    (info,) = form([agent])
    assert isinstance(info, RendezvousInfo)
    assert (info.rank, info.world_size) == (0, 1)
    where = info.bootstrap_store_info
    assert isinstance(where, RendezvousStoreInfo)
    assert (where.master_addr, where.master_port) == (agent.pod["address"], 27400)
    info.store.set("key", "value")
    workers = TCPStore(where.master_addr, where.master_port, is_master=False, timeout=timedelta(seconds=SECONDS))
    assert workers.get("key") == b"value"


def test_store_info_can_be_built_on_the_rounds_store(new_job: NewJob) -> None:
    pods = new_job(replicas=2).pods(2)
    with Agent(pods[0]) as one, Agent(pods[1]) as other:
        stores = [PrefixStore("build", info.store) for info in form([one, other])]
        built = [RendezvousStoreInfo.build(rank, store, "127.0.0.1") for rank, store in enumerate(stores)]
    assert built[0] == built[1]
    assert built[0].master_addr == "127.0.0.1"


def test_an_agent_that_needs_no_store_for_its_rank_connects_at_its_first_use(
    new_job: NewJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = new_job(replicas=2).pods(2)
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "1")
    with Agent(pods[0]) as one, Agent(pods[1]) as other:
        for _ in range(2):
            served, unused = (info.store for info in form([one, other]))
            assert served.num_keys() == 0
            unused.set("key", "value")
            assert served.get("key") == b"value"
        _, unused = (info.store for info in form([one, other]))
        form([one, other])
        with pytest.raises(DistStoreError):
            unused.set("key", "value")


def test_asking_again_gives_the_next_round(agent: Agent) -> None:
    (first,) = form([agent])
    (second,) = form([agent])
    assert (first.rank, second.rank) == (0, 0)
    assert first.store is not second.store


def test_the_entry_point_is_the_backend() -> None:
    (found,) = entry_points(group="torchrun.handlers", name="elasticjob")
    assert found.load() is creator
    params = RendezvousParameters("elasticjob", "10.0.0.1:27600", "uid", 1, 1)
    with pytest.raises(SystemExit, match="--rdzv-endpoint"):
        get_rendezvous_handler(params)
    with pytest.raises(ValueError, match="elasticjob"):
        rendezvous_handler_registry.register("elasticjob", lambda _: None)


def test_parameters_are_read_as_torch_reads_them(new_job: NewJob) -> None:
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    ours = {"join_timeout": "30", "close_timeout": 20, "last_call_timeout": "7"}
    params = parameters(pod, **ours, is_host="true", cas_backoff_max_seconds="0.5", timeout=900)
    assert params.get("join_timeout") == "30"
    assert params.get_as_int("join_timeout") == 30
    assert params.get_as_int("close_timeout") == 20
    assert params.get_as_bool("is_host") is True
    assert params.get("absent", "default") == "default"
    with Agent(pod, **{**params.config, "keep_alive_interval": 4, "keep_alive_max_attempt": "5"}) as agent:
        form([agent])
        request = job.view()["workers"][pod["name"]]["spec"]["request"]
        assert (request["lastCallSeconds"], request["workerLostSeconds"]) == (7, 20)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"last_call": "5"}, "unknown key 'last_call'"),
        ({"close_timeout": "soon"}, "close_timeout=soon"),
        ({"last_call_timeout": "2.5"}, "last_call_timeout=2.5"),
        ({"keep_alive_interval": "1"}, "keep_alive_interval"),
    ],
)
def test_a_wrong_parameter_ends_with_a_sentence_that_names_it(config: dict[str, str], said: str) -> None:
    params = RendezvousParameters("elasticjob", "127.0.0.1:27600", "uid", 1, 1, **config)
    with pytest.raises(SystemExit, match=said):
        get_rendezvous_handler(params)


def test_a_sidecar_that_stays_away_is_a_connection_error_and_no_news(new_job: NewJob) -> None:
    """While agents poll nothing is raised; who needs an answer gets torch's error."""
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    job.wait(lambda view: pod["name"] in view["workers"], "the sidecar to be there")
    with Agent(pod, sidecar_timeout="3", close_timeout="1") as agent:
        form([agent])
        job.delete_pod(pod["name"])
        job.exited(pod["name"], 143)
        job.wait(lambda view: pod["name"] not in [one["name"] for one in view["pods"]], "the pod to go")
        assert agent.waiting() in (0, 1)
        with pytest.raises(RendezvousConnectionError):
            result_of(agent.do(lambda handler: handler.set_closed()), SECONDS)
        with pytest.raises(RendezvousConnectionError):
            result_of(agent.join(), SECONDS)
        assert result_of(agent.succeed(), SECONDS) is False


def see_request(job: Job, pod: View, kind: str, cause: str) -> None:
    """What was recorded is seen a little later."""

    def asks(view: View) -> bool:
        request = view["workers"][pod["name"]]["spec"].get("request") or {}
        return (request.get("type"), request.get("cause")) == (kind, cause)

    job.wait(asks, f"{pod['name']} to ask {kind} for {cause}")


def test_shutdown_is_no_success_by_itself(new_job: NewJob) -> None:
    """As a caller of `agent.run()` does it, whatever the result: no exception is in flight."""
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    with Agent(pod) as agent:
        form([agent])
        assert result_of(agent.do(lambda handler: handler.shutdown()), SECONDS) is True
        assert result_of(agent.do(lambda handler: handler.shutdown()), SECONDS) is True
    see_request(job, pod, "Leave", "TrainerLeft")


def test_a_handler_that_is_dropped_is_gone(new_job: NewJob) -> None:
    """Its threads end, and the sidecar sees it go. torch's own handlers end so as well, when nobody refers to them."""
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    of_others = own_threads()  # of an earlier test, which may be about to end
    handler = get_rendezvous_handler(parameters(pod))
    info = handler.next_rendezvous()
    info.store.set("key", "value")
    clone = info.store.clone() if hasattr(info.store, "clone") else None
    before = own_threads() - of_others
    assert len(before) == (2 if clone is None else 3)
    del handler, info, clone
    gc.collect()
    until(lambda: not before & own_threads(), f"the end of {before}")
    job.wait(lambda view: left(view["workers"][pod["name"]]) == "AgentLost", "the sidecar to see it")


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("elasticjob-")}


def left(worker: Any) -> str | None:
    request = worker["spec"].get("request") or {}
    return request.get("cause") if request.get("type") == "Leave" else None


def test_shutdown_after_a_failure_leaves_the_job_open(new_job: NewJob) -> None:
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    with Agent(pod) as agent:
        form([agent])
        assert result_of(agent.fail(), SECONDS) is True
    see_request(job, pod, "Leave", "TrainerLeft")
    with Agent(pod) as successor:
        form([successor])
        assert result_of(successor.succeed(), SECONDS) is True
        job.exited(pod["name"], 0)
        job.closed("Complete")


def test_the_older_shape(new_job: NewJob) -> None:
    """A tuple, and the exceptions of torchelastic 0.2; they are kinds of today's."""
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    handler = RendezvousHandlerFactory().create_rdzv_handler(parameters(pod, join_timeout="20"))
    assert isinstance(handler, LegacyRendezvousHandler)
    store, rank, world_size = handler.next_rendezvous()
    store.set("key", "value")
    assert (rank, world_size, store.get("key")) == (0, 1, b"value")
    assert (handler.get_backend(), handler.get_run_id()) == ("elasticjob", pod["environment"]["PET_RDZV_ID"])
    assert (handler.num_nodes_waiting(), handler.is_closed()) == (0, False)
    handler.set_closed()
    until(handler.is_closed, "the close to be known")
    with pytest.raises(RendezvousClosedException):
        handler.next_rendezvous()
    assert handler.shutdown() is True


def test_the_older_exceptions(new_job: NewJob) -> None:
    job = new_job(replicas=2, minReplicas=2, rendezvous={"startTimeoutSeconds": 2})
    (pod, _) = job.pods(2)
    handler = RendezvousHandlerFactory().create_handler(parameters(pod))
    with pytest.raises(RendezvousTimeoutException):
        handler.next_rendezvous()
    for name in ("Closed", "Timeout"):
        older = {"Closed": RendezvousClosedException, "Timeout": RendezvousTimeoutException}[name]
        assert issubclass(older, getattr(torch_rendezvous, f"Rendezvous{name}Error"))


def test_the_older_exception_of_a_sidecar_that_is_gone(new_job: NewJob) -> None:
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    job.wait(lambda view: pod["name"] in view["workers"], "the sidecar to be there")
    handler = RendezvousHandlerFactory().create_handler(parameters(pod, sidecar_timeout="5"))
    job.delete_pod(pod["name"])
    job.exited(pod["name"], 143)
    job.wait(lambda view: pod["name"] not in [one["name"] for one in view["pods"]], "the pod to go")
    with pytest.raises(RendezvousNonRetryableError):
        handler.set_closed()
    handler.shutdown()
    assert issubclass(RendezvousNonRetryableError, RendezvousError)


def test_the_older_factory_knows_what_is_registered() -> None:
    factory = RendezvousHandlerFactory()
    params = RendezvousParameters("mine", "", "uid", 1, 1)
    with pytest.raises(ValueError, match="'mine' is not registered"):
        factory.create_rdzv_handler(params)
    factory.register("mine", lambda given: given.run_id)
    assert factory.create_rdzv_handler(params) == factory.create_handler(params) == "uid"
    with pytest.raises(ValueError, match="'mine' is registered already"):
        factory.register("mine", lambda _: None)


LAUNCHER = Path(__file__).with_name("launcher.py")


@pytest.mark.parametrize(
    ("command", "identical"),
    [
        (["torchrun"], "1"),
        ([sys.executable, str(LAUNCHER), "--num_processes=1", "--rdzv_backend=elasticjob"], None),
    ],
    ids=["torchrun", "as accelerate does"],
)
def test_a_command_with_nothing_but_the_environment(
    new_job: NewJob, tmp_path: Path, command: list[str], identical: str | None
) -> None:
    """As in a pod: the operator's variables, and a command line that knows nothing of this backend. `contract.trainers`
    starts torchrun by its module's name.

    Where torchrun takes the number of processes from the job, ranks need no exchange through the store.
    """
    job = new_job(replicas=1)
    (pod,) = job.pods(1)
    (tmp_path / "finish").touch()
    ours = {"CONTRACT": str(tmp_path), "CONTRACT_POD": pod["name"], "PYTHONPATH": os.environ["PYTHONPATH"]}
    ended = run([*command, str(WORKER)], SECONDS, env={**os.environ, **pod["environment"], **ours})
    assert ended.returncode == 0, ended.stderr
    assert "elasticjob: round 1: rank 0 of 1" in ended.stderr
    assert json.loads((tmp_path / "events").read_text())["identical"] == identical
    job.exited(pod["name"], 0)
    job.closed("Complete")
