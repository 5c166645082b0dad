# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what the operator's metrics count, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob_operator.memory:Memories._begin": (
            replace(
                "metrics: a new leader counts the seconds of those before",
                "counted=now",
                "counted=0.0",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.job.measurements:_seconds": (
            omit("metrics: a suspended job loses time", "report.suspended and not closed"),
        ),
        "elasticjob_operator.job.measurements:measure": (
            omit(
                "metrics: the round after a suspension took all of it",
                "report.suspended and report.before.rendezvous.phase is FORMING",
            ),
            replace(
                "metrics: a failure is counted at each step",
                "if state.restarts > before.restarts: "
                "found.append(Measurement(Metric.RESTARTS, state.restarts - before.restarts))",
                "if state.restarts: found.append(Measurement(Metric.RESTARTS, state.restarts))",
            ),
            omit("metrics: an end is counted at each step", "state.outcome is not before.rendezvous.outcome"),
        ),
        "elasticjob_operator.job.measurements:_caused": (
            replace(
                "metrics: a silence begins when it is noticed",
                "if cause != Loss.UNRESPONSIVE: return heard",
                "return heard",
            ),
        ),
        "elasticjob.rendezvous.losses:_word_of": (
            replace(
                "metrics: what a worker writes becomes a label",
                "RequestCause(cause) if cause in set(RequestCause) else RoundCause.OTHER",
                "cause",
                by="core causes",
            ),
        ),
        "elasticjob.rendezvous.losses:lost_workers": (
            replace("metrics: a loss has another's word", "Loss.TRAINER_HUNG", "Loss.UNRESPONSIVE", by="core causes"),
        ),
        "elasticjob_operator.cluster.watch_times:WatchTimes.silence": (
            replace("metrics: the watch that began last speaks for all", "min", "max", by="operator watch times"),
        ),
    },
    by="operator measurements",
)
