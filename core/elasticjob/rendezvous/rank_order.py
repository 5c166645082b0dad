# SPDX-License-Identifier: Apache-2.0
"""The ranks of a new round's members, once the members are chosen.

Without `spec.rankOrder` remaining members keep their ranks. With it, neighbours in rank are neighbours in the network,
so that a ring crosses from one zone into another as rarely as possible.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from elasticjob.members import Member
from elasticjob.rendezvous.model import Spec, State, Worker


def in_rank_order(spec: Spec, state: State, joined: Collection[Worker]) -> tuple[Worker, ...]:
    ranks: dict[Member | None, int] = {member: rank for rank, member in enumerate(state.participants)}
    if not spec.rank_order:
        return _keeping_ranks(ranks, joined)
    survivors_first = sorted(joined, key=lambda one: (ranks.get(one.member, len(ranks)), one.index))
    return by_topology(survivors_first, len(spec.rank_order))


def _keeping_ranks(ranks: dict[Member | None, int], joined: Collection[Worker]) -> tuple[Worker, ...]:
    """Remaining members keep their ranks, as far as the round is large enough. The others fill the free ranks:
    remaining members in their previous order, then newcomers by index (a number: worker 10 comes after worker 2)."""
    size, last = len(joined), len(ranks)
    stay = {ranks[one.member]: one for one in joined if ranks.get(one.member, size) < size}
    move = sorted(
        (one for one in joined if ranks.get(one.member, size) >= size),
        key=lambda one: (ranks.get(one.member, last), one.index),
    )
    others = iter(move)
    return tuple(stay[rank] if rank in stay else next(others) for rank in range(size))


def by_topology(workers: Sequence[Worker], labels: int) -> tuple[Worker, ...]:
    """The workers grouped by domain, within each by its smaller domains, down to the node. `labels`: the number of
    labels.

    Domains, and the workers of a node, keep their order: a domain takes the position of its first worker. Workers
    without the label come last, as their place is unknown, unless the very first worker is one of them.
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
    """The domains of a worker, the largest first. Each includes the names of the enclosing ones, as racks in two zones
    may have the same name. Unknown names are empty."""
    values = (*worker.topology, *("",) * (labels + 1))
    return [values[: depth + 1] for depth in range(labels + 1)]


def crossings(ring: Iterable[object]) -> int:
    """How many neighbours in a ring differ, including the last and the first."""
    there = tuple(ring)
    return sum(one != after for one, after in zip(there, chain(there[1:], there[:1]), strict=True))


def in_words(spec: Spec, members: Sequence[Worker]) -> str:
    """How many ring neighbours are in different domains, and how many workers' nodes lack a label, as a clause."""
    keys = spec.rank_order
    paths = [path_of(worker, len(keys)) for worker in members]
    apart = [crossings(path[depth] for path in paths) for depth in range(len(keys))]
    counts = (f"in another {key}: {many} of {len(paths)}" for key, many in zip(keys, apart, strict=True))
    clause = f"; ring neighbours {', '.join(counts)}"
    for depth, key in enumerate(keys):
        if unknown := sum(path[depth][-1] == "" for path in paths):
            clause += f"; workers whose nodes have no label {key}: {unknown}"
    return clause
