# SPDX-License-Identifier: Apache-2.0
"""What the trainers of a namespace's pods printed in all of their lives, also in pods that are gone by now."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from e2e.job import TRAINER
from e2e.kube import Namespace, Object, Watch
from e2e.trainer_log import Line, TrainerLog

READ_SECONDS = 2.0  # between two looks at the logs, which take processor time from the trainers


@dataclass(slots=True)
class PodLogs:
    namespace: Namespace
    pod_states: Watch
    unreachable: set[str] = field(default_factory=set)  # nodes that cannot be asked for logs
    _printed: dict[str, set[Line]] = field(default_factory=dict)
    _read_at: float = 0.0

    def pods(self) -> list[Object]:
        """The pods that are not on their way out, by index."""
        alive = [pod for pod in self.pod_states.present().values() if "deletionTimestamp" not in pod["metadata"]]
        return sorted(alive, key=lambda pod: pod["spec"].get("hostname") or pod["metadata"]["name"])

    def read(self) -> None:
        """Read the logs, of a restarted container the one before as well: the kubelet keeps no more."""
        if time.monotonic() < self._read_at + READ_SECONDS:
            return
        for name, pod in self.pod_states.present().items():
            if pod["spec"].get("nodeName") in self.unreachable:
                continue
            printed = self._printed.setdefault(name, set())
            printed.update(self._log(name))
            if deaths(pod):
                printed.update(self._log(name, previous=True))
        self._read_at = time.monotonic()

    def log(self, pod: Object) -> TrainerLog:
        return self.logs().get(pod["metadata"]["name"], TrainerLog(()))

    def logs(self) -> dict[str, TrainerLog]:
        """By the pod's name, also of pods that are gone."""
        return {name: TrainerLog(tuple(sorted(lines))) for name, lines in self._printed.items()}

    def keep(self, folder: Path) -> None:
        """Write them into `folder`, a file for each pod."""
        self.read()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, log in self.logs().items():
            (folder / f"{name}.log").write_text("".join(f"{line.at:.3f} {line.text}\n" for line in log.lines))

    def _log(self, pod: str, previous: bool = False) -> tuple[Line, ...]:
        return TrainerLog.read(self.namespace, pod, TRAINER, previous=previous).lines


def deaths(pod: Object) -> int:
    """How many agents have died in the pod."""
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
