# SPDX-License-Identifier: Apache-2.0
"""From an older version to this one, back, forward again and away, under a job that trains: `make upgrade-test`.

Each step is what docs/upgrades.md says that people do. The job's pods keep the sidecar that they were made with, and a
pod that is replaced gets that of the operator of the moment: so its groups are mixed, as they are for weeks after a
real upgrade. `--older-chart` is the older version's, packaged with the tag of its images; the nodes have these.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from e2e import release
from e2e.diagnosis import SYSTEM
from e2e.job import SIDECAR, STARTED_SECONDS, TRAINING_SECONDS, Job, Round, Training, restarts
from e2e.kube import Namespace, Object, kubectl, run, succeed, wait_until
from e2e.operator import holder
from e2e.release import CHART
from e2e.test_chart import crds, operators
from elasticjob.api import ElasticJobSpec
from elasticjob_operator.memory import ACCESS_SECONDS
from elasticjob_operator.objects.access import change_of, render_access
from elasticjob_operator.objects.pods import access_name
from support.waiting import settled

RELEASE, WORKERS = "elasticjob", 3
SOME_STEPS = 10
MANY_STEPS = 100  # 20 s: an operator that goes by heartbeats takes who writes none for lost after 15
FINE = {("TemplateValid", "True"), ("Rendezvoused", "True")}  # a job that was never wrong has no other condition
ONE_MORE_RULE = {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}


@pytest.fixture(scope="module")
def older(operator: Namespace, request: pytest.FixtureRequest) -> str:
    """The older version is installed, with its CRDs, in place of this one; the tag of its images."""
    chart = request.config.getoption("--older-chart")
    if not chart:
        pytest.exit("--older-chart is missing; run `make upgrade-test FROM=<git ref>`", 1)
    # its CRDs would drop what only this version knows
    wait_until("the cluster to have no ElasticJob; delete what is left", lambda: not jobs(), 20, jobs)
    helm("uninstall")
    kubectl(
        "apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=succeed("helm", "show", "crds", chart)
    )
    helm("install", chart)
    return tag_of(chart)


@dataclass(slots=True)
class Course:
    """A job on its way from version to version: the round that trains, and what it was told of."""

    job: Job
    formed: Round
    training: Training
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(cls, job: Job) -> "Course":
        job.times = {}  # each version has its own defaults
        job.apply(replicas=WORKERS)
        return cls(job, job.wait_for_round(WORKERS), job.wait_for_training(WORKERS))

    def sidecars(self) -> dict[int, str]:
        """The tags of the workers' sidecars, by index."""
        return {index: sidecar_tag(pod) for index, pod in sorted(self.job.pods().items())}

    def go_on(self, steps: int) -> None:
        """The same round takes so many steps more, and nothing is wrong with the job."""
        wanted = self._step() + steps
        what = f"step {wanted} in round {self.formed.number}"
        self.job.until(what, lambda: self._step() >= wanted, TRAINING_SECONDS)
        conditions = settled(self.job.status["conditions"], "nothing befalls this round")
        assert [one for one in conditions if (one["type"], one["status"]) not in FINE] == []
        assert self.job.restarts == 0
        assert [restarts(pod) + restarts(pod, SIDECAR) for pod in self.job.member_pods()] == [0] * WORKERS

    def replace(self, index: int) -> None:
        """Delete a worker's pod: one new round of all of them forms and trains."""
        self.job.delete_pod(self.job.pod(index))
        before, self.formed = self.formed, self.job.wait_for_round(WORKERS, after=self.formed)
        assert self.formed.number == before.number + 1
        self.training = self.job.wait_for_training(WORKERS, other_than=self.training)
        self.go_on(MANY_STEPS)

    def tell(self, what: str) -> None:
        tags = self.sidecars()
        by_rank = ", ".join(f"{index} {tags.get(index, 'none')}" for index in self.formed.members)
        print(
            f"{time.monotonic() - self.began:4.0f} s  {what}: round {self.formed.number}, step {self._step()}, term "
            f"{self.job.status['term']}, ping {self.job.rendezvous.get('ping')}; by rank: {by_rank}",
            flush=True,
        )

    def _step(self) -> int:
        """The newest step of the round that trains."""
        assert self.job.told(self.formed) is None, f"round {self.formed.number} is over: {self.job.summary()}"
        now = self.job.wait_for_training(WORKERS)
        assert now.group == self.training.group, f"another group trains in round {self.formed.number}"
        return now.step


