# SPDX-License-Identifier: Apache-2.0
"""Sizes that a round may have, story by story: the largest that fits is formed, and the others wait for another."""

import pytest

from elasticjob.agreed import rendezvous_spec
from elasticjob.rendezvous import PodState
from elasticjob.spec import ElasticJobSpec, SizesSpec
from support.job_on_paper import JobOnPaper, formed


def job(replicas: int, *up: int, **spec: object) -> JobOnPaper:
    """Of sizes 2 and 4; those workers have joined."""
    world = JobOnPaper(replicas=replicas, sizes=tuple(size for size in (2, 4) if size <= replicas), **spec)
    world.up(*up)
    return world


def test_the_largest_is_formed_that_those_who_are_there_can_fill() -> None:
    world = job(4, 0, 1, 2)
    assert world.phase == "1 Forming"
    world.change(3, pod=PodState.UNSCHEDULABLE)
    assert (world.phase, world.ranks) == ("1 Formed", [0, 1])


def test_who_is_left_over_waits_and_ends_no_round_until_it_can_be_larger() -> None:
    world = job(4, 0, 1, 2)
    world.change(3, pod=PodState.UNSCHEDULABLE)
    world.rejoin(2)
    world.wait(300, living=(0, 1, 2))
    assert (world.phase, world.state.waiting) == ("1 Formed", 1)
    world.up(3)
    assert (world.phase, world.state.planned) == ("2 Forming", True)
    world.rejoin(0, 1)
    assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 2, 3])


def test_who_is_left_over_takes_the_place_of_a_lost_member_at_once() -> None:
    world = job(4, 0, 1, 2)
    world.change(3, pod=PodState.UNSCHEDULABLE)
    world.rejoin(2)
    world.delete(1)
    world.change(1, pod=PodState.UNSCHEDULABLE)
    world.rejoin(0)
    assert (world.phase, world.ranks) == ("2 Formed", [0, 2])


def test_a_loss_leaves_the_next_smaller_and_members_wait_beside_it() -> None:
    world = job(4, 0, 1, 2, 3)
    world.delete(3)
    world.change(3, pod=PodState.UNSCHEDULABLE)
    world.rejoin(0, 1, 2)
    assert (world.phase, world.ranks) == ("2 Formed", [0, 1])
    world.rejoin(2)
    world.up(3)
    world.rejoin(0, 1)
    assert (world.phase, world.ranks) == ("3 Formed", [0, 1, 2, 3])


def test_fewer_than_the_smallest_wait() -> None:
    world = job(4, 0)
    world.wait(60, living=(0,))
    assert world.phase == "1 Forming"


def test_the_minimum_is_the_smallest_that_is_no_less_than_min_replicas() -> None:
    world = job(4, 0, 1, 2, min_replicas=3)
    world.change(3, pod=PodState.UNSCHEDULABLE)
    assert world.phase == "1 Forming"


def test_any_size_will_do_once_somebody_has_finished() -> None:
    world = job(2, 0, 1)
    world.finish(0)
    world.rejoin(1)
    assert world.phase == "2 Formed"
    assert world.ranks == [1]


@pytest.mark.parametrize(("sizes", "min_replicas"), [((4,), 1), ((2, 4), 4), ((2,), 3)])
def test_no_round_is_formed_below_every_size_that_is_wanted(sizes: tuple[int, ...], min_replicas: int) -> None:
    world = JobOnPaper(replicas=3, sizes=sizes, min_replicas=min_replicas)
    world.up(0, 1, 2)
    world.wait(60, living=(0, 1, 2))
    assert world.phase == "1 Forming"


def test_without_sizes_nothing_changes() -> None:
    assert formed(3).ranks == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "replicas", "sizes"),
    [
        ({"step": 8}, 24, (8, 16, 24)),
        ({"allowed": [32, 8, 16]}, 16, (8, 16)),
        ({"step": 8}, 4, (8,)),  # the CRD refuses it, but quota may leave so few
        ({"allowed": [8, 16]}, 4, (8,)),
    ],
)
def test_the_sizes_of_a_spec_end_at_its_replicas(given: dict[str, object], replicas: int, sizes: object) -> None:
    assert SizesSpec.parse(given).up_to(replicas) == sizes
    spec = ElasticJobSpec.parse({"replicas": replicas, "sizes": given, "template": {}})
    assert rendezvous_spec(spec).sizes == sizes
