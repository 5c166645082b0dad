# SPDX-License-Identifier: Apache-2.0
"""`kubectl elasticjob` on a real cluster: each cause that `why` names, made for real, and the other commands.

RECORD_SCENES=1 keeps what was seen of each cause for the unit tests of `why`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.cli_cases import CASES, LATER, NO_HANDLER, Case
from e2e.disruption import CONTROL_PLANE
from e2e.job import WORKER_LOST_SECONDS, Job, cluster_of, manifest
from e2e.kube import ENVIRONMENT, Answer, Following, Namespace, Object, kubectl, run, wait_until
from elasticjob_cli.cluster.gather import gather
from elasticjob_cli.reading.scene import Scene
from elasticjob_cli.why.answer import Explanation as Reply
from elasticjob_cli.why.answer import why
from support.scenes import record
from support.waiting import exit_code, settled

ROOT = Path(__file__).parents[2]
TOLD_SECONDS = 150
AT_ONCE = 5
NO_MORE_PODS = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "full"},
    "spec": {"hard": {"pods": "2"}},
}
# by the words of kubelets and container runtimes, which the recorded scenes of the unit tests have too
BY_KUBELET = {"pull-secret", "credentials", "config", "volume", "container-error", "sandbox", "back-off", "storeless"}
OF_KUBELETS = {True: (pytest.mark.real, pytest.mark.extended), False: ()}


def body_of(name: str, case: Case | None = None, **spec: Any) -> Object:
    patient = {"workerLostSeconds": WORKER_LOST_SECONDS}
    body = manifest(name, node=CONTROL_PLANE, replicas=case.replicas if case else 1, rendezvous=patient, **spec)
    if case:
        case.change(body["spec"])
    return body


@pytest.fixture(scope="module")
def cases(operator: Namespace, module_namespace: Namespace) -> Iterator[Namespace]:
    """The namespace of the jobs of CASES and LATER."""
    yield module_namespace
    kubectl("delete", "runtimeclass", NO_HANDLER["metadata"]["name"], "--ignore-not-found")


@pytest.fixture
def jobs(cases: Namespace, name: str, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """That namespace while it has the job of that name, and the next ones: they get ready meanwhile. More of them would
    fill the node, and a test beside this one that makes its pods anew would find no room."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    names = [one for one in (*CASES, *LATER) if one in chosen]
    now = names[names.index(name) :][:AT_ONCE]
    there = [other for one in now if one in CASES for other in CASES[one].there]
    objects = [*there, *[body_of(one, CASES.get(one)) for one in now]]
    cases.apply(*(one for one in objects if not cases.has(one["kind"], one["metadata"]["name"])))
    yield cases
    cases.delete("elasticjob", name)


def scene_of(namespace: Namespace, job: str) -> Scene:
    return gather(cluster_of(namespace.name), job)


def told(namespace: Namespace, job: str, cause: str, sentence: str) -> Reply:
    """What `why` says once it names the cause first, in these words: as pods start, others come and go beside it."""
    seen: list[str] = []

    def probe() -> Reply | None:
        scene = scene_of(namespace, job)
        reply = why(scene)
        seen.append(reply.paragraph)
        if [one.reason for one in reply.causes[:1]] != [cause] or sentence not in reply.paragraph:
            return None
        record(job, scene)
        return reply

    return wait_until(f"{cause} and {sentence!r} of {job}", probe, TOLD_SECONDS, lambda: seen[-1:])


@pytest.mark.parametrize("name", [pytest.param(name, marks=OF_KUBELETS[name in BY_KUBELET]) for name in CASES])
def test_why_names_the_cause(jobs: Namespace, name: str) -> None:
    case = CASES[name]
    reply = told(jobs, name, case.cause, case.sentence)
    assert not reply.full


@pytest.mark.parametrize("name", LATER)
def test_why_names_what_befell_a_job_that_trained(jobs: Namespace, name: str) -> None:
    case = LATER[name]
    wait_until(f"{name} to train", lambda: why(scene_of(jobs, name)).full, TOLD_SECONDS)
    case.befalls(jobs)
    told(jobs, name, case.cause, case.sentence)


class Plugin(NamedTuple):
    """`kubectl ej`, by the plug-in as kubectl finds it: on PATH."""

    namespace: Namespace
    folder: Path

    def __call__(self, *arguments: str, seconds: float = 180) -> Answer:
        command, *rest = arguments
        path = f"PATH={self.folder}:{ENVIRONMENT['PATH']}"
        return run("env", path, "kubectl", "ej", command, "--namespace", self.namespace.name, *rest, seconds=seconds)

    def open(self, command: str, *arguments: str) -> "subprocess.Popen[str]":
        words = [str(self.folder / "kubectl-ej"), command, "--namespace", self.namespace.name, *arguments]
        return subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)

    def json(self, *arguments: str) -> Any:
        answer = self(*arguments, "--output", "json")
        assert not answer.code, answer.errors
        return json.loads(answer.output)


@pytest.fixture
def ej(operator: Namespace, namespace: Namespace, tmp_path: Path) -> Plugin:
    plugin = tmp_path / "kubectl-ej"
    path = os.pathsep.join([str(ROOT / "core"), str(ROOT / "cli")])
    plugin.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} -m elasticjob_cli "$@"\n')
    plugin.chmod(0o755)
    return Plugin(namespace, tmp_path)


