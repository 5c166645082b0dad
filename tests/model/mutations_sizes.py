"""Seeded mistakes in what concerns the sizes that a round may have, for `make mutants`; see `model.mutations`."""

from model.mutations import AGREED, BARRIER, DECIDE, SIZES, Mutation

TESTS = "tests/unit/core/rendezvous/test_sizes.py"

MUTATIONS = (
    Mutation(
        "sizes: a round has all that have joined",
        BARRIER,
        "members=in_rank_order(spec, state, stayers_first[:size])",
        "members=in_rank_order(spec, state, stayers_first)",
        TESTS,
    ),
    Mutation(
        "sizes: a round ends for who finds no place in the next",
        DECIDE,
        "    return largest_size(step.spec, step.state, members + len(newcomers)) > members\n",
        "    return bool(newcomers)\n",
        TESTS,
    ),
    Mutation(
        "sizes: minReplicas may form a round that is none of them",
        SIZES,
        "    return min((size for size in spec.sizes if size >= spec.min_replicas), default=spec.replicas)\n",
        "    return spec.min_replicas\n",
        TESTS,
    ),
    Mutation(
        "sizes: they bind the last workers of a job that is about to end",
        SIZES,
        "    if state.done or not spec.sizes:\n        return workers\n",
        "    if not spec.sizes:\n        return workers\n",
        TESTS,
    ),
    Mutation(
        "sizes: the operator's rules know none",
        AGREED,
        "        sizes=spec.sizes.up_to(spec.replicas) if spec.sizes else (),\n",
        "",
        TESTS,
    ),
)
