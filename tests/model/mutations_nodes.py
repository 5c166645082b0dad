# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns nodes on which workers fail, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob_operator.actions.worker_pods:WorkerPods.create": (
            replace(
                "a pod does not keep off the node that rejected the one before",
                "nodes_of_indices(self._view(job), rejecting)",
                "nodes_of_indices(self._view(job))",
                by="operator reconciler",
            ),
        ),
        "elasticjob.rendezvous.losses:lost_workers": (
            omit("nodes: what the policy ignores is a failure of the node", "not ignored", by="core failed pods"),
            omit("nodes: whoever deletes a pod makes its node a bad one", "worker.unready", by="core failed pods"),
            replace(
                "nodes: a node of which nothing is heard has not failed",
                "Lost(*pod_key, Loss.UNRESPONSIVE, ..., speaks_of_node=True)",
                "Lost(*pod_key, Loss.UNRESPONSIVE, ...)",
                by="core failed pods",
            ),
        ),
        "elasticjob.rendezvous.step:Step.note_end": (
            omit(
                "nodes: a loss is told once more as the failure by which the round has ended",
                "index not in self.lost",
                by="core failed pods",
            ),
            omit(
                "nodes: a hang is a failure of the node of whoever is named for it",
                "first.cause != RoundCause.TRAINING_HUNG",
                by="core failed pods",
            ),
        ),
        "elasticjob_operator.job.bad_nodes:_after": (
            omit(
                "nodes: all that is lost with a node counts one by one",
                "if one.failures and one.round == round and (not _replaces(job, pod, one.pod)): ...",
            ),
            omit(
                "nodes: a replacement that fails where the pod before it did counts for nothing",
                "not _replaces(job, pod, one.pod)",
            ),
        ),
        "elasticjob_operator.job.bad_nodes:noted": (
            replace(
                "nodes: a failure counts before it is judged",
                "_after(job, one, pod, round, now) if judged else _changed(one, suspect=pod)",
                "_after(job, one, pod, round, now)",
            ),
            replace("nodes: a failure that is explained counts", "decision.state.restarts > before.restarts", "True"),
        ),
        "elasticjob_operator.job.bad_nodes:_remembered": (
            replace("nodes: nothing is forgotten", "_age(one, now) < limits.for_seconds", "True"),
        ),
        "elasticjob_operator.job.bad_nodes:freed": (
            replace(
                "nodes: a pod waits for ever for another node than one that would do by now",
                "replace(one, outdated=True) if one.pod_key in late else one",
                "one",
            ),
            omit(
                "nodes: a pod that waits for quota loses its place in the queue for a node that would do by now",
                "wait.reason is Reason.UNSCHEDULABLE",
            ),
        ),
        "elasticjob_operator.objects.placement:keep_off": (
            replace(
                "nodes: of the terms that a template requires one lets the pod onto the node",
                "any(term.values())",
                "term.get('matchFields')",
                by="operator template",
            ),
        ),
        "elasticjob_operator.actions.worker_pods:WorkerPods._create": (
            replace(
                "nodes: it is avoided in the status only",
                "{*nodes.get(str(pod_key[0]), ()), *avoided}.difference(keep_off)",
                "nodes.get(str(pod_key[0]), ())",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.job.bad_nodes:BadNodes.again": (
            replace(
                "nodes: it is forgotten only when something happens",
                "None if ended else forgotten_in(report.spec, report.of(BadNodesFound).record, report.now)",
                "None",
                by="operator reconciler",
            ),
        ),
    },
    by="operator bad nodes",
)
