# SPDX-License-Identifier: Apache-2.0
"""Anything in the place of ElasticWorkers: the operator reads it, and forms no round of nonsense."""

from ipaddress import ip_address
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from elasticjob.agreed import rendezvous_spec, state_of
from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.rendezvous import Clocks, Decision, Worker, decide
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.job.status import status_of
from oracle import violations
from support.fuzzing import Json, tried
from support.operator_objects import CERTIFICATES, ID, OTHER_ID, Object, job, pod, trainer, view_of
from support.record_strategies import STATUSES, certified, specs
from support.statuses import report

SIZE = 4


def record(index: int, spec: Json, status: Json) -> Object:
    meta = {"name": f"digits-{index}-0", "ownerReferences": [{"uid": f"pod-{index}-0"}]}
    return {"metadata": meta, "spec": spec, "status": status}


# it joins after a round that is not formed yet: once that is, the join would count again
FROM_THE_FUTURE = record(
    3,
    {"job": "digits", "index": 3, "id": ID, "address": "10.0.0.3:27601", "certificate": CERTIFICATES[ID]}
    | {"request": {"type": "Join", "after": 1}},
    {},
)


def good(index: int) -> st.SearchStrategy[Json]:
    spec = {"job": "digits", "index": index, "id": list(CERTIFICATES)[index], "address": f"10.0.0.{index}:27601"}
    asked = st.sampled_from([None, "Join", "Join", "Join", "Join", "Leave"])
    return asked.map(
        lambda type: certified(spec) | ({"request": {"type": type, "after": 0, "round": 0}} if type else {})
    )


def kept(index: int) -> st.SearchStrategy[Object | None]:
    bad = st.builds(record, st.just(index), specs(index), STATUSES)
    right = st.builds(record, st.just(index), good(index), st.just({"heartbeat": 1}))
    return st.one_of(st.none(), bad, bad, right, right)


records = st.tuples(*map(kept, range(SIZE)))
ROUNDS = st.sampled_from(
    [
        {},
        {"round": 1, "phase": "Forming"},
        {"round": 2, "phase": "Formed", "participants": f"0/{ID} 1/{OTHER_ID}"},
        {"round": 3, "phase": "Forming", "participants": f"2/{ID}"},
    ]
)


def body_of(index: int) -> Object:
    return pod(index, podIPs=[{"ip": f"10.0.0.{index}"}], containerStatuses=[trainer(running={})])


def must_make_sense(worker: Worker, said: Json) -> None:
    """Said once more, by hand: whoever may be in a round is exactly what its record says."""
    assert not worker.invalid
    host, _, port = worker.address.partition("/")[0].rpartition(":")
    assert (str(ip_address(host)), port) == (f"10.0.0.{worker.index}", "27601")
    assert (said["spec"]["job"], said["spec"]["id"]) == ("digits", worker.id)
    assert int(said["spec"]["index"]) == worker.index
    assert said["spec"]["request"]["type"] == "Join"


@given(said=records, agreed=ROUNDS)
@example(said=(None, None, None, FROM_THE_FUTURE), agreed={})
def test_no_record_stops_the_operator_or_gets_into_a_round_that_it_does_not_belong_to(
    said: tuple[Object | None, ...], agreed: dict[str, Any]
) -> None:
    tried["sets of ElasticWorkers"] += 1
    body = job(replicas=SIZE) | {"status": {"rendezvous": agreed}}
    bodies = {f"digits-{index}-0": body_of(index) for index in range(SIZE)}
    view = view_of(body, bodies, {one["metadata"]["name"]: one for one in said if one is not None})
    spec, before = ElasticJobSpec.parse(body["spec"]), ElasticJobStatus.parse(body["status"])
    workers = Observer(spec.trainer_container).observe(view)[0]
    bounds, state = rendezvous_spec(spec), state_of(before, Clocks(opened=0, formed=0))
    for now in (1, 20, 40, 120):
        last = state
        decision = decide(bounds, last, workers, now)
        assert violations(bounds, last, workers, decision) == []
        state = decision.state
        if decision.formed_after is not None:
            tried["rounds that were formed of them"] += 1
            for member in state.participants:
                (worker,) = [one for one in workers if one.member == member]
                must_make_sense(worker, said[member.index])
        before = status(body, workers, decision, before)
        assert ElasticJobStatus.parse(before.dump()) == before
    if not state.ended:
        assert all(state.replacements[one.index] for one in workers if one.invalid and one.index not in state.done)


def status(body: Object, workers: tuple[Worker, ...], decision: Decision, before: ElasticJobStatus) -> ElasticJobStatus:
    return status_of(report(decision.state, before, job=body, workers=workers, decision=decision))
