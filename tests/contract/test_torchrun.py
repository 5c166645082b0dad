# SPDX-License-Identifier: Apache-2.0
"""What real torchruns do here where torch's own backends fail them."""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from contract.agents import SECONDS, Agent, until
from contract.plane import Job, View, rendezvous
from contract.trainers import WORKER, Torchrun, Trainers, trainers
from elasticjob_torch.wire import LEFT_EXIT_CODE
from support.waiting import Deadline, in_time, result_of

NewJob = Callable[..., Job]
EVALUATE = WORKER.with_name("evaluate.py")


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
        assert runs.group(2, after=2) == [f"{job.name}-0-1", survivor]
        runs.codes(1)
        assert [pod for pod, _ in runs.ended] == [lost]
        runs.order("finish")
        job.closed("Complete")


def test_the_same_members_again_on_a_fresh_store(new_job: NewJob, tmp_path: Path) -> None:
    """With c10d a restart in place may find what the last process group left in the store, and then hangs."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path, forks_training=True, PROCESS_GROUP="gloo", GLOO_SOCKET_IFNAME="lo") as runs:
        members = runs.group(2)
        runs.order(f"fail-{members[1]}")
        assert runs.group(2, after=2) == members
        assert [event["counted"] for event in runs.events()] == [2, 2, 2, 2]
        runs.order("finish")
        job.closed("Complete")


def test_a_round_starts_until_all_its_processes_are_in_a_group(new_job: NewJob, tmp_path: Path) -> None:
    """That is known by their connections to the round's store: torch's agents make none before the end."""

    def starts(job: Job, rounds: int) -> list[bool]:
        """Of so many rounds, whether nothing is known yet of their training."""
        history = job.view()["job"].get("status", {}).get("history", [])
        return ["started" not in one for one in history] if len(history) == rounds else []

    job = new_job(replicas=2, nprocPerNode=2)
    (tmp_path / "none").mkdir()
    with trainers(job, tmp_path / "none") as runs:
        members = runs.group(2)
        runs.order(f"fail-{members[1]}")
        runs.group(2, after=4)
        until(lambda: starts(job, 2) == [True, True], "two rounds whose scripts make no group", SECONDS)
        until(lambda: job.view()["job"]["status"]["starting"], "the status to say that it starts", SECONDS)
    job = new_job(replicas=2, nprocPerNode=2)
    with trainers(job, tmp_path, forks_training=True, PROCESS_GROUP="gloo", GLOO_SOCKET_IFNAME="lo"):
        until(lambda: starts(job, 1) == [False], "the round to train", SECONDS)
        until(lambda: not job.view()["job"]["status"]["starting"], "the status to say that it trains", SECONDS)


def test_a_group_is_awaited_until_all_scripts_of_its_pods_run(tmp_path: Path) -> None:
    """A test that went on before them would count events that never come."""
    runs = Trainers(cast(Job, SimpleNamespace(name="job")), tmp_path)

    def starts(*ranks: int) -> None:
        with (tmp_path / "events").open("a") as events:
            for rank in ranks:
                sizes = {"GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "4"}
                event = {"pod": f"pod{rank // 2}", "GROUP_RANK": str(rank // 2), "RANK": str(rank), **sizes}
                events.write(json.dumps(event) + "\n")

    starts(1, 2)
    with pytest.raises(Deadline, match="RANK"):
        runs.group(2, seconds=0.1)
    starts(0, 3)
    assert runs.group(2) == ["pod0", "pod1"]


def test_another_pod_of_the_same_name_has_a_torchrun_of_its_own(tmp_path: Path) -> None:
    """The operator makes such a pod if it reads of the first one's deletion only when that is gone."""
    pod = {"name": "job-0-0", "uid": "a", "starts": 1, "runs": True, "deleting": False}
    started: list[str] = []

    class Runtime(Trainers):
        def _run(self, pod: View, log_name: str = "trainer") -> Torchrun:
            started.append(pod["uid"])
            return cast(Torchrun, SimpleNamespace(exitcode=0))

    runs = Runtime(cast(Job, SimpleNamespace(name="job", exited=lambda name, code: None)), tmp_path)
    for seen in (pod, pod, pod | {"uid": "b"}):
        runs._obey(seen)
        runs._reap()
    assert started == ["a", "b"]


