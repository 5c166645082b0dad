# SPDX-License-Identifier: Apache-2.0
"""What the API server itself keeps of an incarnation: its certificate, whoever writes."""

from collections.abc import Iterator
from typing import Any

import pytest

from elasticjob.api import API_VERSION
from support import ControlPlane, ControlPlaneError

WORKERS = "/apis/elasticjob.io/v1alpha1/namespaces/default/elasticworkers"
SPEC = {"job": "one", "index": 0, "id": "9f3c01d2.0", "certificate": "PEM", "address": "10.0.0.1:27601"}


@pytest.fixture
def record(with_crds: ControlPlane) -> Iterator[str]:
    made = {"apiVersion": API_VERSION, "kind": "ElasticWorker", "metadata": {"name": "one-0-0"}, "spec": SPEC}
    with_crds.request("POST", WORKERS, made)
    yield f"{WORKERS}/one-0-0"
    with_crds.request("DELETE", f"{WORKERS}/one-0-0")


def change(plane: ControlPlane, path: str, **spec: str) -> Any:
    return plane.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")["spec"]


def test_an_incarnation_has_one_certificate(with_crds: ControlPlane, record: str) -> None:
    with pytest.raises(ControlPlaneError, match=r"refused with 422.*an incarnation has one certificate"):
        change(with_crds, record, certificate="another")


def test_the_next_incarnation_has_another(with_crds: ControlPlane, record: str) -> None:
    assert change(with_crds, record, id="9f3c01d2.1", certificate="another")["certificate"] == "another"
    assert change(with_crds, record, address="10.0.0.2:27601")["certificate"] == "another"
