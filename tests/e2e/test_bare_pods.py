# SPDX-License-Identifier: Apache-2.0
"""The kubernetes backend in real pods with real torch and no operator: the example's manifest, but with train.py."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.disruption import CHECKPOINTS, NODE
from e2e.job import STARTED_SECONDS
from e2e.kube import Namespace, Object, run, wait_until
from e2e.trainer_log import Step, TrainerLog

pytestmark = [pytest.mark.on_workers, pytest.mark.patient, pytest.mark.real]

EXAMPLE = Path(__file__).parents[2] / "examples/kubernetes-backend/digits.yaml"
PODS = ("digits-0", "digits-1", "digits-2")
KINDS = ("ConfigMap", "Pod", "Role", "RoleBinding", "ServiceAccount")
FIRST_CHECKPOINT = 5  # SAVE_EVERY of the script
EXPIRY_SECONDS = 15  # keep_alive_interval times keep_alive_max_attempt


class BarePods:
    """The objects of the example, whose pods run train.py of these tests; `idle` ones run no agent."""

    def __init__(self, namespace: Namespace, *, idle: bool = False) -> None:
        self.namespace = namespace
        self.run_id = f"bare-{secrets.token_hex(4)}"
        items = [item for item in yaml.safe_load(EXAMPLE.read_text())["items"] if item["kind"] in KINDS]
        items = json.loads(json.dumps(items))  # the pods share one spec there
        self.pods = {item["metadata"]["name"]: item for item in items if item["kind"] == "Pod"}
        for pod in self.pods.values():
            self._adapt(pod["spec"])
            if idle:
                pod["spec"]["containers"][0]["command"] = ["sleep", "infinity"]
        namespace.apply(*items)

    def _adapt(self, spec: Object) -> None:
        (trainer,) = spec["containers"]
        options = [option for option in trainer["command"] if not option.startswith(("--rdzv-id", "--rdzv-conf"))]
        changed = [f"--rdzv-id={self.run_id}", "--rdzv-conf=last_call_timeout=5", "/test/train.py"]
        trainer["command"] = [*options[:-1], *changed]
        del trainer["resources"]  # three of the demo's size may not fit beside other tests
        mounts = {mount["name"]: mount for mount in trainer["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts |= {
            "torch": {"name": "torch", "mountPath": "/opt/torch", "readOnly": True},
            "script": {"name": "script", "mountPath": "/test"},
        }
        volumes |= {
            "torch": {"name": "torch", "hostPath": {"path": "/opt/torch", "type": "Directory"}},
            "script": {"name": "script", "configMap": {"name": "train"}},
            "checkpoints": {"name": "checkpoints", "hostPath": {"path": CHECKPOINTS, "type": "Directory"}},
        }
        trainer["volumeMounts"], spec["volumes"] = list(mounts.values()), list(volumes.values())

    def state(self) -> Object:
        """As the example's README has people look at it."""
        text = self.namespace.kubectl("get", "configmap", "digits", "-o", "jsonpath={.data.state}")
        body: Object = json.loads(text or "{}")
        return body

    def address(self, pod: str) -> str:
        return str(self.namespace.get("pod", pod)["status"].get("podIP"))

    def last_steps(self) -> dict[str, Step]:
        """The last step of each pod that has a log."""
        steps = {pod: TrainerLog.read(self.namespace, pod, "trainer", last=20).steps() for pod in PODS}
        return {pod: taken[-1] for pod, taken in steps.items() if taken}

    def wait_for_group(self, size: int, seconds: float, *, other_than: str = "") -> dict[str, Step]:
        """Wait until as many pods have taken a step together, in a new group."""

        def together() -> dict[str, Step] | None:
            steps = self.last_steps()
            for group in {step.group for step in steps.values()} - {other_than}:
                members = {pod: step for pod, step in steps.items() if step.group == group}
                if len(members) == size and all(step.world_size == size for step in members.values()):
                    return members
            return None

        return wait_until(
            f"a group of {size} that trains", together, seconds, lambda: (self.last_steps(), self.state())
        )

    def wait_for_checkpoint(self, seconds: float) -> None:
        def saved() -> bool:
            return any(step.step > FIRST_CHECKPOINT for step in self.last_steps().values())

        wait_until("the first checkpoint", saved, seconds, self.last_steps)

    def participants(self) -> dict[str, int]:
        """The ranks of the present round by address."""
        return {node.split("/")[0]: rank for node, rank in self.state()["participants"].items()}