def test_news_do_not_wait_for_the_monitor_interval(new_job: NewJob, tmp_path: Path) -> None:
    """torch looks that often whether its processes live and whether the rendezvous has changed, and sleeps between."""
    job = new_job(replicas=2, maxReplicas=3)
    with trainers(job, tmp_path, ["--monitor-interval=600", str(WORKER)]) as runs:
        members = runs.group(2)
        runs.order(f"fail-{members[1]}")
        assert runs.group(2, after=2) == members
        job.scale(3)
        assert runs.group(3, after=4)[:2] == members
        runs.order("finish")
        assert runs.codes(3) == [0, 0, 0]
        job.closed("Complete")


def test_what_failed_reaches_the_jobs_reason(new_job: NewJob, tmp_path: Path) -> None:
    """With c10d the peers learn nothing of it, and whoever looks has to find the log."""
    job = new_job(replicas=2, maxRestarts=1)
    with trainers(job, tmp_path) as runs:
        one, other = runs.group(2)
        runs.order(f"fail-{one}")
        assert runs.group(2, after=2) == [one, other]
        assert "worker 0's processes failed (on node: rank 0, exit code 3)" in rendezvous(job.view())["reason"]
        runs.order(f"raise-{other}")
        failed = "worker 1's processes failed (on node: rank 1, exit code 1: RuntimeError: no such data)"
        assert job.closed("Failed")["reason"] == f"{failed}: failure 2, and maxRestarts is 1"


def bound(directory: Path) -> list[str]:
    """The worker through a shell that does not exec, as people bind ranks to processors."""
    (directory / "bind.sh").write_text('"$@"\n')
    return ["--no-python", "bash", str(directory / "bind.sh"), sys.executable, str(WORKER)]


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "through a shell"])
def test_who_failed_first_is_the_reason_though_its_peer_was_heard_of_first(
    new_job: NewJob, tmp_path: Path, wrapped: bool
) -> None:
    """The peer only saw the connection break, and the first was stopped in its `finally`."""
    job = new_job(replicas=2, maxRestarts=0)
    with trainers(job, tmp_path, bound(tmp_path) if wrapped else [str(WORKER)]) as runs:
        one, other = runs.group(2)
        runs.order(f"linger-{one}")
        until((tmp_path / f"lingers-{one}").exists, "the first to fail")
        runs.order(f"lose-{other}")
        failing = "rank 0, failing when it was stopped: RuntimeError: no such data"
        failed = f"worker 0's processes failed (on node: {failing})"
        reason = job.closed("Failed")["reason"]
        assert reason == f"{failed}: failure 1, and maxRestarts is 0"
        runs.codes(2)

        def end_with_the_cause() -> bool:  # a container that is started again before its pod goes does so, too
            logs = [job.plane.log_of(f"{pod}-trainer") for pod in (one, other)]
            return [log.splitlines()[-1] for log in logs] == [f"elasticjob: {reason}"] * 2

        until(end_with_the_cause, "both logs to end with the cause")


def test_the_log_of_a_torchrun_that_is_stopped_ends_with_a_sentence(new_job: NewJob, tmp_path: Path) -> None:
    job = new_job(replicas=1)
    with trainers(job, tmp_path) as runs:
        (pod,) = runs.group(1)
        runs.not_yet.add(pod)  # the next life of its container would print after it
        os.kill(runs.pid(pod), signal.SIGTERM)  # once: a second one may come while torch logs the first
        assert runs.codes(1) == [1]
        log = job.plane.log_of(f"{pod}-trainer")
        assert log.splitlines()[-1] == "elasticjob: stopped by SIGTERM"
        assert "Traceback" not in log


def test_the_exit_code_of_a_script_may_end_the_job(new_job: NewJob, tmp_path: Path) -> None:
    """torchrun itself ends with 1, whatever its script ended with."""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    job = new_job(replicas=2, podFailurePolicy={"rules": [rule]})
    with trainers(job, tmp_path) as runs:
        one, _ = runs.group(2)
        runs.order(f"fail-{one}")
        said = "worker 0's training process failed with exit code 3: on node: rank 0, exit code 3"
        assert job.closed("Failed")["reason"] == f"{said}: spec.podFailurePolicy.rules[0] says FailJob"
        assert job.view()["job"]["status"]["restarts"] == 0


