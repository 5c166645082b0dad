"""Seeded mistakes in what the operator's metrics count, for `make mutants`; see `model.mutations`."""

from model.mutations import Mutation

MEMORY, OBSERVATIONS, WATCHES = (
    f"operator/elasticjob_operator/{name}.py" for name in ("memory", "job/observations", "cluster/watch_times")
)
LOSSES = "core/elasticjob/rendezvous/losses.py"
TESTS, CORE_TESTS = "tests/unit/operator", "tests/unit/core/rendezvous"

MUTATIONS = (
    Mutation(
        "metrics: a new leader counts the seconds of those before",
        MEMORY,
        "            Times(counted=now),\n",
        "            Times(counted=0.0),\n",
        f"{TESTS}/test_reconciler.py",
    ),
    Mutation(
        "metrics: a suspended job loses time",
        OBSERVATIONS,
        " or (report.suspended and not closed):",
        ":",
        f"{TESTS}/job/test_observations.py",
    ),
    Mutation(
        "metrics: the round after a suspension took all of it",
        OBSERVATIONS,
        " or (report.suspended and report.before.rendezvous.phase is FORMING)",
        "",
        f"{TESTS}/job/test_observations.py",
    ),
    Mutation(
        "metrics: a silence begins when it is noticed",
        OBSERVATIONS,
        "    if cause != Loss.NO_ANSWER:\n        return heard\n",
        "    return heard\n",
        f"{TESTS}/job/test_observations.py",
    ),
    Mutation(
        "metrics: a failure is counted at each step",
        OBSERVATIONS,
        "    if state.restarts > before.restarts:\n        found.append(Observation(Metric.RESTARTS, state.restarts - "
        "before.restarts))\n",
        "    if state.restarts:\n        found.append(Observation(Metric.RESTARTS, state.restarts))\n",
        f"{TESTS}/job/test_observations.py",
    ),
    Mutation(
        "metrics: an end is counted at each step",
        OBSERVATIONS,
        "    if state.ended and state.outcome is not before.rendezvous.outcome:\n",
        "    if state.ended:\n",
        f"{TESTS}/job/test_observations.py",
    ),
    Mutation(
        "metrics: what a worker writes becomes a label",
        LOSSES,
        "    return Cause(cause) if cause in set(Cause) else RoundCause.OTHER\n",
        "    return cause\n",
        f"{CORE_TESTS}/test_causes.py",
    ),
    Mutation(
        "metrics: a loss has another's word",
        LOSSES,
        "Loss.TRAINER_HUNG, why",
        "Loss.NO_ANSWER, why",
        f"{CORE_TESTS}/test_causes.py",
    ),
    Mutation(
        "metrics: the watch that began last speaks for all",
        WATCHES,
        "min(self._began.items()",
        "max(self._began.items()",
        f"{TESTS}/cluster/test_watch_times.py",
    ),
)
