# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics for Prometheus. `job.measurements` says what is counted of a job's steps.

No counter or histogram names a job, a pod or a node: their labels are words from bounded lists.
"""

import platform
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version as distribution_version

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from elasticjob import __version__
from elasticjob_operator.job.gauges import JobGauges
from elasticjob_operator.job.measurements import Measurement, Metric

PREFIX = "elasticjob_"
NOTIFIED_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)
QUEUE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# from a one-minute trial to a month
DURATION_BUCKETS = tuple(60.0 * one for one in (1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 5760, 10080, 20160, 43200))
FORMED_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)

disable_created_metrics()  # type: ignore[no-untyped-call]

RECONCILE_SECONDS = Histogram(PREFIX + "reconcile_seconds", "Seconds of one step of one job.")
BUILD_INFO = Gauge(
    PREFIX + "build_info",
    "Always 1; the labels have the versions of the operator, of Python and of kopf.",
    ["version", "python", "kopf"],
)
BUILD_INFO.labels(__version__, platform.python_version(), distribution_version("kopf")).set(1)
# under the names that dashboards of other controllers use; there is one queue
QUEUE = "elasticjobs"
QUEUE_DEPTH = Gauge("workqueue_depth", "Jobs whose next step is due or in progress.", ["name"]).labels(QUEUE)
QUEUE_SECONDS = Histogram(
    "workqueue_queue_duration_seconds",
    "Seconds from the time that a step of a job was due to its start.",
    ["name"],
    buckets=QUEUE_BUCKETS,
).labels(QUEUE)
QUEUE_RETRIES = Counter("workqueue_retries", "Steps that failed and are tried again.", ["name"]).labels(QUEUE)
JOBS_AWAITING_STEP = Gauge(PREFIX + "jobs_awaiting_first_step", "Jobs that have had no step in this term yet.")
STATUS_CONFLICTS = Counter(
    PREFIX + "status_conflicts", "Status writes that the API server refused because the object had changed."
)
API_REQUESTS = Counter(
    PREFIX + "api_requests",
    "Requests to the API server, watches included, by verb and status code; 0 means no answer.",
    ["verb", "code"],
)
LEADER = Gauge(PREFIX + "leader", "1 while this operator leads.")
NAMESPACES_LEFT = Gauge(
    PREFIX + "left_namespaces", "Namespaces that this operator leaves to another installation that serves them too."
)
LOOP_STALL = Gauge(
    PREFIX + "event_loop_stall_seconds",
    "Longest time in seconds that the event loop was blocked since the process started.",
)
WATCH_SILENT = Gauge(PREFIX + "watch_silent_seconds", "Seconds since the start of the oldest open watch.")

STEPS: dict[Metric, Counter | Histogram] = {
    Metric.EVENTS: Counter(PREFIX + "events", "Announced events, by reason.", ["reason"]),
    Metric.ROUNDS_FORMED: Counter(PREFIX + "rounds_formed", "Formed rounds, by cause.", ["cause"]),
    Metric.ROUNDS_ENDED: Counter(
        PREFIX + "rounds_ended", "Formed rounds that ended and had to be followed by another, by cause.", ["cause"]
    ),
    Metric.WORKERS_LOST: Counter(PREFIX + "workers_lost", "Lost workers, by reason.", ["reason"]),
    Metric.PINGED: Counter(PREFIX + "pinged_workers", "Pinged workers, witnesses included."),
    Metric.RESTARTS: Counter(PREFIX + "restarts", "Failures counted against spec.maxRestarts."),
    Metric.JOBS_ENDED: Counter(PREFIX + "jobs_ended", "Ended jobs, by outcome.", ["outcome"]),
    Metric.LASTED: Histogram(
        PREFIX + "job_duration_seconds",
        "Seconds from status.startTime to the job's end, by its last phase.",
        ["phase"],
        buckets=DURATION_BUCKETS,
    ),
    Metric.NOTIFIED: Histogram(
        PREFIX + "round_notified_seconds",
        "Seconds from the first report of what ends a round, or from an unacked ping, to the status that says so.",
        ["cause"],
        buckets=NOTIFIED_BUCKETS,
    ),
    Metric.REFORMED: Histogram(
        PREFIX + "round_formed_seconds",
        "Seconds from the end of a round to the status with the next one; for the first, from the job's start.",
        ["cause"],
        buckets=FORMED_BUCKETS,
    ),
    Metric.TRAINED: Counter(PREFIX + "trained_seconds", "Seconds that jobs trained in a formed round."),
    Metric.STARTING: Counter(
        PREFIX + "starting_seconds", "Seconds of jobs in a formed round whose training processes were starting."
    ),
    Metric.FINISHING: Counter(
        PREFIX + "finishing_seconds", "Seconds that jobs waited only for containers that continued after success."
    ),
    Metric.LOST: Counter(
        PREFIX + "lost_seconds",
        "Seconds of jobs that trained in no round, by what ended the last round or separates the pods.",
        ["cause"],
    ),
    Metric.WORKERS_TRAINED: Counter(
        PREFIX + "trained_worker_seconds", "Seconds that jobs trained, multiplied by the workers of the round."
    ),
    Metric.WORKERS_WANTED: Counter(
        PREFIX + "wanted_worker_seconds", "Seconds of jobs that want to train, multiplied by spec.replicas."
    ),
}

JOB_GAUGES = {
    "world_size": "Workers in the job's formed round; 0 without a formed round.",
    "waiting": "Workers with a place that have joined and are in no round.",
    "spares": "Spares that have joined and wait for a place.",
    "replicas": "Workers that the job wants.",
    "spare_replicas": "Spares that the job wants.",
    "min_replicas": "Fewest workers that the job trains with; 0 once all have succeeded.",
    "round": "Number of the job's round.",
    "restarts": "Failures counted against spec.maxRestarts.",
    "max_restarts": "Failures that spec.maxRestarts allows.",
    "invalid_records": "1 while an ElasticWorker of the job is invalid.",
    "hangs": "1 while the job's training hangs.",
    "network_fault": "1 while pods of the job cannot reach the pod of rank 0.",
}
# not `namespace`, `job` and `node`: Prometheus itself adds these labels to scraped metrics
JOB_LABELS = ("job_namespace", "job_name")


class Jobs(Collector):
    """The gauges of all jobs. They are made at each scrape from what the leader knows, so nothing remains of a deleted
    job."""

    def __init__(self) -> None:
        self.each = False
        self.known: Callable[[], Iterable[JobGauges]] = tuple

    def collect(self) -> Iterator[GaugeMetricFamily]:
        known = list(self.known())
        phases = sorted(Tally(one.phase for one in known).items())
        about = "ElasticJobs that this operator manages, by phase."
        yield _gauge("jobs", about, ["phase"], (([phase], count) for phase, count in phases))
        nodes = sorted(Tally(node for one in known for node in one.avoided_nodes).items())
        about = "Jobs whose new pods avoid the node."
        yield _gauge("avoided_nodes", about, ["node_name"], (([node], count) for node, count in nodes))
        if self.each:
            yield from _of_each({(one.namespace, one.name): one for one in known})


def _of_each(known: Mapping[tuple[str, str], JobGauges]) -> Iterator[GaugeMetricFamily]:
    phases = (([*job, one.phase], 1) for job, one in known.items())
    yield _gauge("job_phase", "1 for the job's phase.", [*JOB_LABELS, "phase"], phases)
    for name, about in JOB_GAUGES.items():
        yield _gauge(f"job_{name}", about, JOB_LABELS, ((job, one.numbers[name]) for job, one in known.items()))
    steps = ((job, one.step) for job, one in known.items() if one.step is not None)
    yield _gauge("job_step", "Last step that the job's script reported.", JOB_LABELS, steps)
    reported = (([*job, name], value) for job, one in known.items() for name, value in one.reported.items())
    about = "Last value that the job's script reported, by metric name."
    yield _gauge("job_reported", about, [*JOB_LABELS, "metric"], reported)


def _gauge(
    name: str, about: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(PREFIX + name, about, labels=labels)
    for labelled, value in values:
        gauge.add_metric(labelled, value)
    return gauge


JOBS = Jobs()
REGISTRY.register(JOBS)


def begin_term(
    known: Callable[[], Iterable[JobGauges]], queue_depth: Callable[[], int], awaiting: Callable[[], int]
) -> None:
    """Makes the metrics show the leader's term. `awaiting`: the number of jobs that have had no step yet."""
    JOBS.known = known
    QUEUE_DEPTH.set_function(queue_depth)
    JOBS_AWAITING_STEP.set_function(awaiting)


def count(measurements: Iterable[Measurement]) -> None:
    for metric, value, label in measurements:
        counted = STEPS[metric]
        one = counted.labels(label) if label else counted
        if isinstance(one, Histogram):
            one.observe(value)
        else:
            one.inc(value)


def api_request_ended(verb: str, code: int) -> None:
    """Counts a request answered with `code`, 0 for no answer."""
    API_REQUESTS.labels(verb, str(code)).inc()