def test_a_killed_torchrun_starts_again_in_its_pod(new_job: NewJob, tmp_path: Path) -> None:
    """With c10d the loss of an agent is not announced at all."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        one, other = runs.group(2)
        runs.kill(other)
        assert runs.group(2, after=2) == [one, other]
        runs.order("finish")
        job.closed("Complete")


def test_who_has_no_part_any_more_says_so_by_its_exit_code(new_job: NewJob, tmp_path: Path) -> None:
    """A worker that is scaled away, and a spare at the end; after 0 a shell would go on as after a success."""
    job = new_job(replicas=2, spareReplicas=1)
    with trainers(job, tmp_path) as runs:
        one, other = runs.group(2)
        job.wait(lambda view: view["job"]["status"].get("spares") == 1, "the spare to wait")
        job.scale(1)
        assert runs.group(1, after=2) == [one]
        job.wait(lambda view: len(view["pods"]) == 2, "the other's pod to go")
        assert runs.ended[0] == (other, LEFT_EXIT_CODE)
        runs.order("finish")
        job.closed("Complete")
        (spare,) = {f"{job.name}-{index}-0" for index in range(3)} - {one, other}
        until(lambda: {(one, 0), (spare, LEFT_EXIT_CODE)} <= set(runs.ended), f"both to end; so far {runs.ended}")
        assert [pod for pod, code in runs.ended if code == 0] == [one]  # whether one was started again or not
        assert job.view()["job"]["status"]["restarts"] == 0


def test_a_failed_process_ends_no_agent_whatever_its_launcher_says(new_job: NewJob, tmp_path: Path) -> None:
    """Accelerate says 0 restarts. Upstream the first agent that ends closes the rendezvous for ever."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        failing = f"{job.name}-1-0"
        runs.of_pod[failing] = ["--max-restarts=0", *runs.command]
        one, other = runs.group(2)
        assert other == failing
        runs.order(f"fail-{failing}")
        assert runs.group(2, after=2) == [one, failing]
        assert not runs.ended
        runs.order("finish")
        job.closed("Complete")


def test_a_finished_agent_beside_a_restarting_one(new_job: NewJob, tmp_path: Path) -> None:
    """Upstream the finished agent keeps the other waiting for 300 s, and the job fails."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        one, other = runs.group(2)
        runs.order(f"finish-{one}")
        job.wait(lambda view: rendezvous(view).get("finishing"), "the first to succeed")
        runs.order(f"fail-{other}")
        with in_time("the other's next round, without the 300 s", 100):
            assert runs.group(1) == [other]
        runs.order("finish")
        job.closed("Complete")
        assert runs.codes(2) == [0, 0]


@pytest.mark.parametrize("options", [[], ["--max-restarts=0"], ["--max-restarts=1"]])
def test_who_counts_failures_is_the_job_alone(new_job: NewJob, tmp_path: Path, options: list[str]) -> None:
    """An agent that was out of restarts would end, and with torch 2.6 as if it had succeeded."""
    job = new_job(replicas=1, maxRestarts=2)
    with trainers(job, tmp_path, [*options, str(WORKER)]) as runs:
        (pod,) = runs.group(1)
        for failure in (1, 2):
            runs.order(f"fail-{pod}")
            (pod,) = runs.group(1, after=failure)
            assert job.view()["job"]["status"]["restarts"] == failure
        runs.order(f"fail-{pod}")
        assert job.closed("Failed")["reason"].endswith("failure 3, and maxRestarts is 2")


@pytest.mark.parametrize(
    "options", [("--nnodes=1", "--nnodes=5:7"), ("--nproc-per-node=1", "--nproc_per_node=auto")], ids=" ".join
)
def test_options_that_people_write_out_of_habit(new_job: NewJob, tmp_path: Path, options: tuple[str, str]) -> None:
    """Each worker has one of both."""
    job = new_job(replicas=2)
    of_pod = {f"{job.name}-{index}-0": [option, str(WORKER)] for index, option in enumerate(options)}
    with trainers(job, tmp_path, of_pod=of_pod) as runs:
        assert runs.group(2) == list(of_pod)
        runs.order("finish")
        job.closed("Complete")


def test_no_rank_is_given_twice_when_workers_have_unequal_numbers_of_processes(new_job: NewJob, tmp_path: Path) -> None:
    """As with --nproc-per-node=gpu on unequal nodes, though the job says that there is one in each."""
    job = new_job(replicas=3)
    with trainers(job, tmp_path) as runs:
        for index, processes in enumerate((2, 1, 3)):
            runs.of_pod[f"{job.name}-{index}-0"] = [f"--nproc-per-node={processes}", str(WORKER)]
        until(lambda: len(runs.events()) == 6, f"six processes; started so far: {runs.events()}")
        told = {int(event["RANK"]): (event["pod"], event["WORLD_SIZE"]) for event in runs.events()}
        assert told == {rank: (f"{job.name}-{index}-0", "6") for rank, index in enumerate((0, 0, 1, 2, 2, 2))}
        assert {event["master_address"] for event in runs.events()} == {job.pods(3)[0]["address"]}
        runs.order("finish")
        job.closed("Complete")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_round_that_breaks_while_ranks_are_given_out(
    new_job: NewJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """torch's agent would end: what it reads from the store then comes from nobody any more."""
    monkeypatch.setattr(sys, "argv", ["torchrun", str(WORKER)])  # of the agent here, too
    job = new_job(replicas=2, minReplicas=2, nprocPerNode="auto")
    names = [f"{job.name}-{index}-0" for index in range(2)]
    with trainers(job, tmp_path, ["--nproc-per-node=1", str(WORKER)]) as runs:
        runs.not_yet.add(names[1 - rank])
        with Agent(job.pods(2)[1 - rank]) as silent:
            result_of(silent.join(), SECONDS)
            log = f"{names[rank]}-trainer"
            until(lambda: f"round 1: rank {rank} of 2" in job.plane.log_of(log), "the other's rank")
            result_of(silent.fail(), SECONDS)
        runs.not_yet.clear()
        assert sorted(runs.group(2)) == names
        assert runs.ended == []
        runs.order("finish")
        job.closed("Complete")


