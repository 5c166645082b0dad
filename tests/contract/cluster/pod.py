# SPDX-License-Identifier: Apache-2.0
"""One worker pod of the cluster: what its containers are started with, and how they are by `support.kubelet`."""

import asyncio
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from support import kubelet, pod_life
from support.api_client import Object

JOB, INDEX = "elasticjob.io/job", "elasticjob.io/index"
NODE = "node"


class Pod:
    """The trainer's container runs from its start until the caller says that it ended."""

    def __init__(self, body: Object, address: str) -> None:
        self.body, self.address = body, address
        self.state = kubelet.Pod.of(body["spec"], address, time.time())
        self.deleting = False
        self.sidecar: BaseProcess | None = None
        self.deletion, self.ended = asyncio.Event(), asyncio.Event()

    def note(self, event: Callable[..., kubelet.Pod], *of: Any, **more: Any) -> None:
        """Something has happened, of `support.kubelet`'s events."""
        self.state = event(self.state, *of, **more)

    @property
    def trainer(self) -> kubelet.Container:
        return self.state.containers[self.body["spec"]["containers"][0]["name"]]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def job(self) -> str:
        return str(self.body["metadata"]["labels"][JOB])

    @property
    def trainer_environment(self) -> dict[str, str]:
        """The trainer's variables, with this pod's loopback address in place of the usual one."""
        values = self._environment(self.body["spec"]["containers"][0])
        return {name: value.replace("127.0.0.1", self.address) for name, value in values.items()}

    @property
    def sidecar_environment(self) -> dict[str, str]:
        return self._environment(self.body["spec"]["initContainers"][-1])

    def view(self) -> Object:
        """What a caller may know."""
        return {
            "name": self.name,
            "uid": self.uid,
            "index": int(self.body["metadata"]["labels"][INDEX]),
            "address": self.address,
            "environment": self.trainer_environment,
            "starts": self.trainer.starts,
            "runs": self.trainer.runs,
            "deleting": self.deleting,
        }

    def _environment(self, container: Object) -> dict[str, str]:
        return pod_life.environment(container, self.body, self.address, NODE)
