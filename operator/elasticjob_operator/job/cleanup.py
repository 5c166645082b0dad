# SPDX-License-Identifier: Apache-2.0
"""Which pods are deleted and which are only ended, by `spec.cleanPodPolicy`. Pure.

A pod is ended by a deadline that has passed: the kubelet stops all its containers, including the sidecar, restarts none
of them, and keeps the pod with its logs.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from elasticjob.reading import Pod
from elasticjob.rendezvous import PodState, State, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.rendezvous.roster import is_current

DEADLINE_SECONDS = 1  # the least that the API server accepts


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
    """What to do with a job's `workers` and their `pods`. `served`: the workers that the rendezvous no longer needs.

    If other containers run on beside the trainer of a finished worker, the pod is ended at once and not with the job,
    because it holds resources of its node until then. Once the job has ended, a trainer that the kubelet would restart
    forever is ended too.
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
        # no kubelet would end a pod without a node, and it has no logs to keep
        kept |= {one.pod_key for one in served if is_current(state, one) and pods[one.pod_key].node}
    done = finished if policy != "None" else frozenset()
    kept |= {one.pod_key for one in present if one.index in done and _lingers(one, pods[one.pod_key], trainer)}
    return Cleanup(
        delete=tuple(one for one in served if one.pod_key not in kept),
        end=tuple(one for one in present if one.pod_key in kept and pods[one.pod_key].deadline != DEADLINE_SECONDS),
    )


def _lingers(worker: Worker, pod: Pod, trainer: str) -> bool:
    """Whether another container runs on after the trainer's success. The kubelet stops sidecars by itself."""
    others = (one for one in pod.containers if not one.is_init and one.name != trainer)
    return worker.pod is PodState.SUCCEEDED and any(one.state != "terminated" for one in others)
