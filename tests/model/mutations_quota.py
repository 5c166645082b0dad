"""Seeded mistakes in what concerns jobs that are admitted as gangs, for `make mutants`; see `model.mutations`."""

from model.mutations import Mutation

OPERATOR = "operator/elasticjob_operator"
QUOTA, GANG = f"{OPERATOR}/job/quota.py", f"{OPERATOR}/actions/gang.py"
PLANNED, DONE = "tests/unit/operator/job/test_quota.py", "tests/unit/operator/actions/test_gang.py"

MUTATIONS = (
    Mutation(
        "quota: it goes back while pods are leaving",
        QUOTA,
        " - max(there.alive, kept) - there.leaving\n",
        " - max(there.alive, kept)\n",
        PLANNED,
    ),
    Mutation(
        "quota: what is lost is given back before its workers have gone",
        QUOTA,
        "min(share.held, unused, share.held if share.lost else excess)",
        "share.held if share.lost else min(share.held, unused, excess)",
        PLANNED,
    ),
    Mutation(
        "quota: fewer than the minimum train",
        QUOTA,
        "    return allowed(shares) >= need.least\n",
        "    return allowed(shares) > 0 or not need.least\n",
        PLANNED,
    ),
    Mutation(
        "quota: what Kueue has finished is waited for",
        QUOTA,
        'for type in ("Finished", "Evicted") if',
        'for type in ("Evicted",) if',
        PLANNED,
    ),
    Mutation(
        "quota: what is set aside for an admission check is changed, which Kueue refuses for ever",
        QUOTA,
        "(in_its_queue and not share.reserved)",
        "in_its_queue",
        PLANNED,
    ),
    Mutation(
        "quota: what Kueue refuses is asked for again at once",
        GANG,
        "        if plan.create and not self._refusals.due([ASK], time.monotonic()):\n",
        "        if False:\n",
        DONE,
    ),
    Mutation(
        "quota: a later operator leaves the Workloads of a job that is no gang any more",
        GANG,
        "        unknown = self._shares is None and ask_of(job) is not None\n",
        "        unknown = False\n",
        DONE,
    ),
)
