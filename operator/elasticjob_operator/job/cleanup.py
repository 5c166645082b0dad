# SPDX-License-Identifier: Apache-2.0
"""Which pods are deleted and which only ended, by `spec.cleanPodPolicy`. Pure.

A pod is ended by a deadline that is over: the kubelet stops all its containers, the sidecar too, starts none of them
again, and keeps the pod with its logs.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from elasticjob.reading import Pod
from elasticjob.rendezvous import PodState, State, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.roster import is_current

DEADLINE_SECONDS = 1  # the least that there is


class Cleanup(NamedTuple):
    delete: tuple[Worker, ...] = ()
    end: tuple[Worker, ...] = ()


def cleanup(
    policy: str,
    state: State,
    workers: Iterable[Worker],
    served: tuple[Worker, ...],
    pods: Mapping[PodKey, Pod],
    trainer: str,
) -> Cleanup:
    """What becomes of a job's `workers` and their `pods`; `served` are those that the rendezvous has no use for.

    What goes on beside the trainer of a worker that has finished is ended at once, not with the job: the pod holds its
    part of a node until then. Where the job has ended, so is a trainer that the kubelet would start for ever.
    """
    if state.ended and policy == "None":
        return Cleanup()
    present = tuple(worker for worker in workers if not worker.deleting)
    if state.ended and policy == "All":
        return Cleanup(delete=present)
    kept: set[PodKey] = set()
    finished = state.finished_indices
    if state.ended:
        kept |= {one.pod_key for one in present if one.index in finished and one.pod is PodState.CRASH_LOOP}
        # without a node nobody would end it, and nothing is lost with it
        kept |= {one.pod_key for one in served if is_current(state, one) and pods[one.pod_key].node}
    done = finished if policy != "None" else frozenset()
    kept |= {one.pod_key for one in present if one.index in done and _lingers(one, pods[one.pod_key], trainer)}
    return Cleanup(
        delete=tuple(one for one in served if one.pod_key not in kept),
        end=tuple(one for one in present if one.pod_key in kept and pods[one.pod_key].deadline != DEADLINE_SECONDS),
    )


def _lingers(worker: Worker, pod: Pod, trainer: str) -> bool:
    """Whether another container goes on after the trainer's success; the kubelet stops sidecars by itself."""
    others = (one for one in pod.containers if not one.is_init and one.name != trainer)
    return worker.pod is PodState.SUCCEEDED and any(one.state != "terminated" for one in others)
