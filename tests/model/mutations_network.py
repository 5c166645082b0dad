# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns a network that keeps pods apart, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.losses:explained": (
            replace(
                "network: a failure beside it counts",
                "any(worker.cut_off and worker.member in state.participants for worker in workers)",
                "False",
                by="core transcripts",
            ),
            omit(
                "network: who is no member excuses the members",
                "worker.member in state.participants",
                by="core transcripts",
            ),
        ),
        "elasticjob_operator.job.network:network_of": (
            replace(
                "network: it is announced again while the status waits to be written",
                "bool(last.sentence) if last is not None else says_so(report.before)",
                "says_so(report.before)",
                by="operator reconciler",
            ),
            replace(
                "network: a new operator takes a fault for over until it has stood for as long again",
                "told and last is None",
                "False",
            ),
            omit("network: while one is cut off, who is suspected is so at once", "last is None"),
        ),
        "elasticjob_operator.job.measurements:_seconds": (
            replace(
                "network: a round whose pods do not reach each other counts as training",
                "says_so(report.before)",
                "False",
                by="operator measurements",
            ),
        ),
        "elasticjob_operator.job.network:Suspicion.stands": (
            omit("network: a worker that does not ack is taken to live", "self.acked"),
        ),
        "elasticjob_operator.job.network:_kept": (
            replace(
                "network: a suspicion ends with its round",
                "_moments(state, one, suspected=False)",
                "(state.clocks.opened,)",
            ),
        ),
    },
    by="operator network",
)
