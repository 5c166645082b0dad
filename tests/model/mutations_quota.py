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
            replace(
                "quota: fewer than the minimum train",
                "allowed(shares) >= need.least",
                "allowed(shares) > 0 or not need.least",
            ),
        ),
        "elasticjob_operator.job.quota:share_of": (omit("quota: what Kueue has finished is waited for", "'Finished'"),),
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
