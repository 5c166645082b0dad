# SPDX-License-Identifier: Apache-2.0
"""What torch's documents promise of a rendezvous, term by term."""

import concurrent.futures
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import Store
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousTimeoutError

from contract.agents import SECONDS, Agent, form, until
from contract.plane import Job, rendezvous
from elasticjob.members import Members
from elasticjob_torch.wire import LEFT_EXIT_CODE
from support.waiting import result_of

Start = Callable[..., Agent]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts an agent in a pod; each is stopped at the end of the test."""
    agents: list[Agent] = []

    def make(pod: Any, **config: Any) -> Agent:
        agents.append(Agent(pod, **config))
        return agents[-1]

    yield make
    for agent in agents:
        agent.stop()


def ranks(infos: list[Any]) -> list[int]:
    return [info.rank for info in infos]


def is_told(agent: Agent) -> None:
    until(agent.waiting, f"{agent.pod['name']} to be told of a change")


@pytest.mark.any_torch
def test_complete_at_max_at_once(new_job: Callable[..., Job], start: Start) -> None:
    """ "Barrier": with all workers there, nobody waits for the last call."""
    job = new_job(replicas=2, minReplicas=1, rendezvous={"lastCallSeconds": 600})
    infos = form([start(pod) for pod in job.pods(2)])
    assert ranks(infos) == [0, 1]
    assert [info.world_size for info in infos] == [2, 2]


@pytest.mark.any_torch
def test_complete_at_min_after_the_last_call(new_job: Callable[..., Job], start: Start) -> None:
    """ "Barrier", "last call": with the minimum there, the round waits for those on their way, but not for ever."""
    job = new_job(replicas=2, minReplicas=1, rendezvous={"lastCallSeconds": 600})
    first, _ = job.pods(2)
    began = time.monotonic()
    (info,) = form([start(first, last_call_timeout="2")])
    assert (info.rank, info.world_size) == (0, 1)
    assert time.monotonic() - began >= 2
    assert job.view()["workers"][first["name"]]["spec"]["request"]["lastCallSeconds"] == 2


@pytest.mark.any_torch
def test_below_min_nothing_completes(new_job: Callable[..., Job], start: Start) -> None:
    """ "Barrier": below the minimum also the last call completes nothing."""
    job = new_job(replicas=2, minReplicas=2, rendezvous={"lastCallSeconds": 1})
    one, other = (start(pod) for pod in job.pods(2))
    joined = one.join()
    with pytest.raises(TimeoutError):
        joined.result(2.5)
    assert ranks([*form([other]), result_of(joined, SECONDS)]) == [1, 0]


@pytest.mark.any_torch
def test_a_newcomer_waits_until_the_group_has_re_formed(new_job: Callable[..., Job], start: Start) -> None:
    """ "Exclusivity", "waiting": there is one group at a time; who comes later waits, and the group is told."""
    job = new_job(replicas=1, maxReplicas=4)
    member = start(job.pods(1)[0])
    form([member])
    assert member.waiting() == 0
    job.scale(3)
    newcomers = [start(pod) for pod in job.pods(3)[1:]]
    joins = [agent.join() for agent in newcomers]
    until(lambda: member.waiting() == 2, "both newcomers to be waiting")
    job.wait(lambda view: rendezvous(view)["phase"] == "Forming", "the round to be opened again")
    assert not any(join.done() for join in joins)
    infos = [*form([member]), *(result_of(join, SECONDS) for join in joins)]
    assert ranks(infos) == [0, 1, 2]
    assert member.waiting() == 0


@pytest.mark.any_torch
def test_a_spare_that_is_not_needed_any_more_ends_by_itself(new_job: Callable[..., Job], start: Start) -> None:
    """ "Exclusivity": a worker for which there is no place any more ends, and the group never notices."""
    job = new_job(replicas=1, maxReplicas=2)
    member = start(job.pods(1)[0])
    form([member])
    job.scale(2)
    spare = start(job.pods(2)[1])
    job.wait(lambda view: spare.pod["name"] in view["workers"], "the spare's record")
    job.scale(1)
    job.wait(lambda view: rendezvous(view).get("leaving"), "the spare to be told")
    with pytest.raises(SystemExit) as ended:
        result_of(spare.join(), SECONDS)
    assert ended.value.code == LEFT_EXIT_CODE
    result_of(spare.fail(SystemExit), SECONDS)  # as torch's agent does then
    job.exited(spare.pod["name"], LEFT_EXIT_CODE)
    job.wait(lambda view: len(view["pods"]) == 1, "the spare's pod to go")
    assert member.waiting() == 0
    assert job.formed(1)["worldSize"] == 1


@pytest.mark.any_torch
def test_all_agree_on_members_and_ranks_beyond_ten(new_job: Callable[..., Job], start: Start) -> None:
    """ "Consistency": all members agree on who takes part, and each has a rank of its own, in numeric order. Upstream
    sorts names, so that worker 10 comes before worker 2."""
    job = new_job(replicas=12)
    pods = job.pods(12)
    infos = form([start(pod) for pod in pods])
    assert ranks(infos) == [pod["index"] for pod in pods] == list(range(12))
    assert {info.world_size for info in infos} == {12}
    members = [member.index for member in Members.read(job.formed(1)["participants"])]
    assert members == list(range(12))


@pytest.mark.any_torch
def test_a_loss_before_completion_is_made_good(new_job: Callable[..., Job], start: Start) -> None:
    """ "Fault tolerance": who is lost before the round is complete is replaced, and the others go on waiting."""
    job = new_job(replicas=3, minReplicas=3)
    pods = job.pods(3)
    survivor, lost = start(pods[0]), start(pods[1])
    joins = [survivor.join(), lost.join()]
    job.wait(lambda view: rendezvous(view)["waiting"] == 2, "two of three to have joined")
    lost.stop()
    job.delete_pod(lost.pod["name"])
    job.exited(lost.pod["name"], 143)
    job.wait(lambda view: lost.pod["name"] not in [pod["name"] for pod in view["pods"]], "the pod to go")
    replacement = job.pods(3)[1]
    assert replacement["name"] == f"{job.name}-1-1"
    assert not joins[0].done()
    infos = [*form([start(replacement), start(pods[2])]), result_of(joins[0], SECONDS)]
    assert ranks(infos) == [1, 2, 0]
    assert job.formed(1)["worldSize"] == 3


@pytest.mark.parametrize("rank", [0, 1])
def test_a_loss_after_completion_ends_the_round(new_job: Callable[..., Job], start: Start, rank: int) -> None:
    """ "Fault tolerance": a member that is lost later, rank 0 too, is replaced in a new round of those that live."""
    job = new_job(replicas=3, minReplicas=2)
    agents = [start(pod) for pod in job.pods(3)]
    form(agents)
    lost = agents.pop(rank)
    lost.stop()
    job.delete_pod(lost.pod["name"])
    for survivor in agents:
        is_told(survivor)
    job.exited(lost.pod["name"], 143)
    new = next(pod for pod in job.pods(3) if pod["name"] == f"{job.name}-{rank}-1")
    infos = form([*agents, start(new)])
    kept = [number for number in range(3) if number != rank]
    assert ranks(infos) == [*kept, rank]  # survivors keep theirs, and who is new takes the free one


@pytest.mark.any_torch
def test_a_silent_member_is_lost_after_the_time_that_it_named(new_job: Callable[..., Job], start: Start) -> None:
    """ "Keep-alive": interval times attempts, as the agents were configured, whatever the job says."""
    job = new_job(replicas=2, rendezvous={"workerLostSeconds": 600, "rejoinSeconds": 601})
    one, other = job.pods(2)
    survivor, silent = (start(pod, keep_alive_interval="5", keep_alive_max_attempt="2") for pod in (one, other))
    form([survivor, silent])
    job.plane.call("freeze", pod=other["name"])
    is_told(survivor)
    lost = "worker 1 lost: no ack of a ping for 5 s"
    job.wait(lambda view: rendezvous(view)["reason"] == lost, lost)
    job.plane.call("thaw", pod=other["name"])


def test_the_members_share_a_store(new_job: Callable[..., Job], start: Start) -> None:
    """ "Shared key-value store": what one member writes all can read, of the types that torch's stores have."""
    agents = [start(pod) for pod in new_job(replicas=2).pods(2)]
    stores: list[Store] = [info.store for info in form(agents)]
    one, other = stores
    one.set("key", "value")
    assert other.get("key") == b"value"
    assert [store.add("count", 2) for store in stores] == [2, 4]
    assert other.compare_set("key", "value", "new") == b"new"
    one.wait(["key", "count"], timedelta(seconds=5))
    assert one.get("key") == b"new"


