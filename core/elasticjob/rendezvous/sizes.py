# SPDX-License-Identifier: Apache-2.0
"""The allowed sizes of a round: from `minReplicas` to `replicas`, restricted to `spec.sizes` if given.

Sizes are checked when a round forms. A standing round is not ended because another size is wanted meanwhile.

Once a worker has finished, the training is about to end, and the rest of it may have any size.
"""

from elasticjob.rendezvous.model import Spec, State


def min_members(spec: Spec, state: State) -> int:
    """The smallest round that may be formed: each finished worker lowers it by one."""
    if state.done or not spec.sizes:
        return max(1, spec.min_replicas - len(state.done))
    # without such a size, no number of workers is enough
    return min((size for size in spec.sizes if size >= spec.min_replicas), default=spec.replicas + 1)


def largest_size(spec: Spec, state: State, workers: int) -> int:
    """The largest round that `workers` workers may form; 0 if they are too few for any."""
    if state.done or not spec.sizes:
        return workers
    return max((size for size in spec.sizes if size <= workers), default=0)