@pytest.fixture
def bare_pods(namespace: Namespace) -> Iterator[BarePods]:
    made = BarePods(namespace)
    yield made
    run("docker", "exec", NODE, "rm", "-f", f"{CHECKPOINTS}/{made.run_id}", f"{CHECKPOINTS}/{made.run_id}.new")


def test_bare_pods_train_replace_a_member_and_finish(bare_pods: BarePods) -> None:
    namespace = bare_pods.namespace
    steps = bare_pods.wait_for_group(3, STARTED_SECONDS)
    bare_pods.wait_for_checkpoint(STARTED_SECONDS)
    first = bare_pods.state()
    assert (first["runId"], first["complete"], first["closed"]) == (bare_pods.run_id, True, False)
    assert bare_pods.participants() == {bare_pods.address(pod): step.rank for pod, step in steps.items()}

    # rank 0 serves the workers' store, and its agent told the others where
    (lost,) = (pod for pod, step in steps.items() if step.rank == 0)
    namespace.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    namespace.apply(bare_pods.pods[lost])
    again = bare_pods.wait_for_group(3, EXPIRY_SECONDS + STARTED_SECONDS, other_than=steps[lost].group)
    second = bare_pods.state()
    assert second["round"] > first["round"]
    assert bare_pods.participants() == {bare_pods.address(pod): step.rank for pod, step in again.items()}
    assert again[lost].step > FIRST_CHECKPOINT, "the training went on from its checkpoint"

    namespace.kubectl("exec", lost, "-c", "trainer", "--", "touch", "/tmp/finish")
    for pod in PODS:
        namespace.kubectl("wait", f"pod/{pod}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=150s")
    assert bare_pods.state()["closed"] is True


# What torch's own classes make of the store: PrefixStore calls it from C++.
STORE = """
import datetime, threading
import torch.distributed as dist
from elasticjob_torch.kubernetes.access import find_access
from elasticjob_torch.kubernetes.api import ApiClient
from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.config_map import ConfigMap
from elasticjob_torch.kubernetes.store import KubernetesStore

def make():
    access = find_access()
    config_map = ConfigMap(ApiClient(access, SharedClock()), access.namespace(), "digits-store")
    return KubernetesStore(config_map, lambda: "test/")

plain = make()  # torch's C++ does not keep it alive
for store in (plain, dist.PrefixStore("a/b", plain)):
    store.set_timeout(datetime.timedelta(seconds=30))
    store.set("text", "x")
    store.set("bytes", bytes(range(256)))
    assert store.multi_get(["text", "bytes"]) == [b"x", bytes(range(256))]
    assert [store.add("n", 2), store.add("n", 3)] == [2, 5]
    assert store.compare_set("new", "", "v") == b"v"
    assert store.compare_set("new", "other", "w") == b"v"
    assert store.check(["text", "n"]) and not store.check(["text", "none"])
    store.append("text", "y")
    store.multi_set(["one", "two"], ["1", "2"])
    assert store.get("text") == b"xy" and store.delete_key("text") and store.num_keys() >= 5
    threading.Timer(1, store.set, ("late", "z")).start()
    assert store.get("late") == b"z"
    store.set_timeout(datetime.timedelta(seconds=0.5))
    for wait in (lambda: store.get("none"), lambda: store.wait(["none"], datetime.timedelta(seconds=0.2))):
        try:
            wait()
        except dist.DistStoreError as error:
            assert "none in ConfigMap" in str(error), error
        else:
            raise AssertionError("the wait ended without its key")
print("as torch has it")
"""


@pytest.mark.extended
def test_store_is_one_for_torch(namespace: Namespace) -> None:
    BarePods(namespace, idle=True)  # a round that forms would delete all keys but its own
    namespace.kubectl("wait", f"pod/{PODS[0]}", "--for=condition=Ready", f"--timeout={STARTED_SECONDS}s")
    done = namespace.kubectl("exec", "--stdin", PODS[0], "-c", "trainer", "--", "python3", "-", stdin=STORE)
    assert done.splitlines()[-1] == "as torch has it"
