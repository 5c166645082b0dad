"""Seeded mistakes in what the job's policy for failures says and does; see `mutations`."""

from model.mutations import AGREED, BACKOFF, DECIDE, LOSSES, SIDECAR, Mutation

POLICY = "core/elasticjob/rendezvous/policy.py"
STORIES = "tests/unit/core/rendezvous/test_policy.py"
READING_TESTS = "tests/unit/operator/job/test_failure_policy.py"
READING = "operator/elasticjob_operator/job/failure_policy.py"

MUTATIONS = (
    Mutation(
        "a failure that ends the job ends it before it is known what else has happened",
        POLICY,
        "    if state.matched in found and awaits_members(state, step.roster):\n        found.remove(state.matched)\n",
        "",
        STORIES,
    ),
    Mutation(
        "of two rules that match the later one decides",
        POLICY,
        "    return min(found, key",
        "    return max(found, key",
        STORIES,
    ),
    Mutation(
        "how a container ended before the round is taken for what broke it",
        POLICY,
        " and worker.index not in state.done and _has_stopped(state, worker):",
        " and worker.index not in state.done:",
        STORIES,
    ),
    Mutation(
        "how a spare's trainer ended once ends the job when its node is lost",
        POLICY,
        " and lost.cause not in RUNS_ON\n",
        "\n",
        STORIES,
    ),
    Mutation(
        "a failure counts though the policy ignores it",
        DECIDE,
        "    if not failure or policy.is_ignored(step):\n",
        "    if not failure:\n",
        STORIES,
    ),
    Mutation(
        "a lost pod does not count though the policy says so",
        LOSSES,
        "        return not _ended_as_suspended(spec, state, worker)\n",
        "        return worker.pod in AT_FAULT and _failed_by_itself(spec, state, worker)\n",
        STORIES,
    ),
    Mutation(
        "pods that fail before any round count though the policy ignores it",
        BACKOFF,
        "before_any_round + (not ignored), now",
        "before_any_round + 1, now",
        STORIES,
    ),
    Mutation(
        "a new operator does not know what the policy says of a failure that waits",
        AGREED,
        "        matched=_matched(agreed.matched_rule),\n",
        "",
        "tests/unit/operator/job/test_status.py",
    ),
    Mutation(
        "the exit code of a pod that is deleted is taken for a failure",
        READING,
        "    failed = {} if stopped else failures_of(",
        "    failed = failures_of(",
        READING_TESTS,
    ),
    Mutation(
        "an exit code of before the trainer joined again is taken for a new one",
        READING,
        "    return told or (_of_container(crash_before(status)) if starts else None)\n",
        "    return told or _of_container(crash_before(status))\n",
        READING_TESTS,
    ),
    Mutation(
        "how the trainer ended earlier is taken for the end of a torchrun that leaves",
        READING,
        "    starts = request is None or request.cause == Cause.STARTED\n",
        "    starts = request is None or request.type is RequestType.LEAVE or request.cause == Cause.STARTED\n",
        READING_TESTS,
    ),
    Mutation(
        "a container that ends beside the trainer is taken for a failure of the training",
        READING,
        "for status in () if _runs(its) else containers(pod):",
        "for status in containers(pod):",
        READING_TESTS,
    ),
    Mutation(
        "a sidecar does not tell the exit code of what failed",
        SIDECAR,
        "            exit_code=exit_code,\n            last_call",
        "            last_call",
        "tests/unit/sidecar/test_over_the_wire.py",
    ),
)
