# SPDX-License-Identifier: Apache-2.0
"""Which sidecars are asked what keeps their workers from joining, and what is reported of it. Pure.

A sidecar that cannot write its ElasticWorker cannot report anything through the API server, but knows best why. So the
operator asks it at its health port, once it has had time to start.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.api import HEALTH_PORT, ElasticJobSpec
from elasticjob.blocker_reasons import Reason
from elasticjob.pods import SIDECAR
from elasticjob.reading import Pod
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import State, Worker
from elasticjob.rendezvous.losses import never_joined
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.roster import current

START_SECONDS = 10.0  # a sidecar starts in about one, and the kubelet reports it some seconds later
SILENT_SECONDS = 30.0  # a ready sidecar may have lost the API server since; torchrun takes some seconds to start
MOST = 8  # asked in one step: most of a job's sidecars share one cause, and the status names only a few
READY, NOT_READY = "SidecarsReady", "SidecarNotReady"
NO_ANSWER = (
    "its sidecar is not ready, and does not answer the operator at port {port} of its pod; its log says why "
    f"(kubectl logs -c {SIDECAR})"
)


class SidecarQuestion(NamedTuple):
    """A sidecar to ask: the address of its pod, its health port, and the time `at` from which it is due. `ready`: the
    sidecar is ready, so only its answer can show that something is wrong."""

    pod_key: PodKey
    address: str
    at: datetime
    ready: bool
    port: int = HEALTH_PORT


class SidecarTroubles(NamedTuple):
    """What one step finds. `asked`: the sidecars to ask what keeps them from joining. `waits`: what they have
    answered."""

    asked: Sequence[SidecarQuestion] = ()
    waits: Mapping[PodKey, Wait] = MappingProxyType({})


def to_ask(
    spec: ElasticJobSpec, state: State, workers: Collection[Worker], pods: Mapping[PodKey, Pod]
) -> list[SidecarQuestion]:
    """The sidecars to ask: those that are not ready, or whose workers have made no request yet. The first due come
    first."""
    if state.ended:
        return []
    port = spec.host_network.health_port if spec.host_network else HEALTH_PORT
    asked = (one for worker in current(state, workers).values() for one in _asked(worker, pods.get(worker.pod_key)))
    found = (one._replace(port=port) for one in asked)
    return sorted(found, key=lambda one: (one.ready, one.at, one.pod_key))


def _asked(worker: Worker, pod: Pod | None) -> Iterator[SidecarQuestion]:
    if pod is None or not pod.addresses or worker.deleting:
        return
    address = pod.addresses[0]
    if since := pod.unready_since:
        yield SidecarQuestion(worker.pod_key, address, _after(since, START_SECONDS), ready=False)
    elif worker.request is None and (since := pod.container(SIDECAR).since):
        yield SidecarQuestion(worker.pod_key, address, _after(since, SILENT_SECONDS), ready=True)


def _after(since: str, seconds: float) -> datetime:
    return datetime.fromisoformat(since) + timedelta(seconds=seconds)


def troubles(asked: Collection[SidecarQuestion], answers: Mapping[PodKey, str | None]) -> dict[PodKey, Wait]:
    """What keeps workers from joining. `answers`: the last answers of sidecars, None for a sidecar that does not
    answer."""
    found: dict[PodKey, Wait] = {}
    for one in asked:
        if one.pod_key not in answers:
            continue
        answer = answers[one.pod_key]
        trouble = answer or (NO_ANSWER.format(port=one.port) if answer is None and not one.ready else "")
        if trouble:
            found[one.pod_key] = Wait(Reason.SIDECAR_NOT_READY, trouble)
    return found


def marked(workers: tuple[Worker, ...], troubles: Mapping[PodKey, Wait]) -> tuple[Worker, ...]:
    """The workers as the rules are to see them. If a job ends because workers have not joined, its reason says what
    kept them."""
    if not troubles:
        return workers
    return tuple(_with_fault(worker, troubles.get(worker.pod_key)) for worker in workers)


def _with_fault(worker: Worker, trouble: Wait | None) -> Worker:
    if trouble is None or worker.detail or not never_joined(worker):
        return worker
    return replace(worker, detail=trouble.message)
