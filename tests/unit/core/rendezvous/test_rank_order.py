# SPDX-License-Identifier: Apache-2.0
"""Ranks by topology, story by story: neighbours in rank are neighbours in the network, and rank 0 has survived."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from elasticjob.agreed import rendezvous_spec
from elasticjob.members import Member
from elasticjob.rendezvous import Clocks, PodState, Spec, State, Worker
from elasticjob.rendezvous.rank_order import by_topology, crossings, in_rank_order, in_words, path_of
from elasticjob.spec import ElasticJobSpec
from support.job_on_paper import JobOnPaper

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"


def job(*zones: str, keys: tuple[str, ...] = (ZONE,), **spec: object) -> JobOnPaper:
    """Each worker has a node of its own, in the zone that its letter says."""
    world = JobOnPaper(replicas=len(zones), rank_order=keys, **spec)
    for index, zone in enumerate(zones):
        place(world, index, zone)
    world.up(*range(len(zones)))
    return world


def place(world: JobOnPaper, index: int, *labels: str) -> None:
    world.change(index, topology=(*labels, f"n{index}"))


def test_the_first_round_is_laid_out_zone_by_zone() -> None:
    world = job("a", "b", "a", "b")
    assert world.ranks == [0, 2, 1, 3]
    assert world.state.reason == f"first formation; ring neighbours in another {ZONE}: 2 of 4"
    assert "ring neighbours in another" in world.log[-1]


def test_who_comes_in_for_a_lost_member_is_beside_those_of_its_own_zone() -> None:
    world = job("a", "a", "b", "b", "c", "c")
    world.delete(1)
    place(world, 1, "c")
    world.rejoin(0, 2, 3, 4, 5)
    world.up(1)
    assert world.ranks == [0, 2, 3, 4, 5, 1]


def test_no_rank_changes_while_all_stay_where_they_are() -> None:
    world = job("a", "b", "a", "b")
    world.join(2, cause="WorkerFailed")
    world.rejoin(0, 1, 3)
    assert (world.phase, world.ranks) == ("2 Formed", [0, 2, 1, 3])


def test_newcomers_come_after_the_survivors_of_their_zone_and_new_zones_after_the_others() -> None:
    world = job("a", "b")
    world.scale(5)
    for index, zone in ((2, "c"), (3, "b"), (4, "a")):
        place(world, index, zone)
    world.up(2, 3, 4)
    world.rejoin(0, 1)
    assert world.ranks == [0, 4, 1, 3, 2]


def test_rank_0_goes_to_a_survivor_though_a_spare_has_come_in() -> None:
    world = job("a", "b", "b", "b", spares=1)
    place(world, 4, "a")
    world.up(4)
    world.delete(0)
    world.rejoin(1, 2, 3)
    assert (world.phase, world.ranks) == ("2 Formed", [1, 2, 3, 4])
    assert "spare" not in world.state.reason


def test_a_change_of_a_nodes_labels_ends_no_round_and_counts_in_the_next() -> None:
    world = job("a", "b", "b")
    place(world, 1, "c")
    place(world, 2, "a")
    assert (world.phase, world.ranks) == ("1 Formed", [0, 1, 2])
    world.join(1, cause="WorkerFailed")
    world.rejoin(0, 2)
    assert (world.phase, world.ranks) == ("2 Formed", [0, 2, 1])


def test_a_scale_down_takes_the_highest_ranks_and_so_the_last_zones() -> None:
    world = job("a", "b", "a", "b")
    world.scale(2)
    world.rejoin(0, 2)
    assert (world.phase, world.ranks) == ("2 Formed", [0, 2])


def test_only_the_order_changes_where_some_sizes_are_allowed() -> None:
    world = JobOnPaper(replicas=4, sizes=(2, 4), rank_order=(ZONE,))
    for index, zone in enumerate("abab"):
        place(world, index, zone)
    world.up(0, 1, 2)
    world.change(3, pod=PodState.UNSCHEDULABLE)
    assert (world.phase, world.ranks) == ("1 Formed", [0, 1])


def test_without_it_topologies_change_nothing() -> None:
    world = JobOnPaper(replicas=3)
    for index, zone in enumerate("aba"):
        place(world, index, zone)
    world.up(0, 1, 2)
    assert world.ranks == [0, 1, 2]
    assert world.state.reason == "first formation"


def test_workers_whose_nodes_are_not_known_come_last() -> None:
    assert job("a", "", "b", "", "a").ranks == [0, 4, 2, 1, 3]


def test_but_the_first_survivor_keeps_rank_0() -> None:
    world = job("", "b", "", "b")
    assert world.ranks == [0, 2, 1, 3]
    assert world.state.reason.endswith(f"; workers whose nodes have no label {ZONE}: 2")


def test_without_any_labels_those_of_a_node_have_ranks_in_a_row() -> None:
    """As without the right to watch nodes: then only their names are known."""
    workers = [Worker(index=index, topology=("", "", f"n{index % 2}")) for index in range(4)]
    assert indices(by_topology(workers, 2)) == [0, 2, 1, 3]


def test_nothing_is_known_of_a_worker_without_a_node() -> None:
    assert path_of(Worker(index=0), 2) == [("",), ("", ""), ("", "", "")]
    workers = [Worker(index=0, topology=("a", "n")), Worker(index=1), Worker(index=2, topology=("b", "m"))]
    assert indices(by_topology(workers, 1)) == [0, 2, 1]


def test_racks_of_two_zones_may_be_named_alike() -> None:
    places = [("a", "1"), ("b", "1"), ("a", "2"), ("b", "1"), ("a", "1")]
    workers = [Worker(index=index, topology=(*place, f"n{index}")) for index, place in enumerate(places)]
    ordered = by_topology(workers, 2)
    assert indices(ordered) == [0, 4, 2, 1, 3]
    said = in_words(Spec(replicas=5, rank_order=(ZONE, RACK)), ordered)
    assert said == f"; ring neighbours in another {ZONE}: 2 of 5, in another {RACK}: 3 of 5"


@pytest.mark.parametrize(
    ("ring", "count"), [("", 0), ("a", 0), ("ab", 2), ("aab", 2), ("abab", 4), ("aabb", 2), ("aaa", 0), ("abca", 3)]
)
def test_a_ring_has_its_last_beside_its_first(ring: str, count: int) -> None:
    assert crossings(ring) == count


RACKS, A_RACK, ZONES = 32, 32, 4


def test_after_many_losses_a_ring_of_1024_leaves_each_rack_once() -> None:
    """Whoever is lost is replaced on a node of any rack; with its rank kept it would be a stranger there."""
    spec, chance = Spec(replicas=1024, rank_order=(ZONE, RACK)), random.Random(0)
    there = [Worker(index=index, id="a", topology=node_of(index)) for index in range(RACKS * A_RACK)]
    by_rank, by_place = (formed(one, there) for one in (replace(spec, rank_order=()), spec))
    for number in range(200):
        index = chance.randrange(1024)
        there[index] = Worker(index=index, id=f"r{number}", topology=node_of(chance.randrange(1024)))
        by_rank = formed(replace(spec, rank_order=()), there, by_rank)
        first = next(one for one in by_place if one in there)
        by_place = formed(spec, there, by_place)
        assert by_place[0] == first
    assert [apart(by_place, depth) for depth in (0, 1)] == [ZONES, RACKS]
    assert apart(by_rank, 1) > 300


def node_of(number: int) -> tuple[str, ...]:
    rack = number // A_RACK
    return (f"z{rack * ZONES // RACKS}", f"r{rack}", f"n{number}")


def formed(spec: Spec, there: Sequence[Worker], before: Sequence[Worker] = ()) -> tuple[Worker, ...]:
    last = tuple(Member(one.index, one.id or "") for one in before)
    return in_rank_order(spec, State(clocks=Clocks(opened=0, formed=0), participants=last), there)


def apart(members: Sequence[Worker], depth: int) -> int:
    return crossings(path_of(one, 2)[depth] for one in members)


def indices(workers: Sequence[Worker]) -> list[int]:
    return [worker.index for worker in workers]


@pytest.mark.parametrize(("given", "keys"), [({"topologyKeys": [ZONE, RACK]}, (ZONE, RACK)), (None, ())])
def test_the_keys_of_a_spec(given: object, keys: object) -> None:
    spec = ElasticJobSpec.parse({"replicas": 1, "rankOrder": given, "template": {}})
    assert rendezvous_spec(spec).rank_order == keys
