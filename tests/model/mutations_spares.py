# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns spares and the ranks of who stays, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.rank_order:_keeping_ranks": (
            replace(
                "spares: survivors move up, and newcomers come last",
                "ranks.get(one.member, size) < size",
                "ranks.get(one.member, size) < 0",
            ),
        ),
        "elasticjob.rendezvous.roster:pods_to_create": (
            replace("spares: no pods are made for them", "(*roster.missing, *roster.missing_spares)", "roster.missing"),
        ),
        "elasticjob.rendezvous.roster:roster_of": (
            replace("spares: they have places", "*others[:free]", "*others[:free + spec.spares]"),
            replace(
                "spares: they are sent away as surplus", "(worker for worker in left if worker not in spares)", "left"
            ),
            replace(
                "spares: a suspended job keeps them",
                "room + draining + spec.spares - len(kept) if room else 0",
                "room + draining + spec.spares - len(kept)",
            ),
            omit("spares: a member without a place becomes one", "*members[len(staying):]"),
        ),
        "elasticjob.rendezvous.roster:keeps_its_place": (
            replace(
                "spares: a killed torchrun that comes back in its pod is waited for",
                "may_join or lacks_last_word(state, worker)",
                "True",
            ),
            replace(
                "spares: one that waits goes before a member that may still join",
                "(worker.pod not in OUT or is_between_stages(worker)) and not worker.asks(RequestType.LEAVE)",
                "has_joined(state, worker)",
            ),
            replace(
                "spares: a member whose pod's status lags has no place",
                "(worker.pod not in OUT or is_between_stages(worker)) and not worker.asks(RequestType.LEAVE)",
                "has_joined(state, worker) or is_stopping(state, worker)",
            ),
        ),
        "elasticjob.rendezvous.roster:_in_turn": (
            omit("spares: a worker that is stuck has a place before one that is on its way", "worker.pod in STUCK"),
            omit("spares: who is slow has a place before who has joined", "worker.pod_key not in arrived"),
        ),
        "elasticjob.rendezvous.barrier:_too_few": (
            replace(
                "spares: a job fails although one may take the failing worker's place",
                "roster.wanted_with_spares",
                "roster.wanted",
            ),
        ),
        "elasticjob.rendezvous.barrier:_failing": (
            replace(
                "spares: that all of them fail too is not seen",
                "(*roster.awaited, *(worker for worker in roster.spares if not has_joined(state, worker)))",
                "roster.awaited",
            ),
        ),
        "elasticjob.rendezvous.step:Step.count_waiting": (
            replace(
                "spares: those that have not joined are counted",
                "sum(has_joined(self.state, worker) for worker in self.roster.spares)",
                "len(self.roster.spares)",
            ),
        ),
        "elasticjob.rendezvous.step:Step._moments": (
            replace(
                "spares: nobody looks when one may be forgiven",
                "(forgotten(failures) for failures in clocks.failures.values())",
                "()",
            ),
        ),
        "elasticjob.rendezvous.budget:forgive_failures": (
            omit(
                "spares: one that waits for good keeps its failures",
                "not (index in spares and step.now >= forgotten(known))",
            ),
        ),
        "elasticjob.rendezvous.reasons:_of_spares": (
            omit("spares: a replacement is told as one", "one.index != before.index"),
        ),
        "elasticjob.agreed:state_of": (
            omit("spares: a new operator does not know how many wait", "spares=status.spares", by="composed"),
        ),
        "elasticjob.agreed:rendezvous_spec": (
            omit("spares: the operator's rules know none", "spares=spec.spare_replicas", by="operator spares"),
        ),
        "elasticjob_operator.job.status:status_of": (
            replace("spares: the scale subresource counts them", "len(placed)", "len(alive)", by="operator spares"),
            replace(
                "spares: the ready ones count as ready workers",
                "report.ready.intersection(placed)",
                "report.ready",
                by="operator spares",
            ),
        ),
        "elasticjob_operator.objects.pods:render_pod": (
            omit(
                "spares: one is beside a member though there are other nodes", "if spare: ...", by="operator template"
            ),
        ),
        "elasticjob_operator.job.spares:are_held_back": (
            replace(
                "spares: a job that starts warm makes them before there is anything to import",
                "state.last_formed == 0",
                "False",
                by="operator spares",
            ),
            replace(
                "spares: a job whose script imports nothing never has any",
                "now - state.clocks.formed < LEARNING_SECONDS",
                "True",
                by="operator spares",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._expire": (
            omit("spares: one leaves when its trainer has waited long", "not beside", by="sidecar membership"),
        ),
    },
    by="core transcripts",
)
