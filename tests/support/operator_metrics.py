# SPDX-License-Identifier: Apache-2.0
"""The metrics of the operator, which belong to the process and in tests outlive the operator, and of the sidecar."""

from prometheus_client import REGISTRY, Metric

from elasticjob_operator import metrics
from elasticjob_sidecar.metrics import Metrics


def forget_term() -> None:
    """Else a later test that reads all metrics asks the queue and the watches of an operator that has ended."""
    metrics.LEADER.set(0)
    metrics.JOBS.each = False
    metrics.WATCH_SILENT.set_function(float)
    metrics.begin_term(tuple, int, int)


def all_families() -> list[Metric]:
    """The metrics of operator and sidecar, with those that the operator has for each job."""
    metrics.JOBS.each = True
    try:
        return [*REGISTRY.collect(), *Metrics().registry.collect()]
    finally:
        metrics.JOBS.each = False
