"""A cluster without machines: a real control plane with its controllers, the real operator, and stand-in kubelets.

What the tests ask of it they ask as they ask a real one, through kubectl and the API. What is done to machines is done
here: processes are signalled, nodes stand still or lose their power, operators are started and killed.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from api import chart
from e2e.kube import Object
from plane.kubelet import Kubelet, Node
from plane.pod_run import PodRun
from plane.sandbox import marked
from support import ControlPlane
from support.ports import free_port
from support.programs import Program

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
NODES = {"node-a": "zone-a", "node-b": "zone-b", "node-c": "zone-b"}
CALL_SECONDS = 60.0
KINDS = (
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


class Operator:
    """One operator process, with the rights of the chart's account."""

    def __init__(self, name: str, kubeconfig: Path, log: Path, *options: str) -> None:
        self.name, self.log = name, log
        flags = [f"--lease-namespace={chart.NAMESPACE}", f"--lease-name={chart.OPERATOR}", "--sidecar-image=none"]
        self.health = free_port()
        environment = {"KUBECONFIG": str(kubeconfig), "POD_NAME": name}
        command = [sys.executable, "-m", "elasticjob_operator", *flags, f"--health-port={self.health}", *options]
        self._program = Program(command, log, environment)

    def signal(self, number: int) -> None:
        os.kill(self._program.pid, number)

    def stop(self) -> None:
        """Kill it."""
        self._program.stop()


class ProcessCluster:
    """From `start` to `stop`. The kubelets work in a thread of their own."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.plane = ControlPlane(controllers=True)
        self.operators: dict[str, Operator] = {}
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubelets", daemon=True)

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    @property
    def nodes(self) -> dict[str, Node]:
        return self.kubelet.nodes

    def start(self) -> None:
        self.plane.start()
        self.plane.install_crds(*sorted((ROOT / "crds").glob("*.yaml")))
        chart.install(self.plane, *KINDS)
        self._thread.start()
        self.do(self._open())
        self.start_operator()

    def stop(self) -> None:
        for operator in self.operators.values():
            operator.stop()
        self.do(self.kubelet.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
        for pid in marked(""):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.plane.stop()

    async def _open(self) -> None:
        token = json.loads(self.kubeconfig.read_text())["users"][0]["user"]["token"]
        self.kubelet = Kubelet(self.plane.server, self.plane.authority, token, self.work)
        await self.kubelet.open()
        for name, zone in NODES.items():
            await self.kubelet.add(name, **{"topology.kubernetes.io/zone": zone})

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it where the kubelets work."""
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(CALL_SECONDS)

    def start_operator(self, *options: str) -> Operator:
        self._number += 1
        name = f"operator-{self._number}"
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = chart.token(self.plane, chart.NAMESPACE, chart.OPERATOR)
        file = self.work / f"{name}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config))
        operator = self.operators[name] = Operator(name, file, self.work / f"{name}.log", *options)
        return operator

    # --- what is done to machines

    def call(self, node: str, what: str) -> None:
        """`pause`, `resume` or `power_off` a node."""

        async def act() -> None:
            getattr(self.nodes[node], what)()

        self.do(act())

    @contextmanager
    def paused(self, node: str) -> Iterator[None]:
        self.call(node, "pause")
        try:
            yield
        finally:
            self.call(node, "resume")

    def signal(self, pod: Object, container: str, number: int) -> None:
        """To a container's first process."""
        self._run_of(pod).running[container].signal(number)

    def signal_training(self, pod: Object, container: str, number: int) -> None:
        """To the oldest process that the agent, the container's first, has started."""
        run = self._run_of(pod)
        agent = run.running[container].pid
        os.kill(next(pid for pid in run.sandbox.processes(container) if pid != agent), number)

    def tmp(self, pod: Object) -> Path:
        """The folder that is the /tmp of a pod's containers."""
        return self.work / str(pod["metadata"]["uid"]) / "tmp"

    def _run_of(self, pod: Object) -> PodRun:
        found = self.kubelet.run_of(pod["metadata"]["namespace"], pod["metadata"]["name"])
        assert found is not None, f"no kubelet runs {pod['metadata']['name']}"
        return found