def test_processes_that_ignore_sigterm_are_killed_in_the_jobs_time(new_job: NewJob, tmp_path: Path) -> None:
    """torch waits for 30 seconds, also when one of a worker's processes has failed and the others shall go with it."""
    job = new_job(replicas=2, rendezvous={"stopSeconds": 1})
    with trainers(job, tmp_path, ["--nproc-per-node=2", str(WORKER)], STUBBORN="1") as runs:
        first, second = runs.group(2)
        until(lambda: len(runs.events()) == 4, "four processes")
        with in_time("the next round, without the 30 s", 28):
            job.scale(1)
            assert runs.group(1, after=4) == [first]
            until(lambda: len(runs.events()) == 6, "two processes")
        with in_time("the next round, without the 30 s", 28):
            runs.order(f"fail-{first}")
            assert runs.group(1, after=6) == [first]
        assert runs.ended[0] == (second, LEFT_EXIT_CODE)  # the kubelet may start it again before its pod goes
        runs.order("finish")
        job.closed("Complete")


def ignore_children() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def test_a_failure_is_none_the_less_where_the_container_ignores_how_children_end(
    new_job: NewJob, tmp_path: Path
) -> None:
    """As by a shell's `trap '' CHLD`: the kernel would tell torch of a success."""
    job = new_job(replicas=1, maxRestarts=0)
    runs = Trainers(job, tmp_path)
    runs.prepare = ignore_children
    runs.start()
    try:
        (pod,) = runs.group(1)
        runs.order(f"fail-{pod}")
        job.wait(lambda view: rendezvous(view).get("outcome"), "the end")
        assert (rendezvous(job.view())["outcome"], "exit code 3" in rendezvous(job.view())["reason"]) == (
            "Failed",
            True,
        )
    finally:
        runs.stop()


INNER = f"{sys.executable} -m torch.distributed.run --nproc-per-node=1"


