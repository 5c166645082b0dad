# SPDX-License-Identifier: Apache-2.0
"""Connect the sidecar's parts, run them until the pod stops, and leave."""

import asyncio
import logging
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from elasticjob.api import FORWARDED_PORTS, HEALTH_PORT, STORE_PORT, TRAINER_API_PORT, TUNNEL_PORT, Member
from elasticjob_sidecar.api_server.client import KubeApi, connected
from elasticjob_sidecar.api_server.identity import Identity
from elasticjob_sidecar.api_server.in_cluster import InCluster
from elasticjob_sidecar.api_server.job_watch import JobWatch
from elasticjob_sidecar.api_server.worker_record import WorkerRecord
from elasticjob_sidecar.config import Config, ConfigError
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.health import health_server
from elasticjob_sidecar.incarnation import new_incarnation
from elasticjob_sidecar.links.links import PeerLinks
from elasticjob_sidecar.membership.concerns import Concerns
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.scripts import Scripts
from elasticjob_sidecar.membership.stalls import Stalls
from elasticjob_sidecar.metrics import Metrics
from elasticjob_sidecar.store.credentials import Credentials
from elasticjob_sidecar.store.transport import PeerTransport
from elasticjob_sidecar.store.trust import RoundTrust
from elasticjob_sidecar.store.tunnel import Callers, Tunnel
from elasticjob_sidecar.trainer_api.routes import TrainerApi
from elasticjob_sidecar.trainer_api.server import TrainerServer

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
GOODBYE_SECONDS = 5.0
STOP_SECONDS = 2.0


class StartError(Exception):
    """The sidecar cannot start. Its text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The sidecar's listening addresses. Only tests change the defaults, where several sidecars share a machine."""

    store: int = STORE_PORT
    trainer_api: int = TRAINER_API_PORT
    tunnel: int = TUNNEL_PORT
    health: int = HEALTH_PORT
    health_host: str = ""  # all addresses
    loopback: str = LOOPBACK
    forwarded: int = FORWARDED_PORTS
    """The number of ports after the store's that are forwarded to rank 0's pod."""
    trainer_socket: Path | None = None
    """The socket that replaces the trainer API's port."""

    @classmethod
    def of(cls, config: Config) -> "Ports":
        """The ports for `config`. With a trainer socket, loopback is the node's: no further ports are forwarded to rank
        0's pod, since they would be its node's."""
        given = cls(store=config.store_port, tunnel=config.tunnel_port, health=config.health_port)
        socket = config.trainer_socket
        return replace(given, trainer_socket=socket, forwarded=0) if socket else given


class Sidecar:
    """The connected parts. No input or output happens before `serve` and `run`."""

    def __init__(
        self, config: Config, id: str, kube: KubeApi, credentials: Credentials, ports: Ports = Ports()
    ) -> None:
        me = Member(index=config.index, id=id)
        self._config, self._ports, self.credentials = config, ports, credentials
        self.metrics = Metrics()
        self.record = WorkerRecord(kube, _identity(config, id, credentials), self.metrics.api_failed)
        membership = Membership(me, config.store_ready_seconds, recalled=False)
        self.driver = Driver(membership, Concerns(Scripts(config.save_seconds), Stalls()), self.record, self.metrics)
        sized, seen = self.record.job_sized, self.driver.job_seen
        failed, limited = self.metrics.api_failed, self.driver.limited
        progressed = self.record.progress_shown
        heard = self.driver.api_heard
        self.watch = JobWatch(kube, config.job, config.job_uid, sized, seen, failed, limited, progressed, heard)
        refused = self.metrics.tunnels_refused
        transport = PeerTransport(
            credentials, config.job_uid, lambda code: refused.labels("peer", code.value).inc(), ports.forwarded
        )
        self.trust = RoundTrust(kube, config.job, self.driver, transport, self.metrics.api_failed, self.watch.pod_of)
        self.tunnel = Tunnel(self.driver, transport, self.metrics, Callers(config.processes))
        lost, suspect = self.record.named_worker_lost, self.record.suspect
        self.links = PeerLinks(self.driver, transport, self.metrics, lost, suspect, self.watch)
        store = (ports.loopback, ports.store)
        api = TrainerApi(self.driver, self.tunnel, store, config.job, config.job_uid, config.join_timeout_seconds)
        self._store, self._trainer_server = store, TrainerServer(api.app())
        self.health = health_server(self._is_ready, self._trouble, self.metrics.text)

    async def serve(self) -> None:
        """Listen on all ports. Raises OSError."""
        ports = self._ports
        await self.tunnel.listen(self._store, (str(self._config.pod_ip), ports.tunnel), ports.forwarded)
        if ports.trainer_socket:
            await self._trainer_server.listen_at(ports.trainer_socket)
        else:
            await self._trainer_server.listen(ports.loopback, ports.trainer_api)
        await self.health.listen(ports.health, ports.health_host)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. An exception in a part ends it, and the kubelet restarts the sidecar."""
        stopped = asyncio.create_task(stop.wait())
        running = (self.record, self.watch, self.trust, self.tunnel, self.links)
        parts = [asyncio.create_task(part.run()) for part in running]
        try:
            done, _ = await asyncio.wait({stopped, *parts}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
            await self.driver.stop(GOODBYE_SECONDS)
        finally:
            for task in (stopped, *parts):
                task.cancel()
            stopping = asyncio.gather(stopped, *parts, return_exceptions=True)
            await asyncio.wait({stopping}, timeout=STOP_SECONDS)
            if not stopping.done():  # the ports close next, so the liveness probe ends the process
                log.error("the sidecar's tasks did not stop within %g s", STOP_SECONDS)

    def _is_ready(self) -> bool:
        """Whether the pod is ready. An unavailable API server makes no pod unready: otherwise the statuses of all pods
        would be written when it is back."""
        return self.driver.ready and not (self.record.refused or self.watch.refused or self.trust.refused)

    def _trouble(self) -> str:
        return self.record.trouble or self.watch.trouble or self.trust.trouble

    async def close(self) -> None:
        await self.tunnel.close()
        await self._trainer_server.close()
        self.health.close()


def _identity(config: Config, id: str, credentials: Credentials) -> Identity:
    return Identity(
        pod_name=config.pod_name,
        pod_uid=config.pod_uid,
        job=config.job,
        index=config.index,
        id=id,
        certificate=credentials.certificate,
        address=config.address,
        node=config.node_name,
    )


async def run(
    config: Config, credentials: Credentials, ports: Ports | None = None, server: InCluster | None = None
) -> None:
    """Run until SIGTERM, by default on the ports of `config`. Raises StartError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        id = new_incarnation(config.batch, config.state_dir)
    except (OSError, ValueError) as error:
        raise StartError(f"{config.state_dir} cannot hold how often this sidecar was started: {error}") from None
    try:
        kube = KubeApi(config.namespace, connected(server or InCluster.load()))
    except ConfigError as error:
        raise StartError(str(error)) from None
    sidecar = Sidecar(config, id, kube, credentials, ports or Ports.of(config))
    try:
        await _listen(sidecar)
        log.info("worker %d of %s/%s starts", config.index, config.namespace, config.job)
        await sidecar.run(stop)
        log.info("stopped")
    finally:
        await sidecar.close()
        await kube.close()


async def _listen(sidecar: Sidecar) -> None:
    """Raises StartError."""
    try:
        await sidecar.serve()
    except OSError as error:
        raise StartError(f"cannot listen: {error.strerror or error}; is another sidecar running in this pod?") from None
