"""What real torchruns do here where torch's own backends fail them."""

import time
from collections.abc import Callable
from pathlib import Path

from contract.plane import Job, View, rendezvous
from contract.trainers import trainers

NewJob = Callable[..., Job]


def test_scale_up_after_a_first_round(new_job: NewJob, tmp_path: Path) -> None:
    """With c10d the newcomer waits 60 s for an address that nobody writes in later rounds; then all die."""
    job = new_job(replicas=1, maxReplicas=4)
    with trainers(job, tmp_path) as runs:
        (first,) = runs.group(1)
        job.scale(2)
        assert runs.group(2)[0] == first
        runs.order("finish")
        assert runs.codes(2) == [0, 0]
        job.closed("Complete")


def test_loss_of_rank_0(new_job: NewJob, tmp_path: Path) -> None:
    """With c10d the group ends with the worker that hosts its store."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        lost, survivor = runs.group(2)
        job.delete_pod(lost)
        assert runs.group(2, after=2) == [survivor, f"{job.name}-0-1"]
        assert [pod for pod, _ in runs.ended] == [lost]
        runs.order("finish")
        job.closed("Complete")


def test_the_same_members_again_on_a_fresh_store(new_job: NewJob, tmp_path: Path) -> None:
    """With c10d a restart in place may find what the last process group left in the store, and then hangs."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path, PROCESS_GROUP="gloo", GLOO_SOCKET_IFNAME="lo") as runs:
        members = runs.group(2, seconds=60)
        runs.order(f"fail-{members[1]}")
        assert runs.group(2, after=2, seconds=60) == members
        assert [event["counted"] for event in runs.events()] == [2, 2, 2, 2]
        runs.order("finish")
        job.closed("Complete")


def test_a_killed_torchrun_starts_again_in_its_pod(new_job: NewJob, tmp_path: Path) -> None:
    """With c10d the loss of an agent is not announced at all."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        one, other = runs.group(2)
        runs.kill(other)
        assert runs.group(2, after=2) == [one, other]
        runs.order("finish")
        job.closed("Complete")


def test_a_worker_that_is_not_needed_exits_0(new_job: NewJob, tmp_path: Path) -> None:
    """Upstream a spare exits 1: torch's graceful-exit error ends in an AttributeError."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        one, other = runs.group(2)
        job.scale(1)
        assert runs.group(1) == [one]
        assert runs.codes(1) == [0]
        assert runs.ended[0][0] == other
        assert job.view()["job"]["status"]["restarts"] == 0
        runs.order("finish")
        job.closed("Complete")


def test_a_node_out_of_restarts_does_not_bar_its_successor(new_job: NewJob, tmp_path: Path) -> None:
    """Upstream the first agent that ends closes the rendezvous for ever, so no replacement can join."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        out = f"{job.name}-1-0"
        runs.of_pod[out] = ["--max-restarts=0", *runs.command]
        one, other = runs.group(2)
        assert other == out
        runs.order(f"fail-{out}")
        assert runs.group(2, after=2) == [one, out]
        assert runs.ended == [(out, 1)]
        runs.order("finish")
        job.closed("Complete")


def test_a_finished_agent_beside_a_restarting_one(new_job: NewJob, tmp_path: Path) -> None:
    """Upstream the finished agent keeps the other waiting for 300 s, and the job fails."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        one, other = runs.group(2)
        runs.order(f"finish-{one}")
        job.wait(lambda view: rendezvous(view)["finished"], "the first to finish")
        began = time.monotonic()
        runs.order(f"fail-{other}")
        assert runs.group(1) == [other]
        assert time.monotonic() - began < 20
        runs.order("finish")
        job.closed("Complete")
        assert runs.codes(2) == [0, 0]


def test_an_api_server_that_is_away_costs_nothing(new_job: NewJob, tmp_path: Path) -> None:
    """Upstream one error of the backend while an agent polls ends that agent."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        members = runs.group(2)
        job.plane.call("api_away", seconds=3.0)
        for pod in members:
            assert "cannot watch" in job.plane.log_of(pod)
        before = heartbeats(job.view())
        job.wait(
            lambda view: all(heartbeats(view)[pod] > before[pod] for pod in members),
            "heartbeats after the API server is back",
        )
        assert len(runs.events()) == 2
        assert runs.ended == []
        assert job.formed(1)["worldSize"] == 2
        runs.order("finish")
        assert runs.codes(2) == [0, 0]


def test_ranks_are_in_numeric_order_beyond_ten(new_job: NewJob, tmp_path: Path) -> None:
    """Upstream sorts names, so that worker 10 comes before worker 2."""
    job = new_job(replicas=11)
    with trainers(job, tmp_path) as runs:
        assert runs.group(11, seconds=60) == [f"{job.name}-{index}-0" for index in range(11)]
        runs.order("finish")
        job.closed("Complete")


def heartbeats(view: View) -> dict[str, int]:
    return {name: body.get("status", {}).get("heartbeat", 0) for name, body in view["workers"].items()}
