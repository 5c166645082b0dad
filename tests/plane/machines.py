"""What tests do to containers from outside of Kubernetes, where these are processes."""

import signal
import time
from pathlib import Path

from e2e.job import CHECKPOINTS
from e2e.kube import Object
from plane.cluster import ProcessCluster


class OfProcesses:
    """As `e2e.job.Machines` says."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster

    def signal(self, pod: Object, container: str, name: str) -> None:
        self._cluster.signal(pod, container, signal.Signals[name])

    def signal_training(self, pod: Object, container: str, name: str) -> float:
        now = time.time()
        self._cluster.signal_training(pod, container, signal.Signals[name])
        return now

    def touch(self, pod: Object, container: str, name: str) -> None:
        (self._cluster.tmp(pod) / name).touch()

    def saved_step(self, run_id: str) -> int:
        file = self._checkpoint(run_id)
        return int(file.read_text()) if file.exists() else 0

    def forget_checkpoint(self, run_id: str) -> None:
        self._checkpoint(run_id).unlink(missing_ok=True)

    def _checkpoint(self, run_id: str) -> Path:
        return self._cluster.kubelet.host / CHECKPOINTS.lstrip("/") / run_id
