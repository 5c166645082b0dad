# SPDX-License-Identifier: Apache-2.0
"""What must hold of the ranks of a round where `spec.rankOrder` is given; it shares no code with the rule."""

from collections.abc import Iterator, Sequence

from elasticjob.rendezvous.model import Worker
from oracle.evidence import Step
from oracle.history import newly_formed


def neighbours_are_near(step: Step) -> Iterator[str]:
    """With `spec.rankOrder` the members of one zone have consecutive ranks, within it those of one rack, and within
    that those on one node. Survivors come first, in their old order, then newcomers by index. A zone, rack or node has
    the position of its first member. Members whose label is not known come last, unless the first survivor is among
    them: that one has rank 0."""
    before, after, spec = step.before, step.after, step.spec
    if not newly_formed(before, after) or not spec.rank_order:
        return
    known = {worker.member: worker for worker in step.workers}
    members = set(after.participants) & known.keys()
    survivors = [member for member in before.participants if member in members]
    newcomers = sorted(members.difference(survivors))
    there = [known[member] for member in (*survivors, *newcomers)]
    ranks = _row(there, len(spec.rank_order) + 1, there[0]) if there else []
    for rank, (worker, due) in enumerate(zip(after.participants, ranks, strict=False)):
        if worker != due.member:
            yield f"worker {worker.index} has rank {rank}, which is worker {due.index}'s"
            return


def _row(workers: Sequence[Worker], levels: int, first: Worker) -> list[Worker]:
    """Domain by domain, from the largest to the smallest."""
    if not levels:
        return list(workers)
    domains: dict[str, list[Worker]] = {}
    for worker in workers:
        value = worker.topology[-levels] if len(worker.topology) >= levels else ""
        domains.setdefault(value, []).append(worker)
    if "" in domains and first not in domains[""]:
        domains[""] = domains.pop("")
    return [worker for domain in domains.values() for worker in _row(domain, levels - 1, first)]
