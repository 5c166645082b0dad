"""What breaks in a cluster, done on purpose: processes, containers, nodes, the API server. Each undoes itself.

Processes are signalled from their node: inside of a container the kernel protects its first process.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from e2e.kube import Failed, Namespace, Object, kubectl, run, succeed, wait_until

SLOW_PROXY = Path(__file__).with_name("slow_proxy.py")
CONTROL_PLANE = "elasticjob-control-plane"
BACK_SECONDS = 120  # for a node to be Ready again, on a machine of two busy cores
FREEZE_SECONDS = 20  # for one to stand still, likewise


def container_status(pod: Object, name: str) -> Object:
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    status: Object = next(one for one in statuses if one["name"] == name)
    return status


def freeze_container(pod: Object, name: str) -> None:
    succeed(*signal_command(pod, name, "SIGSTOP"))


def wake_container(pod: Object, name: str) -> None:
    """Nothing is left to wake where the kubelet, whose probes got no answer, has killed the container."""
    command = signal_command(pod, name, "SIGCONT")
    answer = run(*command)
    is_gone = "no running task found" in answer.errors or 'in namespace "k8s.io": not found' in answer.errors
    if answer.code and not is_gone:
        raise Failed(f"{' '.join(command)}\n{answer.errors}")


def stop_container(pod: Object, name: str, seconds: float) -> float:
    """Its first process stands still for so long. Returns for how long it did, by the node's clock. The node wakes it:
    a command from here may be late."""
    stop = f"date +%s.%N; kill -STOP $first; sleep {seconds:.2f}; kill -CONT $first; date +%s.%N"
    began, ended = map(float, from_its_node(pod, name, stop).split())
    return ended - began


def kill_container(pod: Object, name: str) -> None:
    signal_container(pod, name, "SIGKILL")


def signal_container(pod: Object, name: str, signal: str) -> None:
    succeed(*signal_command(pod, name, signal))


def signal_command(pod: Object, name: str, signal: str) -> list[str]:
    """What sends a signal to a container's first process."""
    container = container_status(pod, name)["containerID"].removeprefix("containerd://")
    kill = ["ctr", "--namespace", "k8s.io", "task", "kill", "--signal", signal, container]
    return ["docker", "exec", pod["spec"]["nodeName"], *kill]


def signal_worker_process(pod: Object, container: str, signal: str = "KILL") -> float:
    """kill -9 of the training process, or another signal; return the moment, in seconds since the epoch.

    It is the oldest child of the container's first process, torchrun: younger ones wait to become the next.
    """
    oldest = "$(cat /proc/$first/task/*/children | tr ' ' '\\n' | sort --numeric-sort | grep --max-count=1 .)"
    return float(from_its_node(pod, container, f"date +%s.%N; kill -{signal} {oldest}"))


def touch(pod: Object, container: str, path: str) -> None:
    """Make an empty file of its user's in a container, which may end for it at once."""
    file = f"/proc/$first/root{path}"
    made = f"touch {file}.new && chown --reference=/proc/$first {file}.new"  # it is seen when it is the user's
    from_its_node(pod, container, f"{made} && mv {file}.new {file}")


def from_its_node(pod: Object, container: str, script: str) -> str:
    """The output of a shell script on a container's node, to which $first is the container's first process. A shell in
    the container would end with that."""
    task = container_status(pod, container)["containerID"].removeprefix("containerd://")
    find = f"ctr --namespace k8s.io task ls | awk '$1 == \"{task}\" {{print $2}}'"
    node = pod["spec"]["nodeName"]
    return succeed("docker", "exec", node, "sh", "-c", f'first=$({find}); [ "$first" ] && {{ {script}; }}')


def worker_nodes() -> list[str]:
    nodes = json.loads(kubectl("get", "nodes", "--output", "json"))["items"]
    return sorted(node["metadata"]["name"] for node in nodes if node["metadata"]["name"] != CONTROL_PLANE)


@contextmanager
def paused_node(node: str) -> Iterator[None]:
    """All of a node stands still, and knows nothing of it afterwards."""
    pause(node)
    try:
        yield
    finally:
        woken = datetime.now(UTC)
        succeed("docker", "unpause", node)
        wait_for_node(node, woken)


def pause(node: str) -> None:
    """Freeze all processes of a node. runc thaws them and gives up where some take too long, as on a busy machine."""

    def frozen() -> bool:
        answer = run("docker", "pause", node)
        if answer.code and "unable to freeze" not in answer.errors:
            raise Failed(f"docker pause {node}\n{answer.errors}")
        return not answer.code

    wait_until(f"runc to freeze {node}", frozen, FREEZE_SECONDS)


@contextmanager
def killed_node(node: str) -> Iterator[None]:
    """A node loses its power; afterwards it is started again."""
    succeed("docker", "kill", node)
    try:
        yield
    finally:
        started = datetime.now(UTC)
        succeed("docker", "start", node)
        wait_for_node(node, started, restarted=True)