@pytest.mark.torchrun
@pytest.mark.disruptive
def test_a_job_trains_on_from_version_to_version(older: str, operator: Namespace, job: Job) -> None:
    this = tag_of(CHART)
    course = Course.begin(job)
    course.tell(f"{older} installed")
    assert course.sidecars() == {0: older, 1: older, 2: older}

    change_role(job)
    with others_take_over(operator, job):
        helm("upgrade", CHART, "--reset-then-reuse-values")
    assert_crds_are_those_of_this_chart()
    longest = max(ACCESS_SECONDS) + STARTED_SECONDS
    job.until("the workers' access to be this version's", lambda: has_todays_access(job), longest)
    course.go_on(SOME_STEPS)
    course.tell(f"upgraded to {this}")
    course.replace(1)
    assert course.sidecars() == {0: older, 1: this, 2: older}
    course.tell("a pod of this version among older ones")

    with others_take_over(operator, job):
        helm("rollback")
    course.go_on(MANY_STEPS)
    course.tell(f"rolled back to {older}")
    course.replace(0)
    assert course.sidecars() == {0: older, 1: this, 2: older}
    course.tell("a pod of the older version replaced under its operator")

    with others_take_over(operator, job):
        helm("upgrade", CHART, "--reset-then-reuse-values")
    course.go_on(MANY_STEPS)
    course.tell(f"upgraded to {this} again")
    course.replace(0)
    assert course.sidecars() == {0: this, 1: this, 2: older}
    course.tell("an older pod among those of this version")

    uids = crds()
    helm("uninstall")
    wait_until("the operators to be gone", lambda: not operators(operator), 60)
    course.go_on(SOME_STEPS)
    course.tell("uninstalled")
    assert crds() == uids
    body = settled(job.namespace.get("elasticjob", job.name), "the uid of an object stays")
    assert body["metadata"]["uid"] == job.uid

    with others_take_over(operator, job):
        helm("install", CHART)
    course.go_on(SOME_STEPS)
    course.tell("installed again")
    job.finish_training()
    assert job.wait_for_condition("Complete")["reason"] == "AllFinished"
    job.wait_for_the_end_of_all_pods()


def helm(verb: str, *arguments: str) -> None:
    """Of the release that `make install` makes too; it waits for its operators."""
    release.helm(verb, RELEASE, SYSTEM, *arguments, "--wait")


def tag_of(chart: str) -> str:
    """Of its images, unless values name others."""
    return str(yaml.safe_load(succeed("helm", "show", "chart", chart))["appVersion"])


def sidecar_tag(pod: Object) -> str:
    image = next(one["image"] for one in pod["spec"]["initContainers"] if one["name"] == SIDECAR)
    return str(image.rpartition(":")[2])


def jobs() -> list[str]:
    return kubectl("get", "elasticjobs", "--all-namespaces", "--no-headers", "--ignore-not-found").splitlines()


@contextmanager
def others_take_over(operator: Namespace, job: Job) -> Iterator[None]:
    """Afterwards none of the operators of before is left, and one of the others has taken up the job."""
    before = operators(operator)
    yield
    wait_until("the operators of before to be gone", lambda: operators(operator).isdisjoint(before), 60)
    job.edit()

    def taken_up() -> bool:
        """By the leader, who is none of those that are gone."""
        there = {pod["metadata"]["name"] for pod in operator.list("pods")}
        lease = operator.get("lease", "elasticjob-operator")["spec"]
        return lease.get("holderIdentity") in there and job.status["term"] == lease["leaseTransitions"]

    wait_until("another operator to take up the job", taken_up, 60, lambda: (holder(operator), job.status["term"]))


def change_role(job: Job) -> None:
    """As if the older version gave the workers other rights than this one."""
    patch = json.dumps([{"op": "add", "path": "/rules/-", "value": ONE_MORE_RULE}])
    role = ("role", access_name(job.name))
    made = job.namespace.kubectl("patch", *role, "--type=json", "--patch", patch, "--output=json")
    assert ONE_MORE_RULE in json.loads(made)["rules"]


def has_todays_access(job: Job) -> bool:
    """Whether the account, the role and its binding are what this version's operator makes."""
    body = job.namespace.get("elasticjob", job.name)
    wanted = [one for _, one in render_access(body, ElasticJobSpec.parse(body["spec"]))]
    return all(change_of(job.namespace.get(one["kind"], one["metadata"]["name"]), one) is None for one in wanted)


def assert_crds_are_those_of_this_chart() -> None:
    folder = str((Path(CHART) / "crds").resolve())  # kubectl follows no link
    manager = "--field-manager=elasticjob-chart"
    told = run("kubectl", "diff", "--server-side", "--force-conflicts", manager, "--filename", folder)
    assert told.code == 0, told.output + told.errors
