# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what the job's policy for failures says and does; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.policy:fail_by_policy": (
            omit(
                "a failure that ends the job ends it before it is known what else has happened",
                "if state.matched in found and awaits_members(state, step.roster): ...",
            ),
        ),
        "elasticjob.rendezvous.policy:_first": (
            replace("of two rules that match the later one decides", "min", "max"),
        ),
        "elasticjob.rendezvous.policy:_matched_members": (
            omit("how a container ended before the round is taken for what broke it", "_has_stopped(state, worker)"),
        ),
        "elasticjob.rendezvous.policy:_matched_others": (
            omit("how a spare's trainer ended once ends the job when its node is lost", "lost.cause not in RUNS_ON"),
        ),
        "elasticjob.rendezvous.budget:is_within_budget": (
            omit("a failure counts though the policy ignores it", "policy.is_ignored(step)"),
        ),
        "elasticjob.rendezvous.losses:_training_failed": (
            replace(
                "a lost pod does not count though the policy says so",
                "not _ended_as_suspended(spec, state, worker)",
                "worker.pod in AT_FAULT and _failed_by_itself(spec, state, worker)",
            ),
        ),
        "elasticjob.rendezvous.backoff:after_one_more": (
            replace("pods that fail before any round count though the policy ignores it", "not ignored", "1"),
        ),
        "elasticjob.agreed:state_of": (
            omit(
                "a new operator does not know what the policy says of a failure that waits",
                "matched=_matched(agreed.matched_rule)",
                by="operator status",
            ),
        ),
        "elasticjob_operator.job.failure_policy:matched_rule": (
            replace(
                "the exit code of a pod that is deleted is taken for a failure",
                "{} if stopped else failures_of(pod, trainer, request, detail)",
                "failures_of(pod, trainer, request, detail)",
                by="operator failure policy",
            ),
        ),
        "elasticjob_operator.job.failure_policy:_of_trainer": (
            replace(
                "an exit code of before the trainer joined again is taken for a new one",
                "_of_end(container.crashed_before) if starts else None",
                "_of_end(container.crashed_before)",
                by="operator failure policy",
            ),
            replace(
                "how the trainer ended earlier is taken for the end of a torchrun that leaves",
                "request is None or request.cause == RequestCause.STARTED",
                "request is None or request.type is RequestType.LEAVE or request.cause == RequestCause.STARTED",
                by="operator failure policy",
            ),
        ),
        "elasticjob_operator.job.failure_policy:failures_of": (
            replace(
                "a container that ends beside the trainer is taken for a failure of the training",
                "() if its.runs else pod.containers",
                "pod.containers",
                by="operator failure policy",
            ),
        ),
        "elasticjob_sidecar.membership.model:told_of": (
            omit(
                "a sidecar does not tell the exit code of what failed",
                "'exit_code': failure.exit_code",
                by="sidecar over the wire",
            ),
        ),
    },
    by="core policy",
)
