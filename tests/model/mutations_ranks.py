# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns ranks laid out by topology, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.rank_order:in_rank_order": (
            replace(
                "ranks: they know nothing of the topology",
                "by_topology(survivors_first, len(spec.rank_order))",
                "tuple(survivors_first)",
            ),
            replace(
                "ranks: newcomers come among the survivors by index",
                "(ranks.get(one.member, len(ranks)), one.index)",
                "one.index",
            ),
        ),
        "elasticjob.rendezvous.rank_order:path_of": (
            replace(
                "ranks: racks of two zones that are named alike are one",
                "values[: depth + 1]",
                "values[depth : depth + 1]",
            ),
            replace("ranks: those of one node are apart", "range(labels + 1)", "range(labels)"),
        ),
        "elasticjob.rendezvous.rank_order:by_topology": (
            replace(
                "ranks: who is nobody knows where comes among the others",
                '(domain[-1] == "" and first[domain] > 0, first[domain])',
                "first[domain]",
            ),
            omit("ranks: the first survivor loses rank 0 where its node has no label", "first[domain] > 0"),
        ),
        "elasticjob.rendezvous.rank_order:crossings": (replace("ranks: a ring has an end", "there[:1]", "there[-1:]"),),
        "elasticjob.rendezvous.reasons:of_ranks": (
            replace("ranks: nobody is told how many neighbours are apart", "in_words(spec, members)", '""'),
        ),
        "elasticjob.agreed:rendezvous_spec": (
            omit(
                "ranks: the operator's rules know no keys",
                "rank_order=spec.rank_order.topology_keys if spec.rank_order else ()",
            ),
        ),
        "elasticjob_operator.job.observe:Observer._look": (
            replace(
                "ranks: a node's labels are read once",
                "known.node == node",
                "known.node[0] == taints",
                by="operator topology",
            ),
        ),
        "elasticjob_operator.memory:Memory.observer_of": (
            replace(
                "ranks: the workers are read without the keys",
                "spec.rank_order.topology_keys if spec.rank_order else ()",
                "()",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache._note_node": (
            replace(
                "ranks: a node that is gone keeps its labels",
                "self._nodes.pop(node.name, None)",
                "self._nodes.get(node.name)",
                by="operator cache",
            ),
        ),
    },
    by="core rank order",
)
