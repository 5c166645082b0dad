# SPDX-License-Identifier: Apache-2.0
"""What the simulated API server stores: versions share what has not changed, and none is changed after it was."""

import json
from random import Random

import pytest

from elasticjob.kube.errors import Conflict, error_of
from simulation.api_server import ApiServer
from simulation.clocks import Clock
from simulation.loop import VirtualLoop
from simulation.store import Change, Object

PATH = "/api/v1/namespaces/ml/pods"
POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "trainer", "image": "x"}]}}
MERGE = {"Content-Type": "application/merge-patch+json"}


def ask(server: ApiServer, method: str, path: str, body: Object, **headers: str) -> Object:
    reply = server.handle("client", method, path, json.dumps(body).encode(), headers, 0.0)
    assert reply.status < 300
    found: Object = json.loads(reply.body)
    return found


def test_each_version_stays_what_it_was_and_its_json_says_the_same() -> None:
    loop, dice = VirtualLoop(), Random(0)
    server = ApiServer(loop, dice, Clock(loop, dice))
    told: list[tuple[Change, str]] = []
    server.store.observers.append(lambda change: told.append((change, json.dumps(change.body))))

    made = ask(server, "POST", PATH, POD)
    ask(server, "PATCH", f"{PATH}/a", {"metadata": {"labels": {"one": "1"}}, "spec": {"nodeName": "n"}}, **MERGE)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    ask(server, "PUT", f"{PATH}/a/status", {**made, "metadata": {"name": "a"}, "status": status})
    server.change("pods", "ml", "a", lambda pod: pod["status"].update(phase="Failed"), "kubelet")
    same = ask(server, "PATCH", f"{PATH}/a", {"metadata": {"labels": {"two": None}}}, **MERGE)
    ask(server, "DELETE", f"{PATH}/a", {"gracePeriodSeconds": 0})

    assert [change.type for change, _ in told] == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    for change, said in told:
        assert json.dumps(change.body) == said == change.raw.decode()
    assert same["metadata"]["resourceVersion"] == told[3][0].body["metadata"]["resourceVersion"]
    assert [change.body["metadata"]["generation"] for change, _ in told] == [1, 2, 2, 2, 2]
    assert told[3][0].body["spec"] is told[1][0].body["spec"]


@pytest.mark.parametrize(("method", "status"), [("PUT", 409), ("PATCH", 422)])
def test_a_write_with_the_uid_of_another_object_is_refused(method: str, status: int) -> None:
    loop, dice = VirtualLoop(), Random(0)
    server = ApiServer(loop, dice, Clock(loop, dice))
    ask(server, "POST", PATH, POD)
    body = json.dumps({**POD, "metadata": {"name": "a", "uid": "another"}}).encode()
    reply = server.handle("client", method, f"{PATH}/a", body, MERGE, 0.0)
    assert (reply.status, type(error_of(reply.status, reply.body))) == (status, Conflict)