@pytest.mark.parametrize("options", ["", "--standalone"])
def test_a_torchrun_inside_the_training_runs_by_itself(new_job: NewJob, tmp_path: Path, options: str) -> None:
    """It would take the place of the agent above it, and end its round."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path, RUN=f"{INNER} {options} {EVALUATE}") as runs:
        _, other = runs.group(2)
        runs.order(f"run-{other}")
        until((tmp_path / f"ran-{other}").exists, "the inner torchrun's end")
        assert (tmp_path / f"ran-{other}").read_text() == "0", job.plane.log_of(f"{other}-trainer")
        assert (tmp_path / "evaluated").read_text() == "rank 0 of 1, round 0"
        assert len(runs.events()) == 2
        runs.order("finish")
        assert job.closed("Complete")["round"] == 1
        assert "77777" not in job.told()


def test_a_torchrun_inside_the_training_that_asks_for_the_job_is_refused(new_job: NewJob, tmp_path: Path) -> None:
    job = new_job(replicas=1)
    with trainers(job, tmp_path, RUN=f"{INNER} --rdzv-backend=elasticjob {EVALUATE}") as runs:
        (pod,) = runs.group(1)
        runs.order(f"run-{pod}")
        until((tmp_path / f"ran-{pod}").exists, "the inner torchrun's end")
        assert (tmp_path / f"ran-{pod}").read_text() == "1"
        said = f"elasticjob: the torchrun above this one (process {runs.pid(pod)}) takes part in the job"
        assert said in job.plane.log_of(f"{pod}-trainer")
        runs.order("finish")
        job.closed("Complete")
        assert len(runs.events()) == 1


def test_a_second_torchrun_of_a_pod_is_refused_while_the_first_lives(new_job: NewJob, tmp_path: Path) -> None:
    """As by `kubectl exec`: it has the pod's variables, and no agent above it."""
    job = new_job(replicas=1)
    with trainers(job, tmp_path) as runs:
        (pod,) = runs.group(1)
        second = runs.start_another(pod)
        second.join(SECONDS)
        assert second.exitcode == 1
        said = f"elasticjob: the process {runs.pid(pod)} of this pod takes part in the job already"
        assert said in job.plane.log_of(f"{pod}-another")
        assert len(runs.events()) == 1
        runs.order("finish")
        job.closed("Complete")
        assert runs.codes(1) == [0]


@pytest.mark.parametrize("end", ["planned", "failure"])
def test_what_a_round_has_started_is_gone_before_the_next(new_job: NewJob, tmp_path: Path, end: str) -> None:
    """torch ends process groups: a server in a session of its own would keep its port."""
    job = new_job(replicas=1, maxReplicas=2)
    port = tmp_path / "port"
    with trainers(job, tmp_path, RUN=f"{sys.executable} {WORKER.with_name('leaves.py')} {port}") as runs:
        (first,) = runs.group(1)
        runs.order(f"run-{first}")
        until((tmp_path / f"ran-{first}").exists, "the server")
        with socket.create_connection(("127.0.0.1", int(port.read_text()))):
            pass
        if end == "planned":
            job.scale(2)
        else:
            runs.order(f"fail-{first}")
        runs.group(2 if end == "planned" else 1, after=1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port.read_text())))
        assert "ending processes that an earlier round left behind" in job.plane.log_of(f"{first}-trainer")
        runs.order("finish")
        job.closed("Complete")


def test_what_torch_counts_by_restarts_goes_by_rounds(new_job: NewJob, tmp_path: Path) -> None:
    """It counts an agent's own failures: ranks of one round differ, and logs of the round before are deleted."""
    job = new_job(replicas=1, maxReplicas=2)
    logs = tmp_path / "logs"
    options = [f"--log-dir={logs}", "--redirects=3", str(WORKER)]
    with trainers(job, tmp_path, options) as runs:
        (first,) = runs.group(1)
        job.scale(2)
        members = runs.group(2, after=1)
        runs.order(f"fail-{members[1]}")
        assert runs.group(2, after=3) == members
        runs.order("finish")
        job.closed("Complete")
        counts = [(event["pod"], event["TORCHELASTIC_RESTART_COUNT"]) for event in runs.events()]
        assert sorted(counts) == sorted([(first, "0"), *((pod, count) for count in "12" for pod in members)])
        attempts = sorted(path.name for path in logs.glob("*/attempt_*"))
        assert attempts == ["attempt_0", "attempt_1", "attempt_1", "attempt_2", "attempt_2"]


@pytest.mark.any_torch
def test_an_api_server_that_is_away_costs_nothing(new_job: NewJob, tmp_path: Path) -> None:
    """Upstream one error of the backend while an agent polls ends that agent."""
    job = new_job(replicas=2)
    with trainers(job, tmp_path) as runs:
        members = runs.group(2)
        job.plane.call("api_away", job=job.name, seconds=3.0)
        for pod in members:
            until(lambda pod=pod: "cannot watch" in job.plane.log_of(pod), f"{pod} to miss it")
            until(lambda pod=pod: "is watched again" in job.plane.log_of(pod), f"{pod} to follow the job again")
        assert len(runs.events()) == 2
        assert runs.ended == []
        assert job.formed(1)["worldSize"] == 2
        runs.order("finish")
        assert runs.codes(2) == [0, 0]
