# SPDX-License-Identifier: Apache-2.0
"""Where a worker's pod is placed, and when it leaves a lost node: what the operator adds to the template's own rules.
Each function changes the pod that it is given."""

from elasticjob.api import JOB_LABEL
from elasticjob.objects import Object

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# how long a pod stays on a lost node before it is replaced, after the 40 s until the node counts as lost
NODE_LOST_SECONDS = 30


def avoid(pod: Object, node: str) -> None:
    """Prefer all other nodes. This is not a requirement: in a full cluster the same node may be the only one with
    room."""
    elsewhere = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]}
    _prefer(pod, "nodeAffinity", {"weight": 100, "preference": elsewhere})


def exclude(pod: Object, nodes: list[str]) -> None:
    """Require other nodes, in addition to the template's own requirements. One of the template's terms has to match as
    a whole, so each gets the exclusion. An empty term matches no node, and stays as it is. The exclusion is by the
    node's name, as for DaemonSets: the label for the host name may differ from it."""
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    affinity = pod.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    required = of_nodes.get(REQUIRED) or {}
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *elsewhere]} if term and any(term.values()) else term
        for term in required.get("nodeSelectorTerms") or ()
    ]
    required = {**required, "nodeSelectorTerms": terms or [{"matchFields": elsewhere}]}
    pod["affinity"] = {**affinity, "nodeAffinity": {**of_nodes, REQUIRED: required}}


def keep_apart(pod: Object, job: str) -> None:
    """Prefer nodes without any pod of the job. The scheduler applies the rule in both directions, so members avoid the
    spare's node too. A spare that becomes a member keeps the rule, which moves no pod."""
    term = {"labelSelector": {"matchLabels": {JOB_LABEL: job}}, "topologyKey": "kubernetes.io/hostname"}
    _prefer(pod, "podAntiAffinity", {"weight": 100, "podAffinityTerm": term})


def node_lost_tolerations(given: list[Object]) -> list[Object]:
    keys = {toleration.get("key") for toleration in given}
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOST_SECONDS}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if key not in keys
    ]


def _prefer(pod: Object, kind: str, term: Object) -> None:
    """Adds a preference of this kind to those of the template."""
    affinity = pod.get("affinity") or {}
    known = affinity.get(kind) or {}
    pod["affinity"] = {**affinity, kind: {**known, PREFERRED: [*(known.get(PREFERRED) or ()), term]}}
