# SPDX-License-Identifier: Apache-2.0
"""What breaks in a cluster, done on purpose: processes, containers, nodes, the API server. Each undoes itself."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from e2e import api
from e2e.kind_machines import BACK_SECONDS, CHECKPOINTS, CONTROL_PLANE, NODE, Kind, container_status, from_its_node
from e2e.kube import Namespace, Object, first_address_is_ipv6, kubectl, succeed, wait_until

__all__ = ["CHECKPOINTS", "CONTROL_PLANE", "NODE", "container_status", "from_its_node"]

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SLOW_PROXY = Path(__file__).with_name("slow_proxy.py")


class Machines(Protocol):
    """What is done from outside of Kubernetes. `signal` is a name such as KILL; a `path` is one in the container."""

    outlives_the_tests: bool

    def signal(self, pod: Object, container: str, signal: str) -> None:
        """To a container's first process. Raises Failed."""

    def signal_training(self, pod: Object, container: str, signal: str) -> float:
        """To the training process; returns the moment, in seconds since the epoch."""

    def stop_for(self, pod: Object, container: str, seconds: float) -> float:
        """A container's first process stands still. Returns for how long it did, by the node's clock."""

    def touch(self, pod: Object, container: str, path: str) -> None:
        """Make an empty file of the container's user, who may end for it at once."""

    def checkpoint(self, run_id: str) -> str:
        """What a job has saved, read without the API server; empty if nothing is."""

    def forget_checkpoint(self, run_id: str) -> None: ...

    def pause(self, node: str) -> None:
        """All processes of a node stand still."""

    def resume(self, node: str) -> None: ...

    def kill(self, node: str) -> None:
        """A node loses its power."""

    def start_node(self, node: str) -> None: ...

    def wait_for_system(self) -> None:
        """Until what belongs to the cluster itself runs again."""

    def pause_api(self) -> None:
        """The API server, etcd, the scheduler and the controllers stand still."""

    def resume_api(self) -> None: ...

    def forget_history(self) -> None:
        """Compact etcd and restart the API server."""


machines: Machines = Kind()  # another cluster's, where the tests run on one


def freeze_container(pod: Object, name: str) -> None:
    machines.signal(pod, name, "STOP")


def wake_container(pod: Object, name: str) -> None:
    """One that its kubelet has killed meanwhile is left alone."""
    machines.signal(pod, name, "CONT")


def kill_container(pod: Object, name: str) -> None:
    machines.signal(pod, name, "KILL")


def stop_container(pod: Object, name: str, seconds: float) -> float:
    return machines.stop_for(pod, name, seconds)


def signal_worker_process(pod: Object, container: str, signal: str = "KILL") -> float:
    """kill -9 of the training process, or another signal; return the moment, in seconds since the epoch."""
    return machines.signal_training(pod, container, signal)


def touch(pod: Object, container: str, path: str) -> None:
    machines.touch(pod, container, path)


def worker_nodes() -> list[str]:
    nodes = api.call("GET", NODES)["items"]
    return sorted(node["metadata"]["name"] for node in nodes if node["metadata"]["name"] != CONTROL_PLANE)


@contextmanager
def paused_node(node: str) -> Iterator[None]:
    """All of a node stands still, and knows nothing of it afterwards."""
    machines.pause(node)
    try:
        yield
    finally:
        woken = datetime.now(UTC)
        machines.resume(node)
        wait_for_node(node, woken)


@contextmanager
def killed_node(node: str) -> Iterator[None]:
    """A node loses its power; afterwards it is started again."""
    machines.kill(node)
    try:
        yield
    finally:
        started = datetime.now(UTC)
        machines.start_node(node)
        wait_for_node(node, started, restarted=True)


@contextmanager
def paused_api() -> Iterator[None]:
    """The API server, etcd, the scheduler and the controllers stand still."""
    machines.pause_api()
    try:
        yield
    finally:
        woken = datetime.now(UTC)
        machines.resume_api()
        wait_for_node(CONTROL_PLANE, woken)


def _iptables(node: str, address: str, *rule: str) -> list[str]:
    """The command that changes a rule of a node, in the family of the address."""
    return ["docker", "exec", node, "ip6tables" if ":" in address else "iptables", "--wait", *rule]


