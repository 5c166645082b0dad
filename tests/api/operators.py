# SPDX-License-Identifier: Apache-2.0
"""An operator without kopf: what a test shows it stands for a watch's event."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from elasticjob.api import API_VERSION
from elasticjob.kube.errors import ApiError
from elasticjob.objects import Object
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership
from elasticjob_operator.cluster.reflector import Reflector
from elasticjob_operator.memory import Memories
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.reconciler import Reconciler
from support import ControlPlane
from support.waiting import within

GROUP = "/apis/elasticjob.io/v1alpha1"
JOBS = f"{GROUP}/namespaces/default/elasticjobs"


class Witness(Kube):
    """Keeps what is asked, as `POST pods`, `POST pods?dryRun` or `GET elasticjobs`."""

    asked: list[str]

    async def request(
        self, method: str, path: str, body: Any = None, query: Any = None, *rest: Any, **more: Any
    ) -> Object:
        self.asked.append(f"{method} {path.rpartition('/')[2]}" + ("?dryRun" if "dryRun" in (query or {}) else ""))
        async with within("an API server that makes no storage anew"):
            while True:
                try:
                    return await super().request(method, path, body, query, *rest, **more)
                except ApiError as error:
                    if error.status != 429:  # the API server makes a kind's storage anew when its CRD has changed
                        raise
                await asyncio.sleep(0.1)


class Leader:
    """An operator without kopf, from its term to the release of its Lease: `see` stands for its watches."""

    def __init__(self, kube: Witness, leadership: Leadership) -> None:
        self.kube, self.leadership = kube, leadership
        self._cache = Cache()
        image, announcer = SidecarImage("none", "Always"), Announcer(kube, "test")
        memories = Memories(kube, self._cache, Reflector(kube, self._cache), leadership, announcer, image)
        self._reconciler = Reconciler(memories, self._cache, leadership, announcer)
        watched = Witness(kube.transport)
        watched.asked = []  # what a watch asks for is nobody's concern
        self._watches = Reflector(watched, self._cache)
        kube.asked = []

    async def see(self, name: str) -> Object:
        """Work on the job once; returns its status."""
        await self.look(name)
        status: Object = (await self.kube.job("default", name))["status"]
        return status

    async def look(self, name: str, namespace: str = "default", gone: Sequence[Object] = ()) -> float | None:
        """Work on the job once, after the pods `gone` have been deleted; returns when to look again."""
        key = Key(namespace, name)
        await self._watches.list_all(anew=True)
        for pod in gone:
            self._cache.note_pod(pod, deleted=True)
        return await self._reconciler.reconcile(key)


class Operators:
    """Leaders, one after the other."""

    def __init__(self, kube: Witness) -> None:
        self._kube, self._lease = kube, f"lease-{secrets.token_hex(3)}"
        self._last: Leadership | None = None

    def beside(self) -> "Operators":
        """Those of another installation, with a Lease of their own."""
        return Operators(self._kube)

    async def lead(self) -> Leader:
        if self._last is not None:
            await self._last.release()
        self._last = Leadership(self._kube, "default", self._lease, "test")
        await self._last.acquire()
        return Leader(self._kube, self._last)


def new_job(plane: ControlPlane, *, name: str = "", **pod: Any) -> str:
    name = name or f"job-{secrets.token_hex(3)}"
    plane.request("POST", JOBS, job_body(name, **pod))
    return name


def job_body(name: str, **pod: Any) -> Object:
    containers = [{"name": "trainer", "image": "train:1", "command": ["torchrun", "train.py"]}]
    spec = {"replicas": 1, "template": {"spec": {"containers": containers, **pod}}}
    return {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": name}, "spec": spec}
