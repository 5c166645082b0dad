# SPDX-License-Identifier: Apache-2.0
"""Which records the operator believes, and what it says of the others."""

import hashlib
import ssl
from typing import Any

import pytest

from elasticjob.api import ElasticJobSpec
from elasticjob.reading import Record
from elasticjob.reading.validity import Reading, judge
from elasticjob.rendezvous import Clocks, PodState, Spec, State, Worker, decide
from elasticjob_operator.job import observe
from elasticjob_operator.job.observe import Observer
from elasticjob_operator.objects.pods import SidecarImage, render_pod
from support.operator_objects import ID, OTHER_ID, Object, job, pod, record, view_of


def seen(*records: Object, pods: tuple[Object, ...] = (), **rendezvous: Any) -> list[Worker]:
    """The workers of a job in round 3, in the order of their names; a pod for each record unless `pods` are given."""
    agreed = {"round": 3, "phase": "Forming", **rendezvous}
    bodies = {body["metadata"]["name"]: body for body in pods}
    said = {body["metadata"]["name"]: body for body in records}
    for name in said:
        _, index, number = name.rsplit("-", 2)
        bodies.setdefault(name, pod(int(index), int(number)))
    view = view_of({**job(), "status": {"rendezvous": agreed}}, bodies, said)
    return sorted(Observer("trainer").observe(view)[0], key=lambda worker: worker.pod_key)


def spoiled(**part: Any) -> Object:
    return {**record(0), **part}


JOIN: Object = {"type": "Join", "after": 2, "cause": "Started"}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (record(0, id="not hex"), "spec.id: String should match pattern"),
        (record(0, job="digit"), "spec.job is 'digit', and the pod belongs to 'digits'"),
        (record(0, index=5), "spec.index is 5, and the pod is worker 0"),
        (record(0, index=2**62), "spec.index: Input should be less than or equal to 8191"),
        (record(0, certificate="PEM"), "spec.certificate is no certificate in PEM form"),
        (record(0, certificate=ssl.DER_cert_to_PEM_cert(b"none")), "spec.certificate is no certificate in PEM form"),
        (record(0, address="10.0.0.1"), "spec.address: String should match pattern"),
        (record(0, address="10.0.0.999:27601"), "spec.address '10.0.0.999:27601' holds no IP address"),
        (record(0, address="[::g]:27601"), "spec.address: String should match pattern"),
        (record(0, address="[:::]:27601"), "spec.address '[:::]:27601' holds no IP address"),
        (record(0, address="10.0.0.1:0"), "spec.address '10.0.0.1:0' holds no port"),
        (record(0, address="10.0.0.1:99999"), "spec.address '10.0.0.1:99999' holds no port"),
        (record(0, request={**JOIN, "after": 3}), "spec.request.after is 3, and the last round that was formed is 2"),
        (record(0, request={**JOIN, "after": -1}), "spec.request.after: Input should be greater"),
        (
            record(0, request={"type": "Finish", "round": 9}),
            "spec.request.round is 9, and the last",
        ),
        (record(0, request={**JOIN, "stage": 0}), "spec.request.stage: Input should be greater than or equal to 1"),
        (record(0, request={**JOIN, "container": "x"}), "spec.request.container: String should match pattern"),
        (record(0, request={**JOIN, "script": 7}), "spec.request.script: Input should be a valid string"),
        (record(0, request={"type": "Jump"}), "spec.request.type: Input should be 'Join'"),
        (spoiled(status={"heartbeat": -3}), "status.heartbeat: Input should be greater"),
        (spoiled(status={"ack": 2**31}), "status.ack is 2147483648, and the last ping is 0"),
        (
            spoiled(status={"suspects": "0-65535/a"}),
            "status.suspects names 65536 workers, and a sidecar suspects 256 at most",
        ),
        (spoiled(status={"suspects": "everybody"}), "status.suspects: Value error, members are written as index/id"),
        (spoiled(status={"metrics": {"loss": float("nan")}}), "status.metrics.loss: Input should be a finite"),
        (spoiled(status=[]), "status: Input should be a valid"),
        (spoiled(spec=None), "spec: Input should be a valid"),
    ],
)
def test_a_record_that_makes_no_sense_says_why_and_counts_for_nothing(wrong: Object, problem: str) -> None:
    (worker,) = seen(wrong)
    assert worker.invalid.startswith(problem)
    assert (worker.id, worker.request, worker.heartbeat, worker.address) == (None, None, None, "")


def test_only_a_ping_that_was_made_is_answered() -> None:
    (worker,) = seen(spoiled(status={"ack": 3}), ping={"number": 2})
    assert worker.invalid == "status.ack is 3, and the last ping is 2"


@pytest.mark.parametrize(("type", "stage"), [("Join", 3), ("Leave", 3), ("Finish", 2)])
def test_a_stage_is_the_jobs_or_the_next_one_and_success_is_of_the_jobs(type: str, stage: int) -> None:
    def problem(stage: int) -> str:
        (worker,) = seen(record(0, request={"type": type, "stage": stage}), stage=2)
        return worker.invalid

    assert problem(stage) == ""
    assert problem(stage + 1) == f"spec.request.stage is {stage + 1}, and the job is at stage 2"


