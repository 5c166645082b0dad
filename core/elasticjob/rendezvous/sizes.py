# SPDX-License-Identifier: Apache-2.0
"""Which sizes a round may have: from `minReplicas` to `replicas`, and of these only what `spec.sizes` names.

They are asked for where a round is judged. One that stands is not ended because another size is wanted by now.

Once a worker has finished the training is about to end, and any size will do for the rest of it.
"""

from elasticjob.rendezvous.model import Spec, State


def min_members(spec: Spec, state: State) -> int:
    """The least that may form a round: each finished worker lowers it by one."""
    if state.done or not spec.sizes:
        return max(1, spec.min_replicas - len(state.done))
    # without such a size no number of workers suffices
    return min((size for size in spec.sizes if size >= spec.min_replicas), default=spec.replicas + 1)


def largest_size(spec: Spec, state: State, workers: int) -> int:
    """The largest round that so many may form; 0 where they are too few for any."""
    if state.done or not spec.sizes:
        return workers
    return max((size for size in spec.sizes if size <= workers), default=0)
