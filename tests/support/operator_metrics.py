# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics belong to the process, which in tests outlives the operator."""

from elasticjob_operator import metrics


def forget_term() -> None:
    """Else a later test that reads all metrics asks the queue and the watches of an operator that has ended."""
    metrics.LEADER.set(0)
    metrics.JOBS.each = False
    metrics.WATCH_SILENT.set_function(float)
    metrics.begin_term(tuple, int, int)
