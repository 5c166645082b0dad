"""One worker pod as its kubelet sees it: what its containers are to be started with, and what its status says. Pure."""

import asyncio
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess

from support import pod_life
from support.api_client import Object

JOB, INDEX = "elasticjob.io/job", "elasticjob.io/index"
NODE = "node"


@dataclass
class Pod:
    """`starts` counts the starts of the trainer's container; it `runs` until the caller says that it ended."""

    body: Object
    address: str
    starts: int = 0
    runs: bool = False
    deleting: bool = False
    sidecar: BaseProcess | None = None
    deletion: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

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
            "index": int(self.body["metadata"]["labels"][INDEX]),
            "address": self.address,
            "environment": self.trainer_environment,
            "starts": self.starts,
            "runs": self.runs,
            "deleting": self.deleting,
        }

    def status(self, phase: str, state: Object) -> Object:
        """The pod's status while its trainer's container is in `state`."""
        return pod_life.status(self.address, phase, state, restarts=max(0, self.starts - 1))

    def _environment(self, container: Object) -> dict[str, str]:
        return pod_life.environment(container, self.body, self.address, NODE)
