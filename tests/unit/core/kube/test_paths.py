# SPDX-License-Identifier: Apache-2.0
"""Where each kind is, and what a request is called."""

import pytest

from elasticjob.kube.paths import JOBS, NODES, PODS, WORKLOADS, verb_of


def test_the_path_of_each_kind() -> None:
    assert PODS.all("ml") == "/api/v1/namespaces/ml/pods"
    assert PODS.one("a", "ml", "log") == "/api/v1/namespaces/ml/pods/a/log"
    assert NODES.one("n") == "/api/v1/nodes/n"
    assert JOBS.root == "/apis/elasticjob.io/v1alpha1"
    assert JOBS.one("digits", "ml", "status") == f"{JOBS.root}/namespaces/ml/elasticjobs/digits/status"
    assert WORKLOADS.all() == "/apis/kueue.x-k8s.io/v1beta2/workloads"
    assert (PODS.api_version, WORKLOADS.api_version) == ("v1", "kueue.x-k8s.io/v1beta2")


def test_a_name_leads_to_no_other_object() -> None:
    assert JOBS.one("a/../b?c", "m/l").endswith("/namespaces/m%2Fl/elasticjobs/a%2F..%2Fb%3Fc")


@pytest.mark.parametrize(
    ("method", "path", "query", "verb"),
    [
        ("GET", PODS.all(), {}, "list"),
        ("GET", PODS.all("ml"), {"labelSelector": "a"}, "list"),
        ("GET", PODS.all("ml"), {"watch": "true"}, "watch"),
        ("GET", PODS.one("a", "ml"), {}, "get"),
        ("GET", PODS.one("a", "ml", "log"), {}, "get"),
        ("GET", NODES.one("a"), {}, "get"),
        ("GET", "/api/v1/namespaces", {}, "list"),
        ("GET", "/api/v1/namespaces/ml", {}, "get"),
        ("GET", JOBS.all(), {}, "list"),
        ("GET", JOBS.one("a", "ml"), {}, "get"),
        ("GET", JOBS.root, {}, "get"),
        ("POST", PODS.all("ml"), {}, "create"),
        ("PUT", PODS.one("a", "ml"), {}, "update"),
        ("PATCH", PODS.one("a", "ml"), {}, "patch"),
        ("DELETE", PODS.one("a", "ml"), {}, "delete"),
    ],
)
def test_the_verb_of_a_request(method: str, path: str, query: dict[str, str], verb: str) -> None:
    assert verb_of(method, path, query) == verb
