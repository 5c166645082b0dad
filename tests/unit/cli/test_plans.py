# SPDX-License-Identifier: Apache-2.0
"""What is planned on paper: a manifest from a command line, and what a change of the size leads to."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from elasticjob.api import ElasticJobSpec
from elasticjob_cli.app import cli
from elasticjob_cli.errors import CliError
from elasticjob_cli.plans.changes import check, leavers, plan
from elasticjob_cli.plans.manifest import Wish, command, manifest
from elasticjob_cli.reading.look import Look
from support.cli_jobs import formed, forming, joins, pod, record


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["run", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_dry_run_needs_no_cluster_and_leaves_out_defaults() -> None:
    code, printed, _ = run("digits", "--image", "train:1", "--dry-run", "--", "train.py", "--epochs", "3")
    container = {"name": "trainer", "image": "train:1", "command": ["torchrun", "train.py", "--epochs", "3"]}
    assert code == 0
    assert yaml.safe_load(printed) == {
        "apiVersion": "elasticjob.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "digits"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
    }


def test_every_option_is_in_the_manifest() -> None:
    options = ["--replicas=4", "--min-replicas=2", "--max-replicas=8", "--nproc-per-node=gpu", "--max-restarts=5"]
    options += ["--gpus=2", "--cpu=4", "--memory=8Gi", "--env=A=b=c", "--claim=data=/data", "--pull-secret=registry"]
    options += ["--pull-policy=Always", "--image=train:1", "--dry-run"]
    spec = yaml.safe_load(run("digits", *options, "--", "accelerate", "launch", "train.py")[1])["spec"]
    parsed = ElasticJobSpec.parse(spec)
    assert (parsed.replicas, parsed.min_replicas, parsed.max_replicas) == (4, 2, 8)
    assert (parsed.nproc_per_node, parsed.max_restarts) == ("gpu", 5)
    pod = spec["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["volumes"] == [{"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}}]
    assert pod["containers"] == [
        {
            "name": "trainer",
            "image": "train:1",
            "command": ["accelerate", "launch", "train.py"],
            "imagePullPolicy": "Always",
            "env": [{"name": "A", "value": "b=c"}],
            "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 2}},
            "volumeMounts": [{"name": "claim-0", "mountPath": "/data"}],
        }
    ]


def test_claims_of_any_name_are_mounted_wherever_they_are_asked_for() -> None:
    claims = ["--claim=team.data=/data", "--claim=out=/out", "--claim=team.data=/more"]
    printed = run("digits", "--image=a", *claims, "--dry-run", "--", "a.py")[1]
    pod = yaml.safe_load(printed)["spec"]["template"]["spec"]
    assert [(one["name"], one["persistentVolumeClaim"]["claimName"]) for one in pod["volumes"]] == [
        ("claim-0", "team.data"),
        ("claim-1", "out"),
    ]
    assert [(one["name"], one["mountPath"]) for one in pod["containers"][0]["volumeMounts"]] == [
        ("claim-0", "/data"),
        ("claim-1", "/out"),
        ("claim-0", "/more"),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "--lr", "1"], ["torchrun", "train.py", "--lr", "1"]),
        (["-m", "package.train"], ["torchrun", "-m", "package.train"]),
        (["torchrun", "--no-python", "a"], ["torchrun", "--no-python", "a"]),
        (["sh", "-c", "torchrun train.py"], ["sh", "-c", "torchrun train.py"]),
    ],
)
def test_scripts_run_under_torchrun_and_programs_as_they_are(words: list[str], expected: list[str]) -> None:
    assert command(words) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["digits", "--image=a"], 2, "put the script and its arguments after --"),
        (["Digits", "--image=a", "--", "a.py"], 2, "NAME 'Digits' cannot be a job's"),
        (["digits", "--", "a.py"], 2, "Missing option '--image'"),
        (["digits", "--image=a", "--env=A", "--", "a.py"], 2, "Invalid value for --env: 'A' is not NAME=VALUE"),
        (["digits", "--image=a", "--replicas=0", "--", "a.py"], 2, "Invalid value for '--replicas'"),
    ],
)
def test_a_wrong_command_line_is_told(arguments: list[str], code: int, sentence: str) -> None:
    given, _, said = run(*arguments, "--dry-run") if "--" not in arguments else run("--dry-run", *arguments)
    assert given == code
    assert sentence in said


def test_a_number_of_processes_is_a_number() -> None:
    spec = manifest(Wish(name="a", image="b", command=["a.py"], nproc_per_node="8"))["spec"]
    assert spec["nprocPerNode"] == 8


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [(1, "1 is below minReplicas 2 of digits: change spec.minReplicas"), (9, "9 is above maxReplicas 8 of digits")],
)
def test_a_size_out_of_bounds_is_refused_before_it_is_asked_for(replicas: int, sentence: str) -> None:
    spec = ElasticJobSpec.parse({"replicas": 4, "minReplicas": 2, "maxReplicas": 8, "template": {}})
    with pytest.raises(CliError, match=sentence):
        check("digits", spec, replicas)


BOUNDS = {"replicas": 8, "minReplicas": 8, "maxReplicas": 24}


def test_a_size_that_the_job_may_not_have_is_refused_with_the_nearest() -> None:
    spec = ElasticJobSpec.parse({**BOUNDS, "sizes": {"step": 8}, "template": {}})
    for replicas, nearest in ((12, "8 or 16"), (20, "16 or 24")):
        with pytest.raises(CliError, match=f"{replicas} is none of the sizes that .* allows: take {nearest}"):
            check("digits", spec, replicas)
    check("digits", spec, 16)


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [
        (3, "digits has 3 workers already: nothing changes."),
        (5, "2 pods are made; round 4 trains on until they have joined, and is then replaced by one of 5 workers."),
        (4, "1 pod is made; round 4 trains on until it has joined"),
        (2, "worker 0 is told to leave, round 4 ends, and one of 2 workers follows."),
        (1, "workers 0 and 2 are told to leave, round 4 ends"),
    ],
)
def test_a_plan_says_what_will_happen(replicas: int, sentence: str) -> None:
    assert sentence in plan(formed([1, 2, 0]), replicas)


def test_who_leaves_has_the_highest_rank() -> None:
    assert leavers(formed([1, 2, 0]), 1) == [0, 2]


def with_one_finished(finished: str = "1/ab.1", **rendezvous: Any) -> Look:
    """A round of workers 0 to 3, which stands on when one of them has finished."""
    return formed([0, 1, 2, 3], rendezvous={"finished": finished, **rendezvous})


def test_who_has_finished_neither_leaves_nor_takes_a_place() -> None:
    assert [leavers(with_one_finished(), size) for size in (4, 3, 2)] == [[], [3], [2, 3]]
    earlier = formed([0, 2], spec={"replicas": 3}, rendezvous={"finished": "1/ab.1"}, pods=[pod(1)])
    assert leavers(earlier, 2) == [2]


@pytest.mark.parametrize(
    ("look", "replicas", "sentence"),
    [
        (with_one_finished(), 3, "worker 3 is told to leave, round 4 ends, and one of 2 workers follows."),
        (with_one_finished(), 1, "workers 0, 2 and 3 are told to leave, and digits is complete: nobody else is wanted"),
        (
            with_one_finished(),
            6,
            "2 pods are made; no round is formed for them, as worker 1 has finished: they take part if round 4 breaks.",
        ),
        (
            with_one_finished(),
            5,
            "1 pod is made; no round is formed for it, as worker 1 has finished: it takes part if",
        ),
        (
            formed([0, 2], spec={"replicas": 3}, rendezvous={"finished": "1/ab.1"}),
            4,
            "is then replaced by one of 3 workers.",
        ),
    ],
)
def test_a_plan_counts_who_has_finished(look: Look, replicas: int, sentence: str) -> None:
    assert sentence in plan(look, replicas)


def with_a_spare(*more: int, **spec: Any) -> Look:
    """Workers 0 and 1 train, and 2 waits as their spare, as do `more` of them."""
    others = [2, *more]
    asked = [record(index, joins(4)) for index in others]
    given = {"spareReplicas": len(others), "maxReplicas": 9, **spec}
    return formed([0, 1], spec=given, pods=[pod(index) for index in others], records=asked)


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [
        (
            3,
            "spec.replicas of digits is 3 now, and was 2. What follows: worker 2 takes a place as the spare that it "
            "is, and 1 pod is made; round 4 is replaced at once by one of 3 workers.",
        ),
        (
            4,
            "worker 2 takes a place as the spare that it is, and 2 pods are made; round 4 trains on until they have "
            "joined, and is then replaced by one of 4 workers.",
        ),
    ],
)
def test_spares_are_taken_first(replicas: int, sentence: str) -> None:
    assert sentence in plan(with_a_spare(), replicas)


def test_spares_stay_when_a_job_gets_smaller() -> None:
    assert leavers(with_a_spare(3), 1) == [1]
    assert leavers(with_a_spare(3, spareReplicas=1), 1) == [1, 3]


def test_newcomers_leave_before_members_and_those_that_have_joined_last_of_them() -> None:
    pods, said = [pod(3), pod(4)], [record(4, joins(4))]
    seen = formed([1, 2, 0], spec={"replicas": 5}, pods=pods, records=said)
    assert [leavers(seen, size) for size in (4, 3, 2)] == [[3], [3, 4], [0, 3, 4]]


def test_no_spare_leaves() -> None:
    seen = formed([1, 2, 0], spec={"replicas": 3, "spareReplicas": 1}, pods=[pod(3)], records=[record(3, joins(4))])
    assert [leavers(seen, size) for size in (3, 2)] == [[], [0]]


@pytest.mark.parametrize(
    ("look", "sentence"),
    [
        (forming(joined=[0]), "round 2, which is forming, waits for them too"),
        (formed([0, 1], spec={"suspend": True}), "It is suspended: that counts when it goes on."),
        (formed([0, 1], rendezvous={"phase": "Closed", "outcome": "Closed"}), "no other round will form"),
    ],
)
def test_a_plan_for_a_job_that_does_not_train(look: Any, sentence: str) -> None:
    assert sentence in plan(look, 5)