def test_each_round_has_a_fresh_store(new_job: Callable[..., Job], start: Start) -> None:
    """ "Shared key-value store": the same members meet again on a store that knows nothing of the round before."""
    agents = [start(pod) for pod in new_job(replicas=2).pods(2)]
    old = form(agents)
    old[0].store.set("default_pg/0//cpu//0", "of the first round")
    again = agents[1].join()  # its workers failed
    is_told(agents[0])
    infos = [*form(agents[:1]), result_of(again, SECONDS)]
    assert ranks(infos) == [0, 1]
    assert [info.store.check(["default_pg/0//cpu//0"]) for info in infos] == [False, False]
    with pytest.raises(RuntimeError):
        old[0].store.get("default_pg/0//cpu//0")


def test_set_closed_closes_for_all(new_job: Callable[..., Job], start: Start) -> None:
    """ "Closing": explicitly. The group trains on, all know, and who joins is told that it is closed."""
    agents = [start(pod) for pod in new_job(replicas=2).pods(2)]
    form(agents)
    assert [agent.handler.is_closed() for agent in agents] == [False, False]
    result_of(agents[0].do(lambda handler: handler.set_closed()), SECONDS)
    for agent in agents:
        until(agent.handler.is_closed, "the close to be known")
        assert agent.waiting() == 0
    with pytest.raises(RendezvousClosedError):
        result_of(agents[1].join(), SECONDS)


