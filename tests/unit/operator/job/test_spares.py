# SPDX-License-Identifier: Apache-2.0
"""What the operator says of spares, and when it makes their pods."""

from dataclasses import replace

import pytest

from elasticjob.agreed import rendezvous_spec
from elasticjob.api import ElasticJobSpec
from elasticjob.rendezvous import Clocks, Member, Request, State, Worker
from elasticjob.terms import RendezvousPhase, RequestType
from elasticjob_operator.job.spares import are_held_back
from elasticjob_operator.job.status import status_of
from support.operator_objects import job
from support.statuses import CLOCKS, report

NEW = State(clocks=CLOCKS)
FORMED = replace(NEW, round=1, phase=RendezvousPhase.FORMED, participants=(Member(0, "a"), Member(1, "b")), spares=1)


def joined(index: int, after: int) -> Worker:
    return Worker(index=index, id="abc"[index], request=Request(type=RequestType.JOIN, after=after))


def spec_of(**spec: object) -> ElasticJobSpec:
    return ElasticJobSpec.parse(job(**spec)["spec"])


def test_only_one_number_counts_the_spares() -> None:
    workers = (joined(0, 0), joined(1, 0), joined(2, 1))
    found = status_of(report(FORMED, spec={"replicas": 2, "spareReplicas": 1}, workers=workers, ready={(0, 0), (2, 0)}))
    assert (found.replicas, found.ready_replicas, found.spares, found.rendezvous.world_size) == (2, 1, 1, 2)


def test_without_spares_all_are_counted() -> None:
    found = status_of(report(FORMED, workers=(joined(0, 0), joined(1, 0)), ready={(0, 0), (1, 0)}))
    assert (found.replicas, found.ready_replicas) == (2, 2)


def test_who_is_on_the_way_out_counts_in_neither_number() -> None:
    workers = (joined(0, 0), replace(joined(1, 0), deleting=True), joined(2, 1))
    replaced = replace(FORMED, replacements={2: 1})
    found = status_of(report(replaced, workers=workers, ready={(0, 0), (1, 0), (2, 0)}))
    assert (found.replicas, found.ready_replicas) == (1, 1)


def test_the_rules_are_told_how_many() -> None:
    assert rendezvous_spec(spec_of(spareReplicas=3)).spares == 3


@pytest.mark.parametrize(
    ("state", "now", "held"),
    [
        (NEW, 0.0, True),
        (replace(NEW, round=2), 500.0, False),
        (replace(FORMED, clocks=Clocks(opened=0, formed=10)), 129.0, True),
        (replace(FORMED, clocks=Clocks(opened=0, formed=10)), 130.0, False),
    ],
    ids=["before the first round", "between two", "while the script may be learned", "after that"],
)
def test_spares_of_a_job_that_asks_for_warm_restart_are_made_when_its_imports_are_known(
    state: State, now: float, held: bool
) -> None:
    later = replace(state, clocks=replace(state.clocks, formed=state.clocks.formed or now))
    warm = spec_of(spareReplicas=1, warmRestart="Enabled")
    assert are_held_back(warm, later, "", now) is held
    assert not are_held_back(warm, later, "torch", now)
    assert not are_held_back(spec_of(spareReplicas=1), later, "", now)
