"""Seeded mistakes in what concerns nodes that are about to go, for `make mutants`; see `model.mutations`."""

from model.mutations import BARRIER, DECIDE, ROSTER, Mutation

TESTS, OPERATOR = "tests/unit/core/rendezvous/test_draining.py", "operator/elasticjob_operator"
DRAIN, OBSERVED = f"{OPERATOR}/job/drain.py", "tests/unit/operator/job/test_drain.py"

MUTATIONS = (
    Mutation(
        "draining: nobody comes for a member",
        ROSTER,
        "    draining = sum(worker.draining for worker in staying)\n",
        "    draining = 0\n",
        TESTS,
    ),
    Mutation(
        "draining: a round ends for a worker whose own node goes",
        ROSTER,
        "if not one.draining and (stands",
        "if (stands",
        TESTS,
    ),
    Mutation(
        "draining: a member leaves before anybody has come for it",
        ROSTER,
        "(stands or one.pod_key in arrived)][:draining]",
        "True][:draining]",
        TESTS,
    ),
    Mutation(
        "draining: who has come has no place, and its member stays",
        ROSTER,
        "    if not stands:  # those",
        "    if False:  # those",
        TESTS,
    ),
    Mutation(
        "draining: the highest rank is relieved, wherever it is",
        ROSTER,
        "(worker.draining, ranks[worker.member])",
        "ranks[worker.member]",
        TESTS,
    ),
    Mutation(
        "draining: a spare stays where the node goes",
        ROSTER,
        "[worker for worker in left if not worker.draining]",
        "left",
        TESTS,
    ),
    Mutation(
        "draining: a worker whose node goes has a place before others",
        ROSTER,
        "worker.pod in STUCK, worker.draining, worker.index",
        "worker.pod in STUCK, worker.index",
        TESTS,
    ),
    Mutation(
        "draining: who is relieved is told so a step later",
        DECIDE,
        "    send_away_excess(step)  # those in whose places others come learn at once that they are to leave\n",
        "",
        TESTS,
    ),
    Mutation(
        "draining: who is relieved where a round breaks is told so a step later",
        DECIDE,
        "    _send_away(step, roster_of(step.spec, moved(step.state, ROUND_BROKEN), step.workers))\n",
        "",
        TESTS,
    ),
    Mutation(
        "draining: the next round begins before rank 0 has saved",
        BARRIER,
        "    if arrived and not _saves(state, workers):\n",
        "    if arrived:\n",
        TESTS,
    ),
    Mutation(
        "draining: rank 0 is waited for though it has left",
        BARRIER,
        "if not worker.deleting and not worker.asks(RequestType.LEAVE)\n",
        "if not worker.deleting\n",
        TESTS,
    ),
    Mutation(
        "draining: a cordon says nothing before its taint comes",
        DRAIN,
        '    if spec.get("unschedulable"):\n',
        "    if False:\n",
        OBSERVED,
    ),
    Mutation(
        "draining: a taint that only advises counts",
        DRAIN,
        '        if one["effect"] in KEEP_AWAY\n',
        "",
        OBSERVED,
    ),
    Mutation(
        "draining: a pod that tolerates the taint goes too",
        DRAIN,
        " and not any(_tolerates(by, one) for by in tolerations)",
        "",
        OBSERVED,
    ),
    Mutation(
        "draining: a node's taints are read once",
        f"{OPERATOR}/job/observe.py",
        " and known.node == node:",
        ":",
        OBSERVED,
    ),
    Mutation(
        "draining: the grace begins anew with each look",
        DRAIN,
        "known.get(one.pod_key, now)",
        "now",
        OBSERVED,
    ),
    Mutation(
        "draining: the budget stays as it is until it is looked at again",
        f"{OPERATOR}/actions/grants.py",
        "        if asked == self._asked and left > 0:\n",
        "        if asked[0] == self._asked[0] and left > 0:\n",
        "tests/unit/operator/actions/test_grants.py",
    ),
    Mutation(
        "draining: whoever changes a node wakes no job",
        f"{OPERATOR}/cluster/cache.py",
        "        return [key for key, view in self._views.items() if any(_is_on(name, pod)",
        "        return [key for key, view in self._views.items() if not any(_is_on(name, pod)",
        "tests/unit/operator/cluster/test_cache.py",
    ),
)
