# SPDX-License-Identifier: Apache-2.0
"""The sidecar's metrics for Prometheus."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from elasticjob.kube.errors import ApiError

PREFIX = "elasticjob_sidecar_"
STEP_BUCKETS = (0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
JOIN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.joins = Counter(
            PREFIX + "joins", "Joins that the trainer requested, by cause.", ["cause"], registry=registry
        )
        self.rounds = Counter(PREFIX + "rounds_handed", "Rounds handed to the trainer.", registry=registry)
        self.round = Gauge(PREFIX + "round", "Number of the last round handed to the trainer.", registry=registry)
        self.join_seconds = Histogram(
            PREFIX + "join_seconds", "Seconds from a join to its round.", buckets=JOIN_BUCKETS, registry=registry
        )
        self.first_step = FirstStep(
            Histogram(
                PREFIX + "first_step_seconds",
                "Seconds from the end of a round, or from the first join, to the next step that a script reports.",
                buckets=STEP_BUCKETS,
                registry=registry,
            )
        )
        self.tunnels = Gauge(PREFIX + "tunnel_connections", "Open connections to the round's store.", registry=registry)
        self.tunnels_opened = Counter(
            PREFIX + "tunnel_connections_opened",
            "Connections to the round's store that were opened, by side.",
            ["side"],
            registry=registry,
        )
        self.tunnels_refused = Counter(
            PREFIX + "tunnel_connections_refused",
            "Refused connections to the round's store, by side and code.",
            ["side", "code"],
            registry=registry,
        )
        self.tunnel_bytes = Counter(
            PREFIX + "tunnel_bytes", "Bytes forwarded to and from the round's store.", registry=registry
        )
        self.links = Gauge(PREFIX + "heartbeat_links", "Open heartbeat links to other sidecars.", registry=registry)
        self.suspicions = Counter(
            PREFIX + "suspicions",
            "Members that were suspected because their heartbeat link went silent.",
            registry=registry,
        )
        self.acks = Counter(PREFIX + "pings_acked", "Pings that this worker has acked.", registry=registry)
        self.api_errors = Counter(
            PREFIX + "api_errors",
            "Failed requests to the API server, by operation and status code; 0 means no answer.",
            ["operation", "status"],
            registry=registry,
        )

    def api_failed(self, operation: str, failure: ApiError) -> None:
        self.api_errors.labels(operation, str(failure.status)).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class FirstStep:
    """How long the training stood still, by the reports of this worker's scripts. `now`: seconds of any steady
    clock."""

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._handed = False

    def over(self, now: float) -> None:
        self._since, self._handed = now, False

    def joined(self, now: float) -> None:
        self._since = now if self._since is None else self._since

    def handed(self) -> None:
        self._handed = True

    def reported(self, now: float) -> None:
        if self._since is not None and self._handed:
            self._seconds.observe(now - self._since)
            self._since = None