def test_an_address_is_that_of_the_pod() -> None:
    two = pod(0, podIPs=[{"ip": "10.0.0.7"}, {"ip": "fd00::7"}])
    (worker,) = seen(record(0, address="10.0.0.1:27601"), pods=(two,))
    assert worker.invalid == "spec.address is 10.0.0.1:27601, and the pod's own is 10.0.0.7, fd00::7"
    for own in ("10.0.0.7:27601", "[fd00:0::7]:27601"):
        assert seen(record(0, address=own), pods=(two,))[0].address.partition("/")[0] == own


def test_the_stores_address_is_followed_by_the_certificates_fingerprint() -> None:
    der = ssl.PEM_cert_to_DER_cert(record(0)["spec"]["certificate"])
    assert seen(record(0))[0].address == f"10.0.0.1:27601/{hashlib.sha256(der).hexdigest()[:32]}"


def test_a_problem_is_of_bounded_length() -> None:
    (worker,) = seen(spoiled(status={"metrics": {"x" * 100_000: "one"}}))
    assert len(worker.invalid) == 300


def test_an_id_is_of_the_pods_own_batch() -> None:
    """Else a pod could pass for one of the same name that was in the round before it."""
    made = render_pod(
        job(), ElasticJobSpec.parse(job()["spec"]), 0, 0, SidecarImage("sidecar", "Always"), batch=ID.partition(".")[0]
    )
    ours = pod(0) | {"spec": made["spec"]}
    assert seen(record(0), pods=(ours,))[0].id == ID
    (worker,) = seen(record(0, id=OTHER_ID), pods=(ours,))
    assert worker.invalid == f"spec.id is {OTHER_ID}, and ids in this pod begin with {ID.partition('.')[0]}."


def test_the_group_forms_without_the_invalid_one() -> None:
    running = {"containerStatuses": [{"name": "trainer", "restartCount": 0, "state": {"running": {}}}]}
    asked = [record(0, request=JOIN), record(1, id=OTHER_ID, request=JOIN), record(2, job="other", request=JOIN)]
    workers = seen(*asked, pods=tuple(pod(index, **running) for index in range(3)))
    assert [worker.pod for worker in workers] == [PodState.RUNNING] * 3
    spec, state = Spec(replicas=3, min_replicas=2, last_call=5), State(clocks=Clocks(opened=0, formed=0), round=3)
    first = decide(spec, state, workers, 10)
    assert [event.reason for event in first.events] == ["InvalidRecord"]
    second = decide(spec, first.state, workers, 15)
    assert [member.index for member in second.state.participants] == [0, 1]


def test_a_record_is_judged_again_when_it_or_the_job_has_changed() -> None:
    names = ("digits-0-0", "digits-1-0")
    early = record(0, request={**JOIN, "after": 3})
    view = view_of(
        {**job(), "status": {"rendezvous": {"round": 3, "phase": "Forming"}}},
        {name: pod(index) for index, name in enumerate(names)},
        {names[0]: early, names[1]: record(1, id=OTHER_ID)},
    )
    observer = Observer("trainer")

    def seen() -> list[tuple[bool, bool]]:
        return [(bool(worker.invalid), worker.request is not None) for worker in observer.observe(view)[0]]

    assert seen() == [(True, False), (False, False)]
    view.job = {**job(), "status": {"rendezvous": {"round": 3, "phase": "Formed"}}}
    assert seen() == [(False, True), (False, False)]
    view.workers[names[1]] = Record.read(record(1, id=OTHER_ID, request=JOIN))
    assert seen() == [(False, True), (False, True)]
    del view.pods[names[0]]
    assert seen() == [(False, True)]


def test_a_heartbeat_and_a_report_are_read_without_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 workers a hundred of them come in each second."""
    names, judged = ["digits-0-0", "digits-1-0"], list[str]()

    def counted(record: Record | None, *arguments: Any) -> Reading:
        judged.append(record.name if record else "")
        return judge(record, *arguments)

    monkeypatch.setattr(observe, "judge", counted)
    bodies = {name: record(index, request=JOIN) for index, name in enumerate(names)}
    view = view_of(
        {**job(), "status": {"rendezvous": {"round": 3, "phase": "Formed", "ping": {"number": 1}}}},
        {name: pod(index) for index, name in enumerate(names)},
        bodies,
    )
    observer = Observer("trainer")

    def after(status: Object, **spec: Any) -> list[str]:
        """What is judged once the first worker has written that; all is as a new observer reads it."""
        bodies[names[0]] = record(0, request=JOIN, **spec) | {"status": status}
        view.workers[names[0]] = Record.read(bodies[names[0]], view.workers[names[0]])
        judged.clear()
        seen = observer.observe(view), dict(observer.statuses), dict(observer.pods)
        found, another = list(judged), Observer("trainer")
        assert seen == (another.observe(view), dict(another.statuses), dict(another.pods))
        return found

    assert after({"heartbeat": 4}) == names, "the first look"
    assert after({"heartbeat": 5}) == []
    assert after({"heartbeat": 6, "step": 7, "total": 9, "metrics": {"loss": 1.0}, "waits": 0.5}) == []
    assert after({"heartbeat": 7, "ack": 1}) == names[:1]
    assert after({"heartbeat": 7, "ack": 1, "suspects": f"1/{ID}"}) == names[:1]
    assert after({"heartbeat": 8, "ack": 1, "live": 3}) == names[:1]
    assert after({"heartbeat": 9, "ack": 1, "live": 3}, node="n") == names[:1]
    assert after({"heartbeat": 10, "ack": 1, "live": 3}, node="n") == []
    assert after({"heartbeat": "many"}, node="n") == names[:1]
    assert after({"heartbeat": 11}, node="n") == names[:1]
