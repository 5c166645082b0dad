# SPDX-License-Identifier: Apache-2.0
"""How many neighbours of a ring are in another zone or rack, with and without `spec.rankOrder`, as nodes are lost.

    python bench/ranks.py [--workers 1024] [--racks 32] [--zones 4] [--losses 300] [--seed 0]

The rules are the operator's own (`decide`); cluster and clock are made up. Each worker has a node of its own, and each
rack one node more than it has workers at first. Whoever is lost is replaced on any free node, and a round is formed.
Writes build/bench-ranks.json.
"""

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elasticjob.members import Members
from elasticjob.rendezvous import Clocks, PodState, Request, Spec, State, Worker, decide
from elasticjob.rendezvous.rank_order import crossings, path_of
from elasticjob.terms import RequestCause, RequestType

BUILD = Path("build")
KEYS = ("topology.kubernetes.io/zone", "example.com/rack")
Node = tuple[str, str, str]


@dataclass(slots=True, kw_only=True)
class Row:
    """After so many losses: of the neighbours in the ring those in another zone, those in another rack, and how many
    survivors got another rank in a round, in the mean over all so far. `size`: the bytes that the members take in the
    job's status, of each worker."""

    placed: str
    order: str
    losses: int
    zone: int
    rack: int
    moved: float
    size: float


class Job:
    """Its workers on nodes, and rounds that are formed of all of them."""

    def __init__(self, spec: Spec, nodes: list[Node], taken: list[Node]) -> None:
        self.spec, self.now = spec, 0.0
        self.state = State(clocks=Clocks(opened=0.0, formed=0.0))
        self.workers = [_worker(index, 0, node) for index, node in enumerate(taken)]
        self.free = [node for node in nodes if node not in set(taken)]
        self.form()

    def form(self) -> None:
        """All join, and one more look is enough."""
        join = Request(type=RequestType.JOIN, after=self.state.last_formed, cause=RequestCause.MEMBERSHIP_CHANGED)
        self.workers = [replace(worker, request=join) for worker in self.workers]
        self.look()
        if self.state.last_formed != join.after + 1 or len(self.state.participants) != len(self.workers):
            raise RuntimeError(f"no round of all was formed: {self.state.reason}")

    def look(self) -> None:
        self.now += 400.0  # longer than any failure is held against a pod's next
        self.state = decide(self.spec, self.state, self.workers, self.now).state

    def lose(self, index: int, chance: random.Random) -> int:
        """The worker's node, and with it its pod; returns how many survivors have another rank afterwards."""
        before = {member: rank for rank, member in enumerate(self.state.participants)}
        lost = self.workers[index]
        self.workers[index] = replace(lost, pod=PodState.FAILED, disrupted=True)
        self.look()
        node = self.free.pop(chance.randrange(len(self.free)))
        self.free.append(lost.topology)  # type: ignore[arg-type]
        self.workers[index] = _worker(index, self.state.replacements[index], node)
        self.form()
        return sum(before.get(member, rank) != rank for rank, member in enumerate(self.state.participants))

    def apart(self, depth: int) -> int:
        """How many neighbours are in two domains."""
        there = {worker.member: path_of(worker, len(KEYS))[depth] for worker in self.workers}
        return crossings(there[member] for member in self.state.participants)


def _worker(index: int, replacement: int, node: Node) -> Worker:
    return Worker(index=index, replacement=replacement, id=f"{replacement}.0", topology=node, address="rank0:27601")


def rows(placed: str, order: str, job: Job, losses: int, chance: random.Random) -> Iterator[Row]:
    workers = len(job.workers)
    told, moved = {0, 1, 10, 30, 100, 300, 1000, losses}, 0
    for number in range(losses + 1):
        if number:
            moved += job.lose(chance.randrange(len(job.workers)), chance)
        if number in told:
            mean = round(moved / max(1, number), 1)
            zone, rack, size = job.apart(0), job.apart(1), round(len(str(Members(job.state.participants))) / workers, 1)
            yield Row(placed=placed, order=order, losses=number, zone=zone, rack=rack, moved=mean, size=size)


def racks_of(workers: int, racks: int, zones: int) -> list[Node]:
    each = -(-workers // racks) + 1
    return [
        (f"z{rack * zones // racks}", f"r{rack}", f"r{rack}n{node}") for rack in range(racks) for node in range(each)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("workers", 1024), ("racks", 32), ("zones", 4), ("losses", 300), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    nodes = racks_of(asked.workers, asked.racks, asked.zones)
    in_turn = [node for node in nodes if not node[2].endswith(f"n{len(nodes) // asked.racks - 1}")][: asked.workers]
    anywhere = random.Random(asked.seed).sample(nodes, asked.workers)
    found: list[Row] = []
    print(
        "| first pods | ranks | losses | in another zone | in another rack | survivors with another rank, each time | "
        "bytes a worker |"
    )
    print("|---|---|---|---|---|---|---|")
    for placed, taken in (("rack by rack", in_turn), ("anywhere", anywhere)):
        for order, keys in (("kept", ()), ("`rankOrder`", KEYS)):
            spec = Spec(replicas=asked.workers, min_replicas=asked.workers, rank_order=keys)
            for row in rows(placed, order, Job(spec, nodes, taken), asked.losses, random.Random(asked.seed)):
                found.append(row)
                print(f"| {' | '.join(map(str, asdict(row).values()))} |", flush=True)
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench-ranks.json").write_text(json.dumps([asdict(row) for row in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