def test_a_job_from_its_first_round_to_its_end(ej: Plugin) -> None:
    ej.namespace.apply(body_of("train", env={"STEPS": "1000000"}, maxReplicas=4))
    wait_until("the first round", lambda: ej.json("why", "train")["why"]["full"], TOLD_SECONDS)

    planned, formed = ej("scale", "train", "2").output.splitlines()
    follows = "What follows: 1 pod is made; round 1 trains on until it has joined"
    assert planned.startswith(f"spec.replicas of train is 2 now, and was 1. {follows}")
    assert formed.startswith("Round 2 (2 workers) formed after ")
    record("full-size", scene_of(ej.namespace, "train"))
    refused = ej("scale", "train", "9")
    assert (refused.code, refused.errors.strip()) == (
        2,
        "error: 9 is above maxReplicas 4 of train: change spec.maxReplicas first",
    )

    def members() -> list[tuple[int, int, str]]:
        return [(one["rank"], one["worker"], one["state"]) for one in ej.json("status", "train")["members"]]

    def training() -> Any:
        seen = ej.json("status", "train")
        known = seen["rounds"][-1]["starting"] is not None and (seen["goodput"]["share"] or 0) > 0
        # the others' steps go with their heartbeats, by and by
        return seen if seen["members"][0]["step"] and known else None

    wait_until("both to train", lambda: members() == [(0, 0, "trains"), (1, 1, "trains")], TOLD_SECONDS, members)
    seen = wait_until("rank 0 to report a step, and the round to have trained", training, TOLD_SECONDS)

    def newest() -> str | None:
        line = ej("logs", "train", "--rank", "1", "--tail", "1").output
        return line if "rank=1" in line else None

    assert not wait_until("rank 1 to print one", newest, TOLD_SECONDS).startswith("[")
    assert [one["cause"] for one in seen["rounds"]] == ["FirstFormation", "Scaled"]
    assert [one["reason"] for one in seen["rounds"]] == ["first formation", "scaled from 1 to 2"]
    assert 0 < seen["goodput"]["share"] < 1
    assert "train-1-0" in ej("status", "train").output
    assert [one["counted"] for one in ej.json("history", "train")["rounds"]] == [False, False]

    every = ej("logs", "train").output.splitlines()
    assert {line.split("]")[0] for line in every} == {"[0 train-0-0", "[1 train-1-0"}
    assert ej("logs", "train", "--rank", "7").errors.strip() == "error: there is no rank 7 in round 2: it has 2 workers"

    planned, formed = ej("restart", "train").output.splitlines()
    follows = "What follows: round 2 of train ends, and the training processes of its 2 workers start anew"
    assert planned.startswith(f"spec.restartedAt is set. {follows}")
    assert formed.startswith("Round 3 (2 workers) formed after ")
    rounds = ej.json("history", "train")["rounds"]
    assert (rounds[-1]["cause"], rounds[-1]["counted"]) == ("Restarted", False)

    assert "All workers have ended after" in ej("suspend", "train").output

    def causes() -> list[str]:
        return [one["reason"] for one in ej.json("why", "train")["why"]["causes"]]

    wait_until("`why` to name the cause", lambda: causes() == ["Suspended"], TOLD_SECONDS, causes)
    assert "Round 4 (2 workers) formed after" in ej("resume", "train").output
    ej.namespace.apply(NO_MORE_PODS)  # so that no round of three forms, however late the command looks
    late = ej("scale", "train", "3", "--timeout", "0.1")
    assert late.code == 4
    assert "waited 0.1 s for a round of 3 workers; what was asked for stays. " in late.errors


@pytest.mark.real
def test_logs_follow_a_rank_from_pod_to_pod_until_the_job_ends(ej: Plugin, job: Job) -> None:
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    job.wait_for_training(2)
    with (
        ej.open("logs", "train", "--rank", "1", "--follow") as following,
        ej.open("logs", "train", "-f") as all_of_them,
    ):
        readers = [Following(following), Following(all_of_them)]
        shown = "a step of rank 1 in both"
        wait_until(shown, lambda: all("rank=1 " in "".join(each.lines) for each in readers), TOLD_SECONDS)
        job.delete_pod(job.member_pods()[1])
        job.wait_for_round(2, after=first)
        job.wait_for_training(2)
        job.finish_training()
        job.wait_for_condition("Complete")
        one, every = ([*each.whole(TOLD_SECONDS).splitlines(keepends=True)] for each in readers)
        assert exit_code(following) == exit_code(all_of_them) == 0
    groups = list(dict.fromkeys(line.split()[0] for line in one if line.startswith("group=")))
    assert len(groups) == 2
    assert not [line for line in one if "rank=0 " in line]
    assert "saved\n" in one
    steps = [line for line in one if line.startswith("group=")]
    assert len(steps) == len(set(steps))
    assert {line.split("]")[0] for line in every} >= {"[0 train-0-0", "[1 train-1-0", "[1 train-1-1"}


def test_run_makes_what_its_dry_run_prints(ej: Plugin) -> None:
    words = ["run", "made", "--image", "elasticjob/digits:dev", "--replicas", "2", "--env", "A=b"]
    script = ["--", "train.py", "--lr", "1"]
    printed = ej(*words, "--dry-run=server", "--output", "json", *script)
    assert printed.code == 0, printed.errors
    assert ej(*words, *script).output == "elasticjob.elasticjob.io/made created\n"
    template = settled(ej.namespace.get("elasticjob", "made"), "nobody changes it")["spec"]["template"]
    assert template == json.loads(printed.output)["spec"]["template"]
    assert ej(*words, *script).errors == 'error: elasticjobs.elasticjob.io "made" already exists\n'
    assert "made" in ej("status").output