@contextmanager
def paused_api() -> Iterator[None]:
    """The API server, etcd, the scheduler and the controllers stand still."""
    pause(CONTROL_PLANE)
    try:
        yield
    finally:
        woken = datetime.now(UTC)
        succeed("docker", "unpause", CONTROL_PLANE)
        wait_for_node(CONTROL_PLANE, woken)


@contextmanager
def cut_link(one: Object, other: Object) -> Iterator[None]:
    """No packet passes between two pods: the node of `one` drops them, through which all of them go."""
    addresses = one["status"]["podIP"], other["status"]["podIP"]
    ends = [addresses, addresses[::-1]]

    def iptables(do: str, source: str, to: str) -> list[str]:
        rule = [do, "FORWARD", "-s", source, "-d", to, "-j", "DROP"]
        return ["docker", "exec", one["spec"]["nodeName"], "iptables", "--wait", *rule]

    with ExitStack() as whole:
        for source, to in ends:
            succeed(*iptables("-I", source, to))
            whole.callback(succeed, *iptables("-D", source, to))
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
        said = json.loads(kubectl("get", "node", node, "--output=json"))
        return [one["key"] for one in said["spec"].get("taints", ()) if one["key"].startswith("node.kubernetes.io/")]

    wait_until(f"node {node} to have no taints", lambda: not taints(), BACK_SECONDS, taints)


def wait_for_node(node: str, since: datetime, *, restarted: bool = False) -> None:
    """Wait until the node's kubelet reports to the API server again, and what runs on every node runs. Where it was
    `restarted`, what the API server has of it is of before until it has told its own state."""

    def back() -> bool:
        lease = run("kubectl", "get", "lease", node, "--namespace=kube-node-lease", "--request-timeout=5s", "-ojson")
        renewed = "" if lease.code else json.loads(lease.output)["spec"].get("renewTime", "")
        said = run("kubectl", "get", "node", node, "--request-timeout=5s", "--output=json")
        conditions = [] if said.code else json.loads(said.output)["status"]["conditions"]
        ready = next((one for one in conditions if one["type"] == "Ready" and one["status"] == "True"), None)
        is_of_now = ready and (not restarted or datetime.fromisoformat(ready["lastHeartbeatTime"]) > since)
        return bool(is_of_now) and bool(renewed) and datetime.fromisoformat(renewed) > since

    wait_until(f"node {node} to be Ready", back, BACK_SECONDS)
    wait_for_no_taint(node)
    kubectl("wait", "pod", "--all", "--namespace=kube-system", "--for=condition=Ready", f"--timeout={BACK_SECONDS}s")


def forget_history() -> None:
    """Compact etcd and restart the API server, so that every watch has to begin anew: 410 Gone."""
    pki = "/etc/kubernetes/pki/etcd"
    curl = ["curl", "--silent", "--fail-with-body", "--cacert", f"{pki}/ca.crt"]
    curl += ["--cert", f"{pki}/server.crt", "--key", f"{pki}/server.key", "--data"]
    etcd = ["docker", "exec", CONTROL_PLANE, *curl]
    header = json.loads(succeed(*etcd, '{"key": "AA=="}', "https://127.0.0.1:2379/v3/kv/range"))["header"]
    body = json.dumps({"revision": header["revision"], "physical": True})
    succeed(*etcd, body, "https://127.0.0.1:2379/v3/kv/compaction")
    name = "kube-apiserver"
    command = ["kubectl", "get", "pod", f"{name}-{CONTROL_PLANE}", "--namespace=kube-system", "--output=json"]
    server = json.loads(succeed(*command))

    def restarted() -> bool:
        said = run(*command, "--request-timeout=5s")
        now = server if said.code else json.loads(said.output)
        return container_status(now, name)["restartCount"] > container_status(server, name)["restartCount"]

    kill_container(server, name)
    wait_until("the API server to be started again", restarted, BACK_SECONDS)
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
    gateway = succeed("docker", "exec", CONTROL_PLANE, "sh", "-c", "ip route show default").split()[2]
    from_elsewhere = ["-p", "tcp", "--dport", "6443", "!", "-s", gateway, "-i", "eth0"]
    redirect = ["-t", "nat", "-I", "PREROUTING", *from_elsewhere, "-j", "REDIRECT", "--to-ports", str(port)]
    # connections that are open already would stay fast
    cut = ["-t", "filter", "-I", "INPUT", *from_elsewhere, "-j", "REJECT", "--reject-with", "tcp-reset"]
    rules = [redirect, cut]
    try:
        for rule in rules:
            succeed("docker", "exec", CONTROL_PLANE, "iptables", "--wait", *rule)
        yield
    finally:
        for rule in rules:
            undo = ("-D" if word == "-I" else word for word in rule)
            succeed("docker", "exec", CONTROL_PLANE, "iptables", "--wait", *undo)
        namespace.kubectl("delete", f"pod/{name}", f"configmap/{name}")