def test_set_closed_while_a_round_forms(new_job: Callable[..., Job], start: Start) -> None:
    """ "Closing": explicitly, before anything was formed. Who waits and who comes later is told."""
    job = new_job(replicas=2, minReplicas=2)
    one, other = (start(pod) for pod in job.pods(2))
    waits = one.join()
    job.wait(lambda view: view["workers"].get(one.pod["name"], {}).get("spec", {}).get("request"), "the first to join")
    result_of(other.do(lambda handler: handler.set_closed()), SECONDS)
    for join in (waits, other.join()):
        with pytest.raises(RendezvousClosedError):
            result_of(join, SECONDS)


def test_the_end_of_all_closes(new_job: Callable[..., Job], start: Start) -> None:
    """ "Closing": by finish, but only of all, and once their containers have ended: another torchrun may follow."""
    job = new_job(replicas=2)
    agents = [start(pod) for pod in job.pods(2)]
    form(agents)
    assert result_of(agents[0].succeed(), SECONDS)
    assert not agents[1].handler.is_closed()
    assert agents[1].waiting() == 0
    assert result_of(agents[1].succeed(), SECONDS)
    job.wait(lambda view: len(Members.read(rendezvous(view).get("finishing", ""))) == 2, "both to be waited for")
    assert rendezvous(job.view())["phase"] == "Formed"
    for agent in agents:
        job.exited(agent.pod["name"], 0)
    job.closed("Complete")


@pytest.mark.any_torch
def test_a_join_timeout_of_torchs_costs_nothing_while_a_pod_is_absent(
    new_job: Callable[..., Job], start: Start
) -> None:
    """ "Join timeout": torchrun would end, be started again, and that is counted."""
    job = new_job(replicas=2, minReplicas=2, maxRestarts=0)
    pods = job.pods(2)
    early = start(pods[0], join_timeout="1").join()
    assert not concurrent.futures.wait([early], timeout=3).done
    late = start(pods[1], join_timeout="1").join()
    assert [result_of(joining, SECONDS).world_size for joining in (early, late)] == [2, 2]
    assert job.view()["job"]["status"]["restarts"] == 0


def test_the_jobs_join_timeout(new_job: Callable[..., Job], start: Start) -> None:
    """ "Join timeout": of all, by the job."""
    job = new_job(replicas=2, minReplicas=2)
    joining = start(job.pods(2)[0]).join()
    job.wait(lambda view: any("request" in record["spec"] for record in view["workers"].values()), "its request")
    job.patch(rendezvous={"startTimeoutSeconds": 2})
    with pytest.raises(RendezvousTimeoutError, match="no torchrun of worker 1 has spoken to its sidecar within 2 s"):
        result_of(joining, SECONDS)
    assert job.closed("RendezvousTimeout")["reason"].endswith("1 worker has joined, and at least 2 must")
