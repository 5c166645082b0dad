# SPDX-License-Identifier: Apache-2.0
"""The NetworkPolicy of docs/recipes.md opens what the pod of a worker, as it is rendered, needs, and nothing to others.

What a network plug-in makes of it is not shown: the test cluster's enforces none.
"""

import pytest
import yaml

from elasticjob.api import HEALTH_PORT, TUNNEL_PORT, ElasticJobSpec
from elasticjob.objects import Object
from elasticjob_operator.objects.pods import SidecarImage, render_pod
from support.doc_pages import manifests
from support.operator_objects import job

(POLICY,) = (
    body["spec"] for block in manifests() for body in yaml.safe_load_all(block.text) if body["kind"] == "NetworkPolicy"
)
WORKER: dict[str, str] = render_pod(
    job(), ElasticJobSpec.parse(job()["spec"]), 0, 0, SidecarImage("sidecar:1", "Always"), batch="9f3c01d2"
)["metadata"]["labels"]
STRANGER = {"app": "notebook"}
OURS, SYSTEM, MONITORING = "ml", "kube-system", "monitoring"
DNS = {"k8s-app": "kube-dns"}


def selects(selector: Object, labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    wanted = [one["key"] for one in selector.get("matchExpressions", ()) if one["operator"] == "Exists"]
    assert len(wanted) == len(selector.get("matchExpressions", ())), "no other operator is understood here"
    return all(key in labels for key in wanted) and selector.get("matchLabels", {}).items() <= labels.items()


def is_open(rules: list[Object], whom: str, labels: dict[str, str], namespace: str, port: int, kind: str) -> bool:
    """To or from a pod with `labels` in `namespace`, at `port`."""

    def is_peer(peer: Object) -> bool:
        if "ipBlock" in peer:
            return False
        there = peer.get("namespaceSelector")
        place = namespace == OURS if there is None else selects(there, {"kubernetes.io/metadata.name": namespace})
        return place and selects(peer.get("podSelector", {}), labels)

    return any(
        any(map(is_peer, rule[whom])) and (not rule.get("ports") or {"protocol": kind, "port": port} in rule["ports"])
        for rule in rules
    )


@pytest.mark.parametrize(
    ("whom", "labels", "namespace", "port", "kind", "opens"),
    [
        ("from", WORKER, OURS, TUNNEL_PORT, "TCP", True),
        ("from", WORKER, OURS, 45000, "TCP", True),
        ("from", WORKER, "other", TUNNEL_PORT, "TCP", False),
        ("from", STRANGER, OURS, TUNNEL_PORT, "TCP", False),
        ("from", STRANGER, MONITORING, HEALTH_PORT, "TCP", True),
        ("from", STRANGER, MONITORING, TUNNEL_PORT, "TCP", False),
        ("to", WORKER, OURS, TUNNEL_PORT, "TCP", True),
        ("to", DNS, SYSTEM, 53, "UDP", True),
        ("to", DNS, SYSTEM, 53, "TCP", True),
        ("to", STRANGER, OURS, 80, "TCP", False),
    ],
)
def test_the_policy_for_closed_namespaces_opens_what_workers_need(
    whom: str, labels: dict[str, str], namespace: str, port: int, kind: str, opens: bool
) -> None:
    assert selects(POLICY["podSelector"], WORKER)
    assert not selects(POLICY["podSelector"], STRANGER)
    rules = POLICY["ingress" if whom == "from" else "egress"]
    assert is_open(rules, whom, labels, namespace, port, kind) is opens


def test_the_policy_for_closed_namespaces_leaves_a_way_to_the_api_server() -> None:
    assert [rule["ports"] for rule in POLICY["egress"] if "ipBlock" in rule["to"][0]] == [
        [{"protocol": "TCP", "port": 6443}]
    ]
