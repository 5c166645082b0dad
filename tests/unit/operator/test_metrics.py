# SPDX-License-Identifier: Apache-2.0
"""The metrics as Prometheus reads them."""

from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from elasticjob import __version__
from elasticjob_operator import metrics
from elasticjob_operator.job.gauges import gauges_of
from elasticjob_operator.job.measurements import Measurement, Metric
from support.operator_objects import Object, job

Labels = dict[str, str]


@pytest.fixture
def jobs() -> Iterator[metrics.Jobs]:
    metrics.JOBS.each = False
    yield metrics.JOBS
    metrics.JOBS.each, metrics.JOBS.known = False, tuple


def samples(name: str) -> list[tuple[Labels, float]]:
    families = text_string_to_metric_families(generate_latest().decode())
    return [(one.labels, one.value) for family in families for one in family.samples if one.name == name]


@pytest.mark.parametrize(
    ("agreed", "world_size", "least"),
    [
        ({"phase": "Formed", "worldSize": 3, "participants": "0-2/ab.0"}, 3, 3),
        ({"phase": "Formed", "worldSize": 1, "participants": "2/ab.0", "finished": "0-1/ab.0"}, 1, 1),
        ({"phase": "Closed", "outcome": "Closed", "worldSize": 0, "participants": "0-3/ab.0"}, 4, 3),
        ({"phase": "Formed", "worldSize": 3, "finished": "somebody's words"}, 3, 3),
    ],
    ids=["trains", "goes on without the finished", "closed, and trains on", "not readable"],
)
def test_a_job_that_trains_is_not_below_its_minimum(agreed: Object, world_size: int, least: int) -> None:
    """As the alert compares them."""
    found = gauges_of(job(minReplicas=3) | {"status": {"phase": "Running", "rendezvous": agreed}})
    assert (found.numbers["world_size"], found.numbers["min_replicas"]) == (world_size, least)


def test_each_thing_that_is_observed_has_a_metric() -> None:
    for metric in Metric:
        metrics.count([Measurement(metric, 1.0, "Tested" if metrics.STEPS[metric]._labelnames else "")])
    assert ({"cause": "Tested"}, 1.0) in samples("elasticjob_rounds_formed_total")
    assert ({"cause": "Tested"}, 1.0) in samples("elasticjob_round_notified_seconds_count")
    assert samples("elasticjob_restarts_total") == [({}, 1.0)]


def test_no_metric_of_steps_names_a_job_a_pod_or_a_node() -> None:
    labels = {label for metric in metrics.STEPS.values() for label in metric._labelnames}
    assert labels == {"reason", "cause", "outcome", "phase"}


def test_what_runs_is_told_by_its_versions() -> None:
    ((labels, value),) = samples("elasticjob_build_info")
    assert value == 1.0
    assert labels.keys() == {"version", "python", "kopf"}
    assert labels["version"] == __version__
    assert all(one[:1].isdigit() for one in labels.values())


def test_the_queue_has_the_names_that_dashboards_know() -> None:
    before = {name: total(name) for name in QUEUE}
    metrics.QUEUE_SECONDS.observe(0.5)
    metrics.QUEUE_RETRIES.inc()
    counted = {name: total(name) - before[name] for name in QUEUE}
    assert list(counted.values()) == [1.0, 0.5, 1.0]
    metrics.begin_term(tuple, lambda: 7, lambda: 0)
    assert samples("workqueue_depth") == [({"name": "elasticjobs"}, 7.0)]


QUEUE = ("workqueue_queue_duration_seconds_count", "workqueue_queue_duration_seconds_sum", "workqueue_retries_total")


def total(name: str) -> float:
    """Of the one queue."""
    ((labels, value),) = samples(name)
    assert labels == {"name": "elasticjobs"}
    return value


def test_a_node_is_counted_by_the_jobs_that_avoid_it(jobs: metrics.Jobs) -> None:
    until, soon = {"avoidedUntil": "2026-01-02T03:04:05Z"}, {"failures": 1}
    running = {"phase": "Running", "nodeFailures": [{"node": "a", **until}, {"node": "b", **until}]}
    forming = {"phase": "Forming", "nodeFailures": [{"node": "a", **until}, {"node": "c", **soon}]}
    ended = {"phase": "Failed", "nodeFailures": [{"node": "a", **until}]}
    jobs.known = lambda: [gauges_of(job() | {"status": status}) for status in (running, forming, ended, {})]
    assert samples("elasticjob_avoided_nodes") == [({"node_name": "a"}, 2.0), ({"node_name": "b"}, 1.0)]
    jobs.known = tuple
    assert samples("elasticjob_avoided_nodes") == []


def test_jobs_are_counted_by_phase_and_each_is_shown_if_wanted(jobs: metrics.Jobs) -> None:
    one = job(replicas=4, spareReplicas=2, maxRestarts=3) | {
        "status": {
            "phase": "Running",
            "restarts": 2,
            "spares": 1,
            "progress": {"step": 40, "metrics": {"loss": 0.5, "queued": 300}},
            "rendezvous": {"round": 7, "worldSize": 3, "waiting": 1},
            "conditions": [{"type": one, "status": "False"} for one in ("WorkersValid", "Progressing", "Connected")],
        }
    }
    jobs.known = lambda: map(gauges_of, [one, job()])
    assert samples("elasticjob_jobs") == [({"phase": "Pending"}, 1.0), ({"phase": "Running"}, 1.0)]
    assert samples("elasticjob_job_world_size") == []
    jobs.known, jobs.each = lambda: [gauges_of(one)], True
    named = {"job_namespace": "ml", "job_name": "digits"}
    shown = {name: samples(f"elasticjob_job_{name}") for name in metrics.JOB_GAUGES}
    values = {name: found[0][1] for name, found in shown.items() if found[0][0] == named}
    assert values == {
        "world_size": 3,
        "waiting": 1,
        "spares": 1,
        "replicas": 4,
        "spare_replicas": 2,
        "min_replicas": 1,
        "round": 7,
        "restarts": 2,
        "max_restarts": 3,
        "invalid_records": 1,
        "hangs": 1,
        "network_fault": 1,
    }
    assert samples("elasticjob_job_step") == [({**named}, 40.0)]
    reported = [({**named, "metric": "loss"}, 0.5), ({**named, "metric": "queued"}, 300.0)]
    assert samples("elasticjob_job_reported") == reported
    assert samples("elasticjob_job_phase") == [({**named, "phase": "Running"}, 1.0)]
    jobs.known = tuple  # it is gone, and nothing of it stays
    assert samples("elasticjob_job_world_size") == []