@contextmanager
def cut_link(one: Object, other: Object) -> Iterator[None]:
    """No packet passes between two pods: the node of `one` drops them, through which all of them go."""
    addresses = one["status"]["podIP"], other["status"]["podIP"]
    ends = [addresses, addresses[::-1]]

    def rule(do: str, source: str, to: str) -> list[str]:
        return _iptables(one["spec"]["nodeName"], source, do, "FORWARD", "-s", source, "-d", to, "-j", "DROP")

    with ExitStack() as whole:
        for source, to in ends:
            succeed(*rule("-I", source, to))
            whole.callback(succeed, *rule("-D", source, to))
        yield


@contextmanager
def cordoned(nodes: Sequence[str]) -> Iterator[None]:
    kubectl("cordon", *nodes)
    try:
        yield
    finally:
        uncordon(*nodes)


def uncordon(*nodes: str) -> None:
    kubectl("uncordon", *nodes)
    for node in nodes:
        wait_for_no_taint(node)


def wait_for_no_taint(node: str) -> None:
    """Of Kubernetes itself: its controllers take one away some time after what it was for."""

    def taints() -> list[str]:
        said = api.call("GET", f"{NODES}/{node}")
        return [one["key"] for one in said["spec"].get("taints", ()) if one["key"].startswith("node.kubernetes.io/")]

    wait_until(f"node {node} to have no taints", lambda: not taints(), BACK_SECONDS, taints)


def wait_for_node(node: str, since: datetime, *, restarted: bool = False) -> None:
    """Wait until the node's kubelet reports to the API server again, and what runs on every node runs. Where it was
    `restarted`, what the API server has of it is of before until it has told its own state."""

    def back() -> bool:
        lease, said = api.ask(f"{LEASES}/{node}"), api.ask(f"{NODES}/{node}")
        renewed = json.loads(lease)["spec"].get("renewTime", "") if lease else ""
        conditions = json.loads(said)["status"].get("conditions", []) if said else []
        ready = next((one for one in conditions if one["type"] == "Ready" and one["status"] == "True"), None)
        is_of_now = ready and (not restarted or datetime.fromisoformat(ready["lastHeartbeatTime"]) > since)
        return bool(is_of_now) and bool(renewed) and datetime.fromisoformat(renewed) > since

    wait_until(f"node {node} to be Ready", back, BACK_SECONDS)
    wait_for_no_taint(node)
    machines.wait_for_system()


def forget_history() -> None:
    """Compact etcd and restart the API server, so that every watch has to begin anew: 410 Gone."""
    machines.forget_history()
    wait_for_node(CONTROL_PLANE, datetime.now(UTC))


@contextmanager
def slow_api(image: str, round_trip: float) -> Iterator[None]:
    """Every request of a node or a pod to the API server takes `round_trip` seconds longer; the tests' do not.

    By a proxy on the control plane's node, for not every kernel can delay packets.
    """
    port, name, namespace = 16443, "slow-api", Namespace("kube-system")
    script = {"slow_proxy.py": SLOW_PROXY.read_text()}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": script}
    container = {
        "name": "proxy",
        "image": image,
        "command": ["python3", "-u", "/proxy/slow_proxy.py", str(port), "6443", str(round_trip / 2)],
        "volumeMounts": [{"name": "script", "mountPath": "/proxy"}],
    }
    spec = {
        "hostNetwork": True,
        "nodeName": CONTROL_PLANE,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "script", "configMap": {"name": name}}],
    }
    namespace.apply(config, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    namespace.kubectl("wait", "pod", name, "--for=condition=Ready", "--timeout=150s")
    wait_until("the proxy to serve", lambda: "serving" in namespace.kubectl("logs", name), 30)
    family = "-6" if first_address_is_ipv6() else "-4"
    gateway = succeed("docker", "exec", CONTROL_PLANE, "ip", family, "route", "show", "default").split()[2]
    from_elsewhere = ["-p", "tcp", "--dport", "6443", "!", "-s", gateway, "-i", "eth0"]
    redirect = ["-t", "nat", "-I", "PREROUTING", *from_elsewhere, "-j", "REDIRECT", "--to-ports", str(port)]
    # connections that are open already would stay fast
    cut = ["-t", "filter", "-I", "INPUT", *from_elsewhere, "-j", "REJECT", "--reject-with", "tcp-reset"]
    rules = [redirect, cut]
    try:
        for rule in rules:
            succeed(*_iptables(CONTROL_PLANE, gateway, *rule))
        yield
    finally:
        for rule in rules:
            undo = ("-D" if word == "-I" else word for word in rule)
            succeed(*_iptables(CONTROL_PLANE, gateway, *undo))
        namespace.kubectl("delete", f"pod/{name}", f"configmap/{name}")
