"""Seeded mistakes in what concerns ranks laid out by topology, for `make mutants`; see `model.mutations`."""

from model.mutations import AGREED, RANKS, Mutation

TESTS, OPERATOR = "tests/unit/core/rendezvous/test_rank_order.py", "operator/elasticjob_operator"
OBSERVED, RECONCILED = "tests/unit/operator/job/test_topology.py", "tests/unit/operator/test_reconciler.py"

MUTATIONS = (
    Mutation(
        "ranks: they know nothing of the topology",
        RANKS,
        "    return by_topology(survivors_first, len(spec.rank_order))\n",
        "    return tuple(survivors_first)\n",
        TESTS,
    ),
    Mutation(
        "ranks: newcomers come among the survivors by index",
        RANKS,
        "key=lambda one: (ranks.get(one.member, len(ranks)), one.index)",
        "key=lambda one: one.index",
        TESTS,
    ),
    Mutation(
        "ranks: racks of two zones that are named alike are one",
        RANKS,
        "values[: depth + 1]",
        "values[depth : depth + 1]",
        TESTS,
    ),
    Mutation(
        "ranks: those of one node are apart",
        RANKS,
        "for depth in range(labels + 1)]\n",
        "for depth in range(labels)]\n",
        TESTS,
    ),
    Mutation(
        "ranks: who is nobody knows where comes among the others",
        RANKS,
        '(domain[-1] == "" and first[domain] > 0, first[domain])',
        "first[domain]",
        TESTS,
    ),
    Mutation(
        "ranks: the first survivor loses rank 0 where its node has no label",
        RANKS,
        'domain[-1] == "" and first[domain] > 0',
        'domain[-1] == ""',
        TESTS,
    ),
    Mutation(
        "ranks: a ring has an end",
        RANKS,
        "chain(there[1:], there[:1])",
        "chain(there[1:], there[-1:])",
        TESTS,
    ),
    Mutation(
        "ranks: nobody is told how many neighbours are apart",
        "core/elasticjob/rendezvous/reasons.py",
        "        return in_words(spec, members)\n",
        '        return ""\n',
        TESTS,
    ),
    Mutation(
        "ranks: the operator's rules know no keys",
        AGREED,
        "        rank_order=spec.rank_order.topology_keys if spec.rank_order else (),\n",
        "",
        TESTS,
    ),
    Mutation(
        "ranks: a node's labels are read once",
        f"{OPERATOR}/job/observe.py",
        " and known.node == node:",
        " and known.node[0] == taints:",
        OBSERVED,
    ),
    Mutation(
        "ranks: the workers are read without the keys",
        f"{OPERATOR}/memory.py",
        ", policy=policy, topology_keys=keys\n",
        ", policy=policy\n",
        RECONCILED,
    ),
    Mutation(
        "ranks: a node that is gone keeps its labels",
        f"{OPERATOR}/cluster/cache.py",
        "            self._labels.pop(name, None)\n",
        "            pass\n",
        "tests/unit/operator/cluster/test_cache.py",
    ),
)
