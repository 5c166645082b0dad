"""Seeded mistakes in what concerns nodes on which workers fail, for `make mutants`; see `model.mutations`."""

from model.mutations import LOSSES, STEP, Mutation

OPERATOR = "operator/elasticjob_operator"
NODES, PODS = f"{OPERATOR}/job/bad_nodes.py", f"{OPERATOR}/objects/pods.py"
FOUND, KEPT = "tests/unit/core/rendezvous/test_failed_pods.py", "tests/unit/operator/job/test_bad_nodes.py"
MADE, WHOLE = "tests/unit/operator/objects/test_template.py", "tests/unit/operator/test_reconciler.py"

MUTATIONS = (
    Mutation(
        "nodes: what the policy ignores is a failure of the node",
        LOSSES,
        "speaks_of_node=not ignored and (failed_by_itself",
        "speaks_of_node=(failed_by_itself",
        FOUND,
    ),
    Mutation(
        "nodes: whoever deletes a pod makes its node a bad one",
        LOSSES,
        "or (worker.deleting and worker.unready)",
        "or worker.deleting",
        FOUND,
    ),
    Mutation(
        "nodes: a node of which nothing is heard has not failed",
        LOSSES,
        "was_member, speaks_of_node=True)\n",
        "was_member)\n",
        FOUND,
    ),
    Mutation(
        "nodes: a loss is told once more as the failure by which the round has ended",
        STEP,
        "first.counted and index not in self.lost and",
        "first.counted and",
        FOUND,
    ),
    Mutation(
        "nodes: a hang is a failure of the node of whoever is named for it",
        STEP,
        " and first.cause != RoundCause.TRAINING_HUNG:",
        ":",
        FOUND,
    ),
    Mutation(
        "nodes: all that is lost with a node counts one by one",
        NODES,
        "    if one.failures and one.round == round and not _replaces(job, pod, one.pod):\n        return one\n",
        "",
        KEPT,
    ),
    Mutation(
        "nodes: a replacement that fails where the pod before it did counts for nothing",
        NODES,
        " and not _replaces(job, pod, one.pod):",
        ":",
        KEPT,
    ),
    Mutation(
        "nodes: a failure counts before it is judged",
        NODES,
        "_after(job, one, pod, round, now) if judged else _changed(one, suspect=pod)",
        "_after(job, one, pod, round, now)",
        KEPT,
    ),
    Mutation(
        "nodes: a failure that is explained counts",
        NODES,
        "        counted = decision.state.restarts > before.restarts\n",
        "        counted = True\n",
        KEPT,
    ),
    Mutation(
        "nodes: nothing is forgotten",
        NODES,
        "        if _age(one, now) < limits.for_seconds:\n",
        "        if True:\n",
        KEPT,
    ),
    Mutation(
        "nodes: a pod waits for ever for another node than one that would do by now",
        NODES,
        "replace(one, outdated=True) if one.pod_key in late else one",
        "one",
        KEPT,
    ),
    Mutation(
        "nodes: a pod that waits for quota loses its place in the queue for a node that would do by now",
        NODES,
        "if wait.reason is Reason.UNSCHEDULABLE and kept_off(pods[one])]",
        "if kept_off(pods[one])]",
        KEPT,
    ),
    Mutation(
        "nodes: of the terms that a template requires one lets the pod onto the node",
        PODS,
        "if any(term.values()) else term\n",
        "if term.get('matchFields') else term\n",
        MADE,
    ),
    Mutation(
        "nodes: it is avoided in the status only",
        f"{OPERATOR}/actions/worker_pods.py",
        "avoid={*nodes.get(str(index), ()), *avoided}.difference(keep_off),",
        "avoid=nodes.get(str(index), ()),",
        WHOLE,
    ),
    Mutation(
        "nodes: it is forgotten only when something happens",
        f"{OPERATOR}/reconciler.py",
        "        if forgotten is not None and not decision.state.ended:\n            yield LookAgain(forgotten)\n",
        "",
        WHOLE,
    ),
)
