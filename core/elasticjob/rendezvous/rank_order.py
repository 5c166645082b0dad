# SPDX-License-Identifier: Apache-2.0
"""Which rank each member of a new round has, once it is decided who they are.

Without `spec.rankOrder` who stays keeps its rank. With it neighbours in rank are neighbours in the network, so that a
ring crosses from one zone into another as seldom as it can.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from elasticjob.members import Member
from elasticjob.rendezvous.model import Spec, State, Worker


def in_rank_order(spec: Spec, state: State, joined: Collection[Worker]) -> tuple[Worker, ...]:
    """Ranks are the positions in what is returned."""
    ranks: dict[Member | None, int] = {member: rank for rank, member in enumerate(state.participants)}
    if not spec.rank_order:
        return _keeping_ranks(ranks, joined)
    survivors_first = sorted(joined, key=lambda one: (ranks.get(one.member, len(ranks)), one.index))
    return by_topology(survivors_first, len(spec.rank_order))


def _keeping_ranks(ranks: dict[Member | None, int], joined: Collection[Worker]) -> tuple[Worker, ...]:
    """Who stays keeps its rank, as far as the round is large enough. The others fill the free ranks: survivors in the
    order that they had, then newcomers by index (a number: worker 10 comes after worker 2)."""
    size, last = len(joined), len(ranks)
    stay = {ranks[one.member]: one for one in joined if ranks.get(one.member, size) < size}
    move = sorted(
        (one for one in joined if ranks.get(one.member, size) >= size),
        key=lambda one: (ranks.get(one.member, last), one.index),
    )
    others = iter(move)
    return tuple(stay[rank] if rank in stay else next(others) for rank in range(size))


def by_topology(workers: Sequence[Worker], labels: int) -> tuple[Worker, ...]:
    """The workers of each domain in a row, and in it those of each smaller one, down to the node; `labels` are asked.

    Domains, and the workers of a node, keep their order: a domain is where the first of its workers was. Those without
    the label come last, as nobody knows where they are, unless the first of all workers is among them.
    """
    paths = [path_of(worker, labels) for worker in workers]
    first: dict[tuple[str, ...], int] = {}
    for place, path in enumerate(paths):
        for domain in path:
            first.setdefault(domain, place)
    keys = {
        worker.pod_key: [(domain[-1] == "" and first[domain] > 0, first[domain]) for domain in path]
        for worker, path in zip(workers, paths, strict=True)
    }
    return tuple(sorted(workers, key=lambda worker: keys[worker.pod_key]))


def path_of(worker: Worker, labels: int) -> list[tuple[str, ...]]:
    """The domains that it is in, the largest first; each names those around it, as racks of two zones may be named
    alike. What is not known of it is empty."""
    values = (*worker.topology, *("",) * (labels + 1))
    return [values[: depth + 1] for depth in range(labels + 1)]


def crossings(ring: Iterable[object]) -> int:
    """How many neighbours of a ring differ, the last and the first included."""
    there = tuple(ring)
    return sum(one != after for one, after in zip(there, chain(there[1:], there[:1]), strict=True))


def in_words(spec: Spec, members: Sequence[Worker]) -> str:
    """How far neighbours in rank are neighbours in the network, and what is not known of their nodes."""
    keys = spec.rank_order
    paths = [path_of(worker, len(keys)) for worker in members]
    apart = [crossings(path[depth] for path in paths) for depth in range(len(keys))]
    counts = (f"in another {key}: {many} of {len(paths)}" for key, many in zip(keys, apart, strict=True))
    said = f"; ring neighbours {', '.join(counts)}"
    for depth, key in enumerate(keys):
        if unknown := sum(path[depth][-1] == "" for path in paths):
            said += f"; workers whose nodes have no label {key}: {unknown}"
    return said
