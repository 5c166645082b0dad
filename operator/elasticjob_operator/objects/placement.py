# SPDX-License-Identifier: Apache-2.0
"""Where a worker's pod is to go, and when it leaves a node that is lost: what the operator adds to the template's own
rules. Each changes the pod that it is given."""

from elasticjob.api import JOB_LABEL
from elasticjob.objects import Object

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# how long a pod may sit on a node that is not there before it is replaced, after the 40 s until the node counts as lost
NODE_LOST_SECONDS = 30


def avoid(pod: Object, node: str) -> None:
    """Prefer all other nodes. It is no requirement: where the cluster is full, that node is the one to come back to."""
    elsewhere = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]}
    affinity = pod.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = [*(of_nodes.get(PREFERRED) or ()), {"weight": 100, "preference": elsewhere}]
    pod["affinity"] = {**affinity, "nodeAffinity": {**of_nodes, PREFERRED: preferred}}


def keep_off(pod: Object, nodes: list[str]) -> None:
    """Require other nodes, beside what the template requires: one of its terms has to match as a whole, so each gets
    this. A term that asks for nothing matches no node, and stays as it is. By the name of the node and not by a label,
    as DaemonSets do it: the label of the host's name may be another."""
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
    """Prefer nodes without any pod of the job. The scheduler reads it both ways, so members keep away from the spare. A
    spare that becomes a member keeps it, which moves nothing."""
    term = {"labelSelector": {"matchLabels": {JOB_LABEL: job}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = pod.get("affinity") or {}
    of_pods = affinity.get("podAntiAffinity") or {}
    preferred = [*(of_pods.get(PREFERRED) or ()), {"weight": 100, "podAffinityTerm": term}]
    pod["affinity"] = {**affinity, "podAntiAffinity": {**of_pods, PREFERRED: preferred}}


def node_lost_tolerations(given: list[Object]) -> list[Object]:
    keys = {toleration.get("key") for toleration in given}
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOST_SECONDS}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if key not in keys
    ]
