# SPDX-License-Identifier: Apache-2.0
"""A cluster without machines: a real control plane with its controllers, and stand-in kubelets.

The operators are the chart's own Deployment, and run as processes like all else. What tests do to machines,
`e2e.disruption.Machines`, is done to processes here.
"""

import asyncio
import json
import os
import signal as signals
import subprocess
import threading
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from api import chart
from e2e.disruption import CHECKPOINTS, CONTROL_PLANE
from e2e.kube import Failed, Object, wait_until
from plane.kubelet import Kubelet
from plane.pod_run import PodRun
from plane.sandbox import marked
from support import ControlPlane, lateness

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
NODES = (CONTROL_PLANE, "elasticjob-worker", "elasticjob-worker2")  # as the local cluster's
TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
CALL_SECONDS = 60.0
OPTIONS = ("--set", "crds.upgrade=false", "--set", "kueue.gang=true", "--no-hooks")


class ProcessCluster:
    """From `start` to `stop`. The kubelets work in a thread of their own."""

    outlives_the_tests = False

    def __init__(self, work: Path) -> None:
        self._work = work
        self.plane = ControlPlane(controllers=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubelets", daemon=True)

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    def take_broken(self) -> BaseException | None:
        """What has broken the kubelet of a pod or a node since this was last asked, if anything has."""
        error, self._kubelet.broken = self._kubelet.broken, None
        return error

    def start(self) -> None:
        self.plane.start()
        self.plane.install_crds(*sorted((ROOT / "crds").glob("*.yaml")))
        self._install()
        self._thread.start()
        self._do(self._open())
        deployment = f"/apis/apps/v1/namespaces/{chart.NAMESPACE}/deployments/{chart.OPERATOR}"

        def ready() -> bool:
            return bool(self.plane.request("GET", deployment).get("status", {}).get("readyReplicas") == 2)

        wait_until("the operators to be ready", ready, CALL_SECONDS)

    def stop(self) -> None:
        self._do(self._kubelet.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
        for pid in marked(str(self._work)):
            with suppress(ProcessLookupError):
                os.kill(pid, signals.SIGKILL)
        self.plane.stop()

    def _install(self) -> None:
        """The chart, as `make install` does."""
        self.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": chart.NAMESPACE}})
        bodies = "\n---\n".join(map(json.dumps, chart.render(*OPTIONS)))
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", "apply", "--server-side", "--filename=-"]
        done = subprocess.run(command, input=bodies, capture_output=True, text=True, timeout=CALL_SECONDS, check=False)
        if done.returncode:
            raise Failed(f"{' '.join(command)}\n{done.stderr}")

    @contextmanager
    def late_operators(self) -> Iterator[None]:
        """The operators stand still now and then, if lateness is wanted: for less time than their Lease lasts."""
        over = threading.Event()
        thread = threading.Thread(target=self._delay_operators, args=(over,), name="late operators")
        if lateness.is_wanted():
            thread.start()
        try:
            yield
        finally:
            over.set()
            if thread.ident:
                thread.join()

    def _delay_operators(self, over: threading.Event) -> None:
        while not over.wait(1):
            late = lateness.seconds("operator")
            runs = [run for run in self._kubelet.runs() if run.body["metadata"]["namespace"] == chart.NAMESPACE]
            for number in (signals.SIGSTOP, signals.SIGCONT) if late else ():
                for run in runs:
                    self._loop.call_soon_threadsafe(run.signal, number)
                over.wait(late if number == signals.SIGSTOP else 0)

    async def _open(self) -> None:
        token = json.loads(self.kubeconfig.read_text())["users"][0]["user"]["token"]
        self._kubelet = Kubelet(self.plane.server, self.plane.authority, token, self._work)
        await self._kubelet.open()
        for name in NODES:
            await self._kubelet.add(name, {}, [TAINT] if name == CONTROL_PLANE else [])

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it where the kubelets work."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    # --- what is done to machines

    def signal(self, pod: Object, container: str, signal: str) -> None:
        process = self._run_of(pod).running.get(container)
        if process is not None:
            process.signal(signals.Signals[f"SIG{signal}"])
        elif signal != "CONT":
            raise Failed(f"container {container} of {pod['metadata']['name']} does not run")

    def signal_training(self, pod: Object, container: str, signal: str) -> float:
        run = self._run_of(pod)

        def training() -> int | None:
            """The agent's container may be about to start again, and so may what trains in it."""
            agent = run.running.get(container)
            there = run.sandbox.processes(container) if agent is not None else []
            return next((pid for pid in there if agent is not None and pid != agent.pid), None)

        name = pod["metadata"]["name"]
        pid, now = wait_until(f"a training process in {name}", training, CALL_SECONDS), time.time()
        os.kill(pid, signals.Signals[f"SIG{signal}"])
        return now

    def stop_for(self, pod: Object, container: str, seconds: float) -> float:
        self.signal(pod, container, "STOP")
        began = time.time()
        time.sleep(seconds)
        self.signal(pod, container, "CONT")
        return time.time() - began

    def touch(self, pod: Object, container: str, path: str) -> None:
        (self._run_of(pod).sandbox.folder / path.lstrip("/")).touch()

    def checkpoint(self, run_id: str) -> str:
        file = self._checkpoint(run_id)
        return file.read_text() if file.exists() else ""

    def forget_checkpoint(self, run_id: str) -> None:
        self._checkpoint(run_id).unlink(missing_ok=True)

    def pause(self, node: str) -> None:
        self._loop.call_soon_threadsafe(self._kubelet.nodes[node].pause)

    def resume(self, node: str) -> None:
        self._loop.call_soon_threadsafe(self._kubelet.nodes[node].resume)

    def kill(self, node: str) -> None:
        self._loop.call_soon_threadsafe(self._kubelet.nodes[node].power_off)

    def start_node(self, node: str) -> None:
        self.resume(node)

    def wait_for_system(self) -> None:
        pass

    def pause_api(self) -> None:
        for pid in self.plane.pids:
            os.kill(pid, signals.SIGSTOP)

    def resume_api(self) -> None:
        for pid in self.plane.pids:
            os.kill(pid, signals.SIGCONT)

    def forget_history(self) -> None:
        revision = self._etcd("range", {"key": "AA=="})["header"]["revision"]
        self._etcd("compaction", {"revision": revision, "physical": True})
        self.plane.stop_server()
        self.plane.start_server()

    def _etcd(self, call: str, body: Object) -> Object:
        path = f"{self.plane.database}/v3/kv/{call}"
        with urllib.request.urlopen(path, json.dumps(body).encode(), timeout=CALL_SECONDS) as answer:
            return dict(json.load(answer))

    def _checkpoint(self, run_id: str) -> Path:
        return self._kubelet.host / CHECKPOINTS.lstrip("/") / run_id

    def _run_of(self, pod: Object) -> PodRun:
        found = self._kubelet.run_of(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if found is None:
            raise Failed(f"no kubelet runs {pod['metadata']['name']}")
        return found
