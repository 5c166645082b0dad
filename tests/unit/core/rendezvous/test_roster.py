# SPDX-License-Identifier: Apache-2.0
"""The roster against what the CRDs hold: an index that they refuse is a pod whose record can never be written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api import MAX_REPLICAS, ElasticWorkerSpec
from elasticjob.members import Member, Members, written_replacements
from elasticjob.rendezvous import Clocks, Request, Spec, State, Worker, roster_of
from elasticjob.schema import PACKED_LENGTH
from elasticjob.terms import RendezvousPhase, RequestType

JOINED = Request(type=RequestType.JOIN, after=0, cause="Started")
WAITS = Request(type=RequestType.JOIN, after=1, cause="Renewed")
LONGEST_ID, LONGEST_NUMBER = "f" * 32, 10**15 - 1


def missing_of(spec: Spec, state: State, workers: tuple[Worker, ...]) -> tuple[int, ...]:
    roster = roster_of(spec, state, workers)
    return (*roster.missing, *roster.missing_spares)


def formed(size: int, members: tuple[Member, ...], done: tuple[Member, ...] = ()) -> State:
    clocks = Clocks(opened=0.0, formed=0.0)
    return State(
        clocks=clocks, phase=RendezvousPhase.FORMED, round=1, participants=members, finished=done, replicas=size
    )


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Spec, State, tuple[Worker, ...]]:
    """Of any indices that an earlier roster may have given."""
    replicas, spares = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    indices = draw(st.lists(st.integers(0, 2 * (replicas + spares) - 1), unique=True, max_size=replicas + spares))
    members = tuple(Member(index, "ab.0") for index in indices[:replicas])
    done = members[: draw(st.integers(0, len(members)))]
    state = formed(replicas, members, done)
    state = replace(state, phase=draw(st.sampled_from([RendezvousPhase.FORMED, RendezvousPhase.FORMING])))
    workers = tuple(
        Worker(
            index=index,
            id="ab.0",
            address="10.0.0.1:1",
            request=draw(st.sampled_from([JOINED, WAITS, None])),
            draining=draw(st.booleans()),
            outdated=draw(st.booleans()),
        )
        for index in indices
    )
    return Spec(replicas=replicas, spares=spares), state, workers


@given(jobs())
def test_a_new_pod_has_an_index_below_twice_the_workers(job: tuple[Spec, State, tuple[Worker, ...]]) -> None:
    spec, state, workers = job
    assert all(index < 2 * (spec.replicas + spec.spares) for index in missing_of(spec, state, workers))


@pytest.mark.parametrize("spares", [0, 6])
def test_the_largest_job_can_be_drained_as_a_whole(spares: int) -> None:
    """All its indices, and all that is written of them, are what the CRDs take."""
    replicas = MAX_REPLICAS - spares
    members = tuple(Member(index, LONGEST_ID) for index in range(replicas))
    workers = tuple(
        Worker(index=one.index, id=one.id, address="10.0.0.1:1", request=JOINED, draining=True) for one in members
    )
    new = missing_of(Spec(replicas=replicas, spares=spares), formed(replicas, members), workers)
    assert len(new) == MAX_REPLICAS
    record = {"job": "j", "id": "9f3c01d2.0", "certificate": "PEM", "address": "10.0.0.1:27601"}
    assert ElasticWorkerSpec.parse({**record, "index": max(new)}).index == max(new)
    apart = (Member(index, f"{index:032x}") for index in new)
    assert len(str(Members(apart))) <= PACKED_LENGTH
    everyone = (*range(replicas), *new)
    assert len(written_replacements({index: LONGEST_NUMBER - index for index in everyone})) <= PACKED_LENGTH
