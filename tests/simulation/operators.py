# SPDX-License-Identifier: Apache-2.0
"""An operator: `elasticjob_operator.app.run` as it is, over a simulated network, with kopf's own lists and watches.

kopf's habits matter: what vanished while its watch was away it tells nobody. Not run is what it does with each event
before it calls a handler.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import kopf
from kopf._cogs.clients import auth, watching
from kopf._cogs.structs import credentials, references

from elasticjob.api import GROUP, JOBS, VERSION, WORKERS
from elasticjob.kube.errors import ApiError
from elasticjob_operator import app
from elasticjob_operator.cluster import sidecars
from elasticjob_operator.cluster.cache import Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.leader import DURATION_SECONDS
from elasticjob_operator.options import Options
from elasticjob_operator.reconciler import Reconciler
from simulation.clients import SERVER, operator_client
from simulation.loop import PROCESS, Process, VirtualLoop
from simulation.network import Network, Session
from support.operator_metrics import forget_term

LEASE_NAMESPACE, LEASE = "ops", "elasticjob-operator"
EXECUTION_SECONDS = 1.0  # until a program that was executed anew has imported what it needs
WATCHED = {
    JOBS: references.Resource(GROUP, VERSION, JOBS, namespaced=True),
    "pods": references.Resource("", "v1", "pods", namespaced=True),
    WORKERS: references.Resource(GROUP, VERSION, WORKERS, namespaced=True),
    "nodes": references.Resource("", "v1", "nodes", namespaced=False),
}

for name in ("kopf", "kopf._cogs", "kopf._core"):
    logging.getLogger(name).setLevel(logging.CRITICAL)


class Operator:
    """One start of the operator's container, in the pod `identity`."""

    def __init__(
        self,
        loop: VirtualLoop,
        identity: str,
        network: Network,
        skew: float,
        *,
        network_policy: bool,
        lease: str = LEASE,
        lease_seconds: int = DURATION_SECONDS,
    ) -> None:
        self.identity, self.network = identity, network
        self.process = Process(loop, identity, skew=skew)
        self.process.on_end.append(network.close)
        self.mistakes: list[str] = []  # what the operator has met that nobody foresaw
        self.options = Options(
            sidecar_image="sidecar",
            sidecar_pull_policy="IfNotPresent",
            sidecar_resources={},
            sidecar_security_context={},
            worker_network_policy=network_policy,
            namespaces=(),
            watch_nodes=True,
            lease_namespace=LEASE_NAMESPACE,
            lease_name=lease,
            lease_seconds=lease_seconds,
            health_port=8080,
            metrics_port=0,
            metrics_certificate="",
            log_level="info",
            log_format="text",
            job_metrics=True,
            identity=identity,
        )

    def start(self) -> None:
        self.process.start(self._run())

    def stop(self) -> None:
        self.process.signal(signal.SIGTERM)

    async def _run(self) -> None:
        try:
            while (ended := await app.run(self.options)) is app.End.LEASE_LOST:
                await asyncio.sleep(EXECUTION_SECONDS)
        except asyncio.CancelledError:  # by a signal between two executions
            ended = app.End.SIGNAL
        if ended is app.End.FAILED:
            self.mistakes.append("the operator ended by itself, as its watches failed")
        self.process.kill()


@contextmanager
def simulated(operators: list[Operator], ask: Callable[[Network, str], Awaitable[str | None]]) -> Iterator[None]:
    """Meanwhile `app.run` finds the simulation where it looks for the machine, its signals apart. `ask`: how a client
    on a network asks the sidecar at an address."""

    def this() -> Operator:
        return next(one for one in reversed(operators) if one.process is PROCESS.get())

    async def connect(_: Any = None) -> Kube:
        return operator_client(this().network)

    async def serve(*_: Any, **__: Any) -> "_Closed":
        return _Closed()

    async def operator(*, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, **_: Any) -> None:
        await _watch_all(registry, settings, this().network)

    def watched(reconciler: Reconciler, key: Key) -> Any:
        return _foreseen(reconcile(reconciler, key), this())

    async def asked(address: str, _: int) -> str | None:
        return await ask(this().network, address)

    reconcile = Reconciler.reconcile
    with ExitStack() as stack:
        for target, attribute, stand_in in (
            (app.Kube, "connect", connect),
            (app.health, "serve", serve),
            (app.kopf, "operator", operator),
            (app.os, "_exit", lambda _: this().process.kill()),
            (app, "hold_signals", lambda: None),
            (app, "hear_signals", lambda _: None),
            (sidecars, "trouble_of", asked),
            (Reconciler, "reconcile", watched),
        ):
            stack.enter_context(patch.object(target, attribute, stand_in))
        stack.callback(forget_term)
        yield


async def _foreseen(work: Any, operator: Operator) -> Any:
    """The queue tries anything again: what is no failure of the API server is a mistake of ours."""
    try:
        return await work
    except ApiError:
        raise
    except Exception as error:
        operator.mistakes.append(f"the reconciler raised {type(error).__name__}: {error}")
        raise


class _Closed:
    """In the place of the server of health and metrics."""

    def close(self) -> None:
        pass


async def _watch_all(registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, network: Network) -> None:
    auth.vault_var.set(_Vault(network))  # type: ignore[arg-type]
    found = {one.selector.plural or one.selector.any_name: one.fn for one in registry._watching.get_all_handlers()}
    async with asyncio.TaskGroup() as group:
        for plural, resource in WATCHED.items():
            group.create_task(_watch(settings, resource, found[plural]))


async def _watch(settings: kopf.OperatorSettings, resource: references.Resource, handler: Any) -> None:
    async for event in watching.infinite_watch(settings=settings, resource=resource, namespace=None):
        if not isinstance(event, watching.Bookmark) and event["type"] != "BOOKMARK":
            await handler(event=event)


class _Vault:
    """In the place of kopf's credentials: one session, that of the operator's network."""

    def __init__(self, network: Network) -> None:
        self._context = auth.APIContext.__new__(auth.APIContext)
        self._context.session = Session(network)  # type: ignore[assignment]
        self._context.server, self._context.default_namespace = SERVER, None

    async def extended(self, *_: Any) -> Any:
        yield credentials.VaultKey("simulated"), credentials.ConnectionInfo(server=SERVER), self._context

    async def invalidate(self, *_: Any, **__: Any) -> None:
        pass
