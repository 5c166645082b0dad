# SPDX-License-Identifier: Apache-2.0
"""What an operator writes of a job that waits, and what it does to the pods of one that has failed. A test is the
kubelet."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from elasticjob.api import API_VERSION
from elasticjob.kube.errors import Forbidden
from elasticjob.objects import Object
from elasticjob.reading.pod import Pod
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.cluster.reflector import Reflector
from elasticjob_operator.memory import Memories
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.reconciler import Reconciler
from support import ControlPlane

NAMESPACE = "/api/v1/namespaces/default"
JOBS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticjobs"
NO_IMAGE = {"waiting": {"reason": "ErrImagePull", "message": "no such image: nowhere/x"}}
BACK_OFF = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
ENDED = {"exitCode": 3, "reason": "Error", "message": "no such model", "containerID": "x"}


class OperatedJob:
    """One job of two workers that may not fail, its operator, and a kubelet."""

    def __init__(self, plane: ControlPlane, kube: Kube, leadership: Leadership) -> None:
        self.kube, self._plane, self._leadership, self._cache = kube, plane, leadership, Cache()
        self.name = f"job-{secrets.token_hex(3)}"
        containers = [{"name": "trainer", "image": "train:1", "command": ["torchrun", "train.py"]}]
        spec = {"replicas": 2, "minReplicas": 2, "maxRestarts": 0, "template": {"spec": {"containers": containers}}}
        job = {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": self.name}, "spec": spec}
        plane.request("POST", JOBS, job)
        self.announcer = Announcer(kube, "test")
        image = SidecarImage("none", "Always")
        memories = Memories(kube, self._cache, Reflector(kube, self._cache), leadership, self.announcer, image)
        self._reconciler = Reconciler(memories, self._cache, leadership, self.announcer)

    async def look(self) -> Object:
        """The operator works on the job until it has written all; returns the status."""
        key = Key("default", self.name)
        for _ in range(4):
            self._cache.note_job(await self.kube.job(*key))
            await self._reconciler.reconcile(key)
        status: Object = (await self.kube.job(*key))["status"]
        return status

    def place(self, index: int) -> None:
        """The scheduler has found a node, which need not exist."""
        name = f"{self.name}-{index}-0"
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-a"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._plane.request("POST", f"{NAMESPACE}/pods/{name}/binding", binding)

    def say(self, index: int, **status: Any) -> None:
        """The kubelet writes the trainer's status."""
        path = f"{NAMESPACE}/pods/{self.name}-{index}-0"
        container = {"name": "trainer", "image": "train:1", "imageID": "", "ready": False, "restartCount": 0, **status}
        pod = self._plane.request("GET", path)
        changed = {**pod, "status": {**pod["status"], "containerStatuses": [container]}}
        self._cache.note_pod(self._plane.request("PUT", f"{path}/status", changed))

    def pods(self) -> dict[str, Object]:
        items = self._plane.request("GET", f"{NAMESPACE}/pods")["items"]
        mine = {pod["metadata"]["name"]: pod for pod in items if pod["metadata"]["name"].startswith(self.name)}
        return {name.removeprefix(f"{self.name}-"): pod for name, pod in mine.items()}

    async def events(self) -> list[tuple[str, str]]:
        await asyncio.gather(*self.announcer._posting.values())
        items = self._plane.request("GET", f"{NAMESPACE}/events")["items"]
        return [(one["reason"], one["message"]) for one in items if one["involvedObject"]["name"] == self.name]


@pytest.fixture
async def operated(with_crds: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OperatedJob]:
    at_once = {"COUNTERS_SECONDS": 0.0, "AGREED_SECONDS": 0.0, "COUNTED_A_SECOND": 1e9, "AGREED_A_SECOND": 1e9}
    for name, value in at_once.items():
        monkeypatch.setattr(f"elasticjob_operator.job.debounce.{name}", value)
    configuration = Configuration()
    await config.load_kube_config(str(with_crds.kubeconfig), client_configuration=configuration)
    kube = Kube.of(configuration)
    leadership = Leadership(kube, "default", f"lease-{secrets.token_hex(3)}", "test")
    await leadership.acquire()
    yield OperatedJob(with_crds, kube, leadership)
    await kube.close()


async def test_a_wait_has_a_word_a_sentence_and_one_event(operated: OperatedJob) -> None:
    assert (await operated.look())["reason"] == "PodStarting"
    for state in (NO_IMAGE, BACK_OFF, NO_IMAGE):
        operated.say(1, state=state)
        status = await operated.look()
        assert (status["phase"], status.get("reason", "")) == ("Pending", "ImagePull")
    (condition,) = (one for one in status["conditions"] if one["type"] == "Rendezvoused")
    assert condition["reason"] == "ImagePull"
    assert "worker 1: ErrImagePull: no such image: nowhere/x; name an image" in condition["message"]
    told = [message for reason, message in await operated.events() if reason == "ImagePull"]
    assert told == [
        "worker 1: ErrImagePull: no such image: nowhere/x; name an image that the nodes can pull, or the "
        "imagePullSecrets of its registry"
    ]


async def fail(operated: OperatedJob) -> Object:
    """Worker 0 has crashed once too often, worker 1 has no node yet."""
    await operated.look()
    operated.place(0)
    looping = {"waiting": {"reason": "CrashLoopBackOff"}}
    operated.say(0, state=looping, lastState={"terminated": ENDED}, restartCount=1)
    return await operated.look()


async def test_a_failed_jobs_pods_are_ended_and_stay(operated: OperatedJob) -> None:
    status = await fail(operated)
    assert (status["phase"], status.get("reason", "")) == ("Failed", "Failed")
    assert status["rendezvous"]["reason"].endswith("and maxRestarts is 0: exit code 3: no such model")
    (pod,) = (pod for pod in operated.pods().values() if "deletionTimestamp" not in pod["metadata"])
    assert (pod["metadata"]["name"], pod["spec"]["activeDeadlineSeconds"]) == (f"{operated.name}-0-0", 1)


async def test_a_pod_that_another_has_replaced_is_gone(operated: OperatedJob) -> None:
    await operated.look()
    body = operated.pods()["0-0"]
    replaced = Pod.read({**body, "metadata": {**body["metadata"], "uid": "another"}})
    assert await operated.kube.set_deadline(replaced, 1) is None


async def test_a_pod_that_may_not_be_ended_is_deleted(operated: OperatedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> None:
        raise Forbidden("pods may not be patched", 403)

    monkeypatch.setattr(operated.kube, "set_deadline", refuse)
    await fail(operated)
    assert all("deletionTimestamp" in pod["metadata"] for pod in operated.pods().values())
