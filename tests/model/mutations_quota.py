# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns jobs that are admitted as gangs, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob_operator.job.quota:_given_back": (
            omit("quota: it goes back while pods are leaving", "there.leaving"),
            replace(
                "quota: what is lost is given back before its workers have gone",
                "min(share.held, unused, share.held if share.lost else excess)",
                "share.held if share.lost else min(share.held, unused, excess)",
            ),
        ),
        "elasticjob_operator.job.quota:trains": (
            replace("quota: fewer than the minimum train", "total >= need.least", "total > 0 or not need.least"),
            replace(
                "quota: a higher minimum stops a round that stands",
                "total >= need.least or 0 < need.members <= total",
                "total >= need.least",
            ),
            replace(
                "quota: a round goes on with fewer than its members", "0 < need.members <= total", "0 < need.members"
            ),
        ),
        "elasticjob_operator.job.quota:_of_those_there": (
            omit("quota: while it is unknown, pods that nobody has made count", "is_current(state, worker)"),
            omit("quota: while it is unknown, workers that were told to leave stay", "worker.member in leaving"),
            replace("quota: while it is unknown, a round grows", "members or stay", "stay"),
        ),
        "elasticjob_operator.actions.decided_pods:DecidedPods._make": (
            omit(
                "quota: while it is unknown, pods are made",
                "report.of(Allowance).unknown",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.job.share:share_of": (omit("quota: what Kueue has finished is waited for", "'Finished'"),),
        "elasticjob_operator.job.quota:_may_ask": (
            omit(
                "quota: what is set aside for an admission check is changed, which Kueue refuses for ever",
                "not share.reserved",
            ),
        ),
        "elasticjob_operator.actions.gang:Gang.keep": (
            replace(
                "quota: what Kueue refuses is asked for again at once",
                "plan.create and not self._refusals.due([ASK], time.monotonic())",
                "False",
                by="operator gang",
            ),
        ),
        "elasticjob_operator.job.quota:assigned": (
            omit("quota: new pods take what others have", "left.subtract(...)"),
        ),
        "elasticjob_operator.objects.admitted:admitted": (
            omit("quota: flavors that differ let no pod be made", "not may_differ", by="operator admitted"),
        ),
        "elasticjob_operator.objects.pods:render_pod": (
            omit("quota: pods get nothing of their flavor", "if admitted: ...", by="operator admitted"),
        ),
        "elasticjob_operator.actions.gang:Gang.admissions": (
            omit("quota: pods that are going take what another may have", "pod.deleting", by="operator gang"),
        ),
        "elasticjob_operator.actions.gang:Gang._may_have_some": (
            replace(
                "quota: a later operator leaves the Workloads of a job that is no gang any more",
                "self._shares is None and ask_of(job) is not None",
                "False",
                by="operator gang",
            ),
        ),
    },
    by="operator quota",
)
