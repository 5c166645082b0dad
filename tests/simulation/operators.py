"""An operator: everything that `elasticjob_operator.app` puts together, with kopf's own watching over a simulated network.

Of kopf run its lists and watches, with their habits: what vanished while it was away it tells nobody. Not run is what
it does with each event before it calls a handler.
"""

import asyncio
import copy
import logging
from functools import cache
from typing import Any

import kopf
from kopf._cogs.clients import auth, watching
from kopf._cogs.structs import credentials, references
from kubernetes.aio.client import ApiClient, Configuration

from elasticjob.api import GROUP, JOBS, VERSION, WORKERS
from elasticjob_operator.app import AGAIN_SECONDS, until_served
from elasticjob_operator.cluster import handlers
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.leader import Leadership, LeaseLost, StillWorking, lead
from elasticjob_operator.cluster.workqueue import WorkQueue
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.reconciler import Reconciler
from simulation.loop import Process
from simulation.network import Network, Session

LEASE_NAMESPACE, LEASE = "ops", "elasticjob-operator"
SERVER = "https://api"
LONGEST_START_SECONDS = 3.0
WATCHED = {
    JOBS: references.Resource(GROUP, VERSION, JOBS, namespaced=True),
    "pods": references.Resource("", "v1", "pods", namespaced=True),
    WORKERS: references.Resource(GROUP, VERSION, WORKERS, namespaced=True),
}

logging.getLogger("kopf").setLevel(logging.CRITICAL)
logging.getLogger("kopf._cogs").setLevel(logging.CRITICAL)


class Operator:
    """One installation's pod: it is started again whenever its process ends, under the same identity."""

    def __init__(self, identity: str, network: Network, process: Process, *, network_policy: bool) -> None:
        self.identity, self.network, self.process = identity, network, process
        self.network_policy = network_policy
        self.leadership: Leadership | None = None
        self.reconciler: Reconciler | None = None
        self.failure: BaseException | None = None

    def start(self) -> None:
        self.process.start(self._run())

    async def _run(self) -> None:
        """As `app.run`, with its signals and its health left out."""
        try:
            while await self._lead_once(_client(self.network)):
                await asyncio.sleep(AGAIN_SECONDS)
        except StillWorking:
            pass  # os._exit
        except Exception as error:
            self.failure = error
        self.process.kill()

    async def _lead_once(self, kube: Kube) -> bool:
        self.leadership = Leadership(kube, LEASE_NAMESPACE, LEASE, self.identity)
        leadership = self.leadership
        try:
            await lead(leadership, lambda: self._work(kube, leadership))
        except LeaseLost:
            return True
        return False

    async def _work(self, kube: Kube, leadership: Leadership) -> None:
        """As `app._work`, with `_watch_all` for `kopf.operator`."""
        await until_served(kube)
        cache = Cache()
        image = SidecarImage("sidecar", "IfNotPresent")
        reconciler = Reconciler(
            kube, cache, leadership, Announcer(kube, self.identity), image, network_policy=self.network_policy
        )
        self.reconciler = reconciler
        queue: WorkQueue[Key] = WorkQueue(reconciler.reconcile)
        registry = kopf.OperatorRegistry()
        handlers.register(registry, cache, queue)
        try:
            await self._watch_all(registry)
        finally:
            await queue.stop()

    async def _watch_all(self, registry: kopf.OperatorRegistry) -> None:
        settings = handlers.settings()
        auth.vault_var.set(_Vault(self.network))  # type: ignore[arg-type]
        found = {one.selector.plural or one.selector.any_name: one.fn for one in _event_handlers(registry)}
        async with asyncio.TaskGroup() as group:
            for plural, resource in WATCHED.items():
                group.create_task(_watch(settings, resource, found[plural]))


async def _watch(settings: kopf.OperatorSettings, resource: references.Resource, handler: Any) -> None:
    async for event in watching.infinite_watch(settings=settings, resource=resource, namespace=None):
        if not isinstance(event, watching.Bookmark) and event["type"] != "BOOKMARK":
            await handler(event=event)


def _event_handlers(registry: kopf.OperatorRegistry) -> Any:
    return registry._watching.get_all_handlers()


class _Vault:
    """In the place of kopf's credentials: one session, that of the operator's network."""

    def __init__(self, network: Network) -> None:
        self._context = _context(network)

    async def extended(self, *_: Any) -> Any:
        yield credentials.VaultKey("sim"), credentials.ConnectionInfo(server=SERVER), self._context

    async def invalidate(self, *_: Any, **__: Any) -> None:
        pass


def _context(network: Network) -> auth.APIContext:
    found = auth.APIContext.__new__(auth.APIContext)
    found.session, found.server, found.default_namespace = Session(network), SERVER, None  # type: ignore[assignment]
    return found


@cache
def _bare_client() -> ApiClient:
    """To make one reads certificates from files."""
    configuration = Configuration()
    configuration.host = SERVER
    return ApiClient(configuration)


def _client(network: Network) -> Kube:
    """The operator's own client over the client library of Kubernetes, and below it the simulated network."""
    client = copy.copy(_bare_client())
    client.rest_client = copy.copy(client.rest_client)
    client.rest_client.pool_manager = Session(network)
    return Kube(client)
