# SPDX-License-Identifier: Apache-2.0
"""Puts the parts together for one term, until a signal stops the process or the Lease is lost."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from enum import Enum, auto

import kopf

from elasticjob.health import HealthServer
from elasticjob.kube.errors import ApiError, Forbidden
from elasticjob.kube.paths import NODES
from elasticjob_operator import certificate, health, metrics
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.cluster.handlers import register, settings
from elasticjob_operator.cluster.leader import Leadership, LeaseLost, StillWorking, lead
from elasticjob_operator.cluster.reflector import Reflector, install
from elasticjob_operator.cluster.reviews import Reviews
from elasticjob_operator.cluster.watch_times import WatchTimes
from elasticjob_operator.cluster.workqueue import WorkQueue
from elasticjob_operator.execution import hear_signals, hold_signals
from elasticjob_operator.first_steps import FirstSteps
from elasticjob_operator.job.gauges import gauges_of
from elasticjob_operator.loop_watch import watch_loop
from elasticjob_operator.memory import Memories
from elasticjob_operator.metrics_server import MetricsServer
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.options import Options
from elasticjob_operator.reconciler import Reconciler

CRDS_SECONDS = 5.0
AGAIN_SECONDS = 1.0
HEARD_SECONDS = 0.05  # in which the event loop hears a signal that came before it was held

log = logging.getLogger(__name__)


class End(Enum):
    SIGNAL = auto()
    LEASE_LOST = auto()  # signals are held until the program is executed anew
    FAILED = auto()  # of the watches


async def run(options: Options) -> End:
    """Stands by, then leads for one term. Raises CertificateError."""
    stopped = asyncio.Event()
    _stop_at_signals(stopped)
    hear_signals(asyncio.get_running_loop())
    try:
        ended = await _run_for_a_term(options, stopped)
    except asyncio.CancelledError:
        ended = End.SIGNAL
    if ended is End.SIGNAL:
        log.info("stopped by a signal")
    return ended


async def _run_for_a_term(options: Options, stopped: asyncio.Event) -> End:
    # renewals have their own connections, so that they never wait for one
    kube, lease_kube, watches = await _connect(), await _connect(), WatchTimes()
    watches.ended = metrics.api_request_ended
    metrics.JOBS.each = options.job_metrics
    looking = asyncio.create_task(watch_loop(metrics.LOOP_STALL.set), name="event loop")
    metrics.WATCH_SILENT.set_function(lambda: watches.silence()[0])
    servers = await _serve(options, kube, watches)
    lease = options.lease_namespace, options.lease_name
    leadership = Leadership(lease_kube, *lease, options.identity, options.lease_seconds)
    try:
        await lead(leadership, lambda: _work(options, kube, leadership, watches, stopped))
    except LeaseLost:
        return await _lease_lost(stopped)
    except StillWorking:
        os._exit(1)  # asyncio would wait for the tasks that do not stop
    except Exception:
        log.exception("the watches failed")
        return End.FAILED
    finally:
        looking.cancel()
        for server in servers:
            server.close()
        await kube.close()
        await lease_kube.close()
    return End.SIGNAL


async def _lease_lost(stopped: asyncio.Event) -> End:
    """The process does not end with a lost Lease, because the kubelet would delay its restarts."""
    hold_signals()
    await asyncio.sleep(HEARD_SECONDS)
    if stopped.is_set():
        return End.SIGNAL
    log.warning("standing by again: the program is executed anew, with nothing of the term that has ended")
    return End.LEASE_LOST


async def _connect() -> Kube:
    kube = await Kube.connect()
    kube.transport.ended = metrics.api_request_ended
    return kube


async def _serve(options: Options, kube: Kube, watches: WatchTimes) -> list[HealthServer | MetricsServer]:
    """Serves health and metrics, also while the operator stands by."""
    health_server = await health.serve(options.health_port, watches.problem, with_metrics=not options.metrics_port)
    if not options.metrics_port:
        return [health_server]
    tls = certificate.contexts(options.metrics_certificate)
    metrics_server = MetricsServer(health.metrics_page(), Reviews(kube).judge, tls)
    await metrics_server.listen(options.metrics_port)
    return [health_server, metrics_server]


def _stop_at_signals(stopped: asyncio.Event) -> Callable[[], None]:
    """Makes signals cancel this task, once: a task that already ends is left alone. The returned function takes the
    signals back after other code has taken them."""
    this, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert this is not None

    def stop() -> None:
        stopped.set()
        if not this.cancelling():
            this.cancel()

    def listen() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

    listen()
    return listen


async def _after(ready: asyncio.Event, then: Callable[[], None]) -> None:
    await ready.wait()
    then()


async def _work(
    options: Options, kube: Kube, leadership: Leadership, watches: WatchTimes, stopped: asyncio.Event
) -> None:
    """Runs the watches and the work that they cause, until a signal. Nothing of it continues afterwards."""
    metrics.LEADER.set(1)
    await until_served(kube)
    cache = Cache()
    environment = {"ELASTICJOB_LOG_FORMAT": options.log_format}
    image = SidecarImage(
        options.sidecar_image,
        options.sidecar_pull_policy,
        options.sidecar_resources,
        options.sidecar_security_context,
        environment,
    )
    nodes = options.watch_nodes and await may_watch_nodes(kube)
    reflector = Reflector(kube, cache, options.namespaces, nodes=nodes)
    announcer, network_policy = Announcer(kube, options.identity), options.worker_network_policy
    parts = kube, cache, reflector, leadership, announcer, image
    memories = Memories(*parts, namespaces=options.namespaces, network_policy=network_policy, nodes=nodes)
    steps = FirstSteps(cache, Reconciler(memories, cache, leadership, announcer).reconcile)
    queue: WorkQueue[Key] = WorkQueue(steps)
    reflector.wake = queue.add
    queue.began, queue.failed = metrics.QUEUE_SECONDS.observe, metrics.QUEUE_RETRIES.inc
    metrics.begin_term(lambda: map(gauges_of, cache.jobs()), lambda: queue.depth, steps.awaited)
    registry = kopf.OperatorRegistry()
    register(registry, cache, queue, watches, nodes=nodes)
    watches.start()
    install()
    ready = asyncio.Event()
    # kopf takes the signals for itself before it is ready, would lose one that comes while it ends, and drops all then
    listen = _stop_at_signals(stopped)
    listening = asyncio.create_task(_after(ready, listen), name="signals")
    try:
        await kopf.operator(
            registry=registry,
            settings=settings(reflector, watches),
            standalone=True,
            ready_flag=ready,
            identity=options.identity,  # type: ignore[arg-type]  # kopf would look for a user name, and a pod has none
            clusterwide=not options.namespaces,
            namespaces=options.namespaces,
        )
    finally:
        listening.cancel()
        listen()
        await queue.stop()


async def may_watch_nodes(kube: Kube) -> bool:
    """Whether the operator may list nodes: without that right kopf would end. Asks again until the API server
    answers."""
    while True:
        try:
            await kube.request("GET", NODES.all(), query={"limit": "1"})
            return True
        except Forbidden as error:
            log.warning("no drain or label of a node will be seen, see --watch-nodes: %s", error)
            return False
        except ApiError as error:
            log.warning("the nodes could not be listed: %s", error)
        await asyncio.sleep(AGAIN_SECONDS)


async def until_served(kube: Kube) -> None:
    """Waits for the CRDs, without a limit: kopf looks for them once, and never serves those that come later."""
    while True:
        try:
            if not (unserved := await kube.unserved()):
                return
            log.warning("the API server does not serve %s: waiting for the CRDs", " and ".join(sorted(unserved)))
        except ApiError as error:
            log.warning("the CRDs could not be looked for: %s", error)
        await asyncio.sleep(CRDS_SECONDS)
