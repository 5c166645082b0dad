"""What the sidecar counts, for Prometheus."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from elasticjob_sidecar.kubernetes.client import ApiFailure

PREFIX = "elasticjob_sidecar_"
JOIN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.joins = Counter(PREFIX + "joins", "Joins that the trainer asked for.", ["cause"], registry=registry)
        self.rounds = Counter(PREFIX + "rounds_handed", "Rounds handed to the trainer.", registry=registry)
        self.round = Gauge(PREFIX + "round", "The round last handed to the trainer.", registry=registry)
        self.join_seconds = Histogram(
            PREFIX + "join_seconds", "From a join to its round.", buckets=JOIN_BUCKETS, registry=registry
        )
        self.tunnels = Gauge(PREFIX + "tunnel_connections", "Open connections to the round's store.", registry=registry)
        self.tunnels_opened = Counter(
            PREFIX + "tunnel_connections_opened",
            "Connections to the round's store.",
            ["side"],
            registry=registry,
        )
        self.tunnels_refused = Counter(
            PREFIX + "tunnel_connections_refused",
            "Connections turned away, by code.",
            ["side", "code"],
            registry=registry,
        )
        self.tunnel_bytes = Counter(PREFIX + "tunnel_bytes", "Bytes forwarded.", registry=registry)
        self.api_errors = Counter(
            PREFIX + "api_errors",
            "Failed calls to the API server; 0: no answer.",
            ["operation", "status"],
            registry=registry,
        )

    def api_failed(self, operation: str, failure: ApiFailure) -> None:
        self.api_errors.labels(operation, str(failure.status)).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
