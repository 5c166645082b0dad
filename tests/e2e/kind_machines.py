# SPDX-License-Identifier: Apache-2.0
"""The machines of the local cluster: its nodes are containers of Docker.

Processes are signalled from their node: inside of a container the kernel protects its first process.
"""

import json

from e2e.kube import CLUSTER, Failed, Object, kubectl, run, succeed, wait_until

CONTROL_PLANE = f"{CLUSTER}-control-plane"
NODE = f"{CLUSTER}-worker"  # any of them: they share the directory
CHECKPOINTS = "/var/lib/elasticjob/checkpoints"
BACK_SECONDS = 120  # for a node to be Ready again, on a machine of two busy cores
TOLD_SECONDS = 60  # for a pod's status to follow what its containers do, likewise
FREEZE_SECONDS = 20  # for one to stand still, likewise


def maybe_status(pod: Object, name: str) -> Object | None:
    statuses: list[Object] = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    return next((one for one in statuses if one["name"] == name), None)


def container_status(pod: Object, name: str) -> Object:
    status = maybe_status(pod, name)
    assert status is not None, f"pod {pod['metadata']['name']} says nothing of container {name}: {pod['status']}"
    return status


class Kind:
    """As `e2e.disruption.Machines` says."""

    outlives_the_tests = True

    def signal(self, pod: Object, container: str, signal: str) -> None:
        task = task_of(pod, container)
        kill = ["ctr", "--namespace", "k8s.io", "task", "kill", "--signal", f"SIG{signal}", task]
        command = ["docker", "exec", pod["spec"]["nodeName"], *kill]
        answer = run(*command)
        # nothing is left to wake where the kubelet, whose probes got no answer, has killed the container
        is_gone = "no running task found" in answer.errors or 'in namespace "k8s.io": not found' in answer.errors
        if answer.code and not (signal == "CONT" and is_gone):
            raise Failed(f"{' '.join(command)}\n{answer.errors}")

    def signal_training(self, pod: Object, container: str, signal: str) -> float:
        # the oldest child of the container's first process, torchrun: younger ones wait to become the next
        oldest = "$(cat /proc/$first/task/*/children | tr ' ' '\\n' | sort --numeric-sort | grep --max-count=1 .)"
        return float(from_its_node(pod, container, f"date +%s.%N; kill -{signal} {oldest}"))

    def stop_for(self, pod: Object, container: str, seconds: float) -> float:
        # the node wakes it: a command from here may be late
        stop = f"date +%s.%N; kill -STOP $first; sleep {seconds:.2f}; kill -CONT $first; date +%s.%N"
        began, ended = map(float, from_its_node(pod, container, stop).split())
        return ended - began

    def touch(self, pod: Object, container: str, path: str) -> None:
        file = f"/proc/$first/root{path}"
        made = f"touch {file}.new && chown --reference=/proc/$first {file}.new"  # it is seen when it is the user's
        from_its_node(pod, container, f"{made} && mv {file}.new {file}")

    def checkpoint(self, run_id: str) -> str:
        return run("docker", "exec", NODE, "cat", f"{CHECKPOINTS}/{run_id}").output

    def forget_checkpoint(self, run_id: str) -> None:
        run("docker", "exec", CONTROL_PLANE, "rm", "-f", f"{CHECKPOINTS}/{run_id}")

    def pause(self, node: str) -> None:
        """runc thaws a node's processes and gives up where some take too long, as on a busy machine."""

        def frozen() -> bool:
            answer = run("docker", "pause", node)
            if answer.code and "unable to freeze" not in answer.errors:
                raise Failed(f"docker pause {node}\n{answer.errors}")
            return not answer.code

        wait_until(f"runc to freeze {node}", frozen, FREEZE_SECONDS)

    def resume(self, node: str) -> None:
        succeed("docker", "unpause", node)

    def kill(self, node: str) -> None:
        succeed("docker", "kill", node)

    def start_node(self, node: str) -> None:
        succeed("docker", "start", node)

    def wait_for_system(self) -> None:
        """What runs on every node runs."""
        pods = ["pod", "--all", "--namespace=kube-system"]
        kubectl("wait", *pods, "--for=condition=Ready", f"--timeout={BACK_SECONDS}s")

    def pause_api(self) -> None:
        self.pause(CONTROL_PLANE)

    def resume_api(self) -> None:
        self.resume(CONTROL_PLANE)

    def forget_history(self) -> None:
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

        self.signal(server, name, "KILL")
        wait_until("the API server to be started again", restarted, BACK_SECONDS)


def task_of(pod: Object, container: str) -> str:
    """The name that containerd has for a container. Its processes may have printed much before the kubelet tells it."""
    name, namespace, uid = (pod["metadata"][key] for key in ("name", "namespace", "uid"))
    seen = pod

    def told() -> str | None:
        nonlocal seen
        if (status := maybe_status(seen, container)) and (task := status.get("containerID")):
            return str(task).removeprefix("containerd://")
        said = run("kubectl", "get", "pod", name, f"--namespace={namespace}", "--output=json")
        now = pod if said.code else json.loads(said.output)
        if now["metadata"]["uid"] == uid:
            seen = now
        return None

    what = f"the kubelet to tell of container {container} of pod {name}"
    return wait_until(what, told, TOLD_SECONDS, lambda: seen["status"])


def from_its_node(pod: Object, container: str, script: str) -> str:
    """The output of a shell script on a container's node, to which $first is the container's first process. A shell in
    the container would end with that."""
    task = task_of(pod, container)
    find = f"ctr --namespace k8s.io task ls | awk '$1 == \"{task}\" {{print $2}}'"
    node = pod["spec"]["nodeName"]
    return succeed("docker", "exec", node, "sh", "-c", f'first=$({find}); [ "$first" ] && {{ {script}; }}')
