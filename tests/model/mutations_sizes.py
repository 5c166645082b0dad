# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns the sizes that a round may have, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.barrier:judge": (
            replace("sizes: a round has all that have joined", "stayers_first[:size]", "stayers_first"),
        ),
        "elasticjob.rendezvous.decide:_would_grow": (
            replace(
                "sizes: a round ends for who finds no place in the next",
                "largest_size(step.spec, step.state, members + len(newcomers)) > members",
                "bool(newcomers)",
            ),
        ),
        "elasticjob.rendezvous.sizes:min_members": (
            replace(
                "sizes: minReplicas may form a round that is none of them",
                "min((size for size in spec.sizes if size >= spec.min_replicas), default=spec.replicas + 1)",
                "spec.min_replicas",
            ),
            replace(
                "sizes: where none is as large as minReplicas, as quota leaves too few, smaller ones will do",
                "spec.replicas + 1",
                "spec.replicas",
            ),
        ),
        "elasticjob.rendezvous.sizes:largest_size": (
            omit("sizes: they bind the last workers of a job that is about to end", "state.done"),
        ),
        "elasticjob.agreed:rendezvous_spec": (
            omit(
                "sizes: the operator's rules know none",
                "sizes=spec.sizes.up_to(max(spec.replicas, spec.min_replicas)) if spec.sizes else ()",
            ),
        ),
    },
    by="core sizes",
)
